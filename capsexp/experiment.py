"""One run: check, seed, build, fit, record."""

import fcntl
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger

from capsexp import records
from capsexp.build import Built, build, dry_run, make
from capsexp.checkpoints import BEST, LAST, AtomicCheckpointIO, EpochCheckpoint, finished_epochs, load
from capsexp.config import Config
from capsexp.data import source
from capsexp.data.module import CapsuleData
from capsexp.errors import InputError, RunError, one_line
from capsexp.lightning import CapsuleModule
from capsexp.progress import make_progress
from capsexp.provenance import now, peak_memory_mb, provenance

Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where a run computes."""

    device: torch.device
    precision: str  # bf16 or float32


def run(config: Config, command: str | None = None, say: Say = print) -> records.Record:
    """Trains one configuration, or goes on with it, and returns its record; a finished one is returned as it is.

    Args:
        config: checked.
        command: what repeats the run, for the record.
        say: gets the lines that a user sees.

    Raises InputError for what the user can mend before the training, RunError for a training that failed, and
    KeyboardInterrupt; an interrupted run goes on from its last whole epoch when it is asked for again.
    """
    place = find_place(config)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    parameters = dry_run(config)
    note = source.identify(config.data).note
    identity = records.identity(config, place.precision, note)
    name = records.run_name(identity)
    path = records.path_of(Path(config.paths.results), name)
    if path.exists() and not config.rerun:
        record = records.read(path)
        if record.status == "finished":
            say(f"{name}: finished already, {outcome(record)} (rerun=true trains again)")
            return record
    folder = Path(config.paths.logs) / name
    with owned(folder):
        if config.rerun and path.exists():
            _discard_finished(folder, epochs_of(config))
        say(
            f"{name}: {parameters:,} parameters on {place.device.type} in {place.precision}"
            + (f"; {note}" if note else "")
        )
        return _Training(config, place, identity, parameters, folder, path, command, say).record()


class _Training:
    """What the steps of one training share."""

    def __init__(
        self,
        config: Config,
        place: Place,
        identity: records.Json,
        parameters: int,
        folder: Path,
        path: Path,
        command: str | None,
        say: Say,
    ) -> None:
        self.config, self.place, self.identity, self.parameters = config, place, identity, parameters
        self.folder, self.path, self.command, self.say = folder, path, command, say
        self.evaluated = "heldout" if config.protocol == "heldout" else "test"
        self.started = now()
        self.resumed: list[int] = []

    def record(self) -> records.Record:
        """Trains to the end and writes the record; of a training that fails too, before the error goes on."""
        pl.seed_everything(self.config.seed, verbose=False)
        images = source.load(self.config.data, self.say)
        module = make_module(self.config, build(self.config))
        trainer = self._trainer()
        data = CapsuleData(images, self.config)
        heldout = None
        try:
            self._fit(trainer, module, data)
            if self.config.protocol == "heldout":
                heldout = self._test_best(trainer, module, data)
        except (RunError, RuntimeError, MemoryError) as error:
            self._write(module, images, None, one_line(error))
            raise RunError(f"{self.folder.name}: failed: {one_line(error)}") from error
        record = self._write(module, images, heldout, None)
        _log_hparams(trainer, record)
        trainer.save_checkpoint(self.folder / LAST, weights_only=True)  # a finished run needs no optimiser
        self.say(f"{self.folder.name}: {outcome(record)}; record {self.path}, TensorBoard logs {self.folder}")
        return record

    def _trainer(self) -> pl.Trainer:
        config = self.config
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        return pl.Trainer(
            accelerator="gpu" if self.place.device.type == "cuda" else "cpu",
            devices=1,
            precision="bf16-mixed" if self.place.precision == "bf16" else "32-true",
            deterministic=config.trainer.deterministic,
            max_epochs=epochs_of(config),
            callbacks=[EpochCheckpoint(self.folder), *make_progress(config.trainer.progress)],
            plugins=[AtomicCheckpointIO()],
            logger=TensorBoardLogger(self.folder.parent, self.folder.name, version="", default_hp_metric=False),
            num_sanity_val_steps=0,
            enable_checkpointing=True,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    def _fit(self, trainer: pl.Trainer, module: CapsuleModule, data: CapsuleData) -> None:
        """Trains from the last checkpoint on, if there is one."""
        last = self.folder / LAST
        done = finished_epochs(last)
        if done:
            self.resumed = [*load(last).get("resumed", []), done]
            self.say(f"{self.folder.name}: goes on after epoch {done}")
        module.resumed = self.resumed
        try:
            trainer.fit(module, datamodule=data, ckpt_path=last if done else None)
        except SystemExit:  # what Lightning makes of Ctrl-C
            raise KeyboardInterrupt from None

    def _test_best(self, trainer: pl.Trainer, module: CapsuleModule, data: CapsuleData) -> float:
        """The test accuracy of the epoch that the held-out images chose, in percent."""
        module.load_state_dict(load(self.folder / BEST)["state_dict"])
        trainer.test(module, datamodule=data, verbose=False)
        return module.test_accuracy()

    def _write(
        self, module: CapsuleModule, images: source.ImageSet, heldout: float | None, error: str | None
    ) -> records.Record:
        maximum, first, last, seconds = records.summary(module.history, self.evaluated)
        chosen_on_test = self.config.protocol == "paper"
        record = records.Record(
            key=records.key_of(self.identity),
            status="finished" if error is None else "failed",
            error=error,
            identity=self.identity,
            config=records.described(self.config),
            epochs=[_finite(row) for row in module.history],
            max_accuracy=maximum if chosen_on_test else None,
            first_epoch_to_max=first,
            last_accuracy=last if chosen_on_test else None,
            heldout_accuracy=heldout,
            parameters=self.parameters,
            seconds_per_epoch=seconds,
            peak_memory_mb=peak_memory_mb(self.place.device),
            data={"note": images.note, "checksum": images.checksum},
            provenance=provenance(self.place.device, self.started, self.resumed, self.command),
        )
        records.write(record, self.path)
        return record


def find_place(config: Config) -> Place:
    """The device and the precision that `trainer` means here; raises InputError when it asks for what isn't there."""
    wanted = config.trainer.accelerator
    if wanted == "gpu" and not torch.cuda.is_available():
        raise InputError("trainer.accelerator=gpu: torch sees no CUDA device here (auto or cpu run on the CPU)")
    device = torch.device("cuda", 0) if wanted != "cpu" and torch.cuda.is_available() else torch.device("cpu")
    computes_bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_computes_bf16()
    precision = config.trainer.precision
    if precision == "auto":
        precision = "bf16" if computes_bf16 else "float32"
    return Place(device, precision)


def make_module(config: Config, built: Built) -> CapsuleModule:
    """The Lightning module of a configuration around a network."""
    return CapsuleModule(
        built.network,
        built.decoder,
        make(config.loss, "loss"),
        config.reconstruction.weight,
        config.optim,
        epochs_of(config),
        config.seed,
        config.data.classes,
        "heldout" if config.protocol == "heldout" else "test",
        config.data.mean if config.preprocess.normalize else None,
        config.data.std if config.preprocess.normalize else None,
    )


def epochs_of(config: Config) -> int:
    """How many epochs a run does."""
    return config.budget.epochs or config.optim.epochs


def outcome(record: records.Record) -> str:
    """A record's result in a few words."""
    if record.heldout_accuracy is not None:
        epoch = record.first_epoch_to_max
        return f"test accuracy {record.heldout_accuracy:.2f} % in epoch {epoch}, chosen on held-out images"
    return (
        f"maximum test accuracy {record.max_accuracy:.2f} % in epoch {record.first_epoch_to_max} "
        f"of {len(record.epochs)}, last {record.last_accuracy:.2f} %"
    )


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Holds a run's folder for this process; raises RunError when another has it. The lock of a dead one is free."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{folder.name}: in hand already, by process {_owner(stream)}") from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _owner(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read() or "unknown"


def _discard_finished(folder: Path, epochs: int) -> None:
    """Clears the checkpoints of a run that came to its end, so that it starts over; an interrupted one goes on."""
    if finished_epochs(folder / LAST) >= epochs:
        for name in (LAST, BEST):
            (folder / name).unlink(missing_ok=True)


def _log_hparams(trainer: pl.Trainer, record: records.Record) -> None:
    """What TensorBoard's HParams page compares: the axes of the tables against the real metrics."""
    identity: dict[str, Any] = record.identity
    parameters = {
        "model": identity["model"]["name"],
        "data": identity["data"]["name"],
        **{f"routing.{key}": value for key, value in record.config["routing"].items() if key != "_target_"},
        **{f"attention.{key}": value for key, value in record.config["attention"].items()},
        "budget": identity["budget"]["name"],
        "precision": identity["precision"],
        "seed": identity["seed"],
    }
    metrics = {
        name: getattr(record, name)
        for name in ("max_accuracy", "first_epoch_to_max", "last_accuracy", "heldout_accuracy")
    }
    assert isinstance(trainer.logger, TensorBoardLogger)
    trainer.logger.log_hyperparams(parameters, metrics)
    trainer.logger.finalize("success")


def _finite(row: records.Json) -> records.Json:
    """JSON has no NaN: a number that isn't finite becomes null."""
    return {name: value if abs(value) < float("inf") else None for name, value in row.items()}


def _cpu_computes_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself; elsewhere it is slower than float32."""
    flags = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "")()
    has_bf16: bool = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return flags != "" and has_bf16

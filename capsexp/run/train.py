"""The work of a run: seed, build, load, fit with Lightning, write the record."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from capsexp.config.schema import is_multilabel
from capsexp.data import source
from capsexp.data.module import CapsuleData
from capsexp.data.source import ImageSet
from capsexp.errors import RunError, one_line
from capsexp.files import naming
from capsexp.run import records
from capsexp.run.build import Built, build, make_loss
from capsexp.run.checkpoints import BEST, LAST, AtomicCheckpointIO, EpochCheckpoint, about, drop_optimizer, load
from capsexp.run.distributed import Seat, check_shares, processes
from capsexp.run.host_memory import keep_freed_memory
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan, finished
from capsexp.run.progress import make_progress
from capsexp.run.provenance import beginning, peak_memory_mb, provenance
from capsexp.run.tensorboard import Board


def train(
    planned: Plan, parameters: int, say: Callable[[str], None], callbacks: Sequence[Callback] = ()
) -> records.Record:
    """Trains to the end, from the last checkpoint on where there is one, and writes the record.

    A training that fails leaves a record that says so, and raises RunError; Ctrl-C raises KeyboardInterrupt.
    """
    config, begun = planned.config, beginning()
    module, data, images = _prepared(planned, say)
    board = Board(planned)
    heldout, error = None, None
    try:
        with processes(planned, _take_part) as seat:
            heldout = _trained(planned, seat, module, data, say, [board, *callbacks])
    except (RunError, RuntimeError, MemoryError) as failure:
        error = failure
    maximum, first, last, seconds = records.summary(module.history, planned.evaluated)
    chosen_on_test = config.protocol == "paper"
    record = records.Record(
        key=records.key_of(planned.identity),
        status="failed" if error else "finished",
        error=one_line(error) if error else None,
        identity=planned.identity,
        config=records.described(config),
        epochs=[_finite(row) for row in module.history],
        max_accuracy=maximum if chosen_on_test else None,
        first_epoch_to_max=first,
        last_accuracy=last if chosen_on_test else None,
        heldout_accuracy=heldout,
        parameters=parameters,
        seconds_per_epoch=seconds,
        peak_memory_mb=peak_memory_mb(planned.device),
        data={"note": images.note, "checksum": images.checksum},
        provenance=provenance(begun, planned.device, planned.processes, module.resumed, planned.command),
    )
    if not (error and finished(planned)):  # a repetition that fails leaves the finished record alone
        records.write(record, planned.path)
    if error:
        raise RunError(f"{planned.name}: failed: {record.error}") from error
    with naming(planned.folder):
        board.conclude(record)
    drop_optimizer(planned.folder / LAST)
    say(f"{planned.name}: {records.outcome(record)}")
    say(f"record {planned.path}")
    say(f"TensorBoard logs {planned.folder}")
    return record


def _prepared(planned: Plan, say: Callable[[str], None]) -> tuple[CapsuleModule, CapsuleData, ImageSet]:
    """What is trained and on what; from here on chance is the seed's."""
    config = planned.config
    keep_freed_memory()
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    pl.seed_everything(config.seed, verbose=False)
    images = source.load(config.data, say)
    built = build(config)
    check_shares(planned, built.network)
    return make_module(planned, built), CapsuleData(images, config), images


def _trained(
    planned: Plan,
    seat: Seat,
    module: CapsuleModule,
    data: CapsuleData,
    say: Callable[[str], None],
    callbacks: Sequence[Callback] = (),
) -> float | None:
    """Trains; under protocol heldout the test accuracy of the epoch that was chosen, in percent."""
    trainer = make_trainer(planned, seat, callbacks)
    _fit(planned, trainer, module, data, say)
    return _test_best(planned, trainer, module, data) if planned.config.protocol == "heldout" else None


def _take_part(planned: Plan, seat: Seat) -> None:
    """The part of a process that was started to share a run's batches."""
    module, data, _ = _prepared(planned, _silent)
    _trained(planned, seat, module, data, _silent)


def _silent(line: str) -> None:
    """The first process says it."""


def make_module(planned: Plan, built: Built) -> CapsuleModule:
    """The Lightning module of a run around its network."""
    config = planned.config
    loss = make_loss(config.loss, built.network)
    module = CapsuleModule(
        built.network,
        built.decoder,
        loss,
        config.reconstruction.weight,
        config.optim,
        planned.epochs,
        config.seed,
        planned.evaluated,
        config.data.mean if config.preprocess.normalize else None,
        config.data.std if config.preprocess.normalize else None,
        loss.threshold if is_multilabel(config.data) else None,
        config.trainer.cuda_graphs,
    )
    module.about = about(planned)
    return module


def make_trainer(planned: Plan, seat: Seat, callbacks: Sequence[Callback] = ()) -> pl.Trainer:
    """Lightning's trainer, quiet but for our own lines."""
    config = planned.config
    for library in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    progress = make_progress(config.trainer.progress) if seat.rank == 0 else []
    return pl.Trainer(
        accelerator="gpu" if planned.device.type == "cuda" else "cpu",
        devices=seat.of,
        strategy=seat.strategy,
        sync_batchnorm=seat.of > 1,
        precision="bf16-mixed" if planned.precision == "bf16" else "32-true",
        deterministic=config.trainer.deterministic,
        max_epochs=planned.epochs,
        callbacks=[EpochCheckpoint(planned.folder), *progress, *callbacks],
        plugins=[AtomicCheckpointIO()],
        logger=False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _fit(
    planned: Plan, trainer: pl.Trainer, module: CapsuleModule, data: CapsuleData, say: Callable[[str], None]
) -> None:
    """Trains, from the last checkpoint on if there is one."""
    last = planned.folder / LAST
    checkpoint = load(last) if last.exists() else None
    done = len(checkpoint["history"]) if checkpoint else 0
    if done >= planned.epochs and planned.config.rerun:
        checkpoint = None  # a run that came to its end starts over
    if checkpoint:
        module.resumed = [*checkpoint["resumed"], done]
        say(f"{planned.name}: goes on after epoch {done}")
        if done >= planned.epochs:  # only the record is missing
            module.load_state_dict(checkpoint["state_dict"])
            module.history = checkpoint["history"]
            return
    with _interruptible(), naming(planned.folder):
        trainer.fit(module, datamodule=data, ckpt_path=last if checkpoint else None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is Ctrl-C again: Lightning makes the end of the program of it."""
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None


def _test_best(planned: Plan, trainer: pl.Trainer, module: CapsuleModule, data: CapsuleData) -> float:
    """The test accuracy of the epoch that the held-out images chose, in percent."""
    module.load_state_dict(load(planned.folder / BEST)["state_dict"])
    with _interruptible():
        trainer.test(module, datamodule=data, verbose=False)
    return module.test_accuracy()


def _finite(row: records.Json) -> records.Json:
    """JSON has no NaN: a number that isn't finite becomes null."""
    return {name: value if abs(value) < float("inf") else None for name, value in row.items()}

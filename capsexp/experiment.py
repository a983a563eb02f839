"""One run: what it is, whether it is done already, whose it is; `capsexp.training` does the work."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from capsexp import records
from capsexp.build import dry_run
from capsexp.config import Config
from capsexp.data import source
from capsexp.errors import InputError, RunError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A run before it starts."""

    config: Config
    device: torch.device
    precision: str  # bf16 or float32
    note: str | None  # what the data files are, where they aren't the published ones
    command: str | None  # what repeats the run

    @property
    def identity(self) -> records.Json:
        """What its key is a hash of."""
        return records.identity(self.config, self.precision, self.note)

    @property
    def name(self) -> str:
        """`model-data-key`."""
        return records.run_name(self.identity)

    @property
    def path(self) -> Path:
        """Where its record goes."""
        return records.path_of(Path(self.config.paths.results), self.name)

    @property
    def folder(self) -> Path:
        """Where its checkpoints and TensorBoard's files go."""
        return Path(self.config.paths.logs) / self.name

    @property
    def epochs(self) -> int:
        """How many epochs it does."""
        return self.config.budget.epochs or self.config.optim.epochs

    @property
    def evaluated(self) -> str:
        """What is evaluated after each epoch."""
        return "heldout" if self.config.protocol == "heldout" else "test"


def plan(config: Config, command: str | None = None) -> Plan:
    """What a configuration means on this machine; raises InputError for a device or data that aren't there."""
    device, precision = find_place(config)
    return Plan(config, device, precision, source.identify(config.data).note, command)


def run(config: Config, command: str | None = None, say: Say = print) -> records.Record:
    """Trains one configuration, or goes on with it, and returns its record; a finished one is returned as it is.

    Args:
        config: checked.
        command: what repeats the run, for the record.
        say: gets the lines that a user sees.

    Raises InputError for what the user can mend before the training, RunError for a training that failed, and
    KeyboardInterrupt; an interrupted run goes on from its last whole epoch when it is asked for again.
    """
    parameters = dry_run(config)
    planned = plan(config, command)
    if (record := finished(planned)) and not config.rerun:
        say(f"{planned.name}: finished already, {outcome(record)} (rerun=true trains again)")
        return record
    with owned(planned.folder):
        from capsexp.training import train  # Lightning takes seconds to import

        what = f"; {planned.note}" if planned.note else ""
        say(f"{planned.name}: {parameters:,} parameters on {planned.device.type} in {planned.precision}{what}")
        return train(planned, parameters, say)


def finished(planned: Plan) -> records.Record | None:
    """The record of a run that came to its end, or None; raises InputError for a damaged record."""
    if not planned.path.exists():
        return None
    record = records.read(planned.path)
    return record if record.status == "finished" else None


def find_place(config: Config) -> tuple[torch.device, str]:
    """The device and the precision that `trainer` means here; raises InputError when it asks for what isn't there."""
    wanted = config.trainer.accelerator
    if wanted == "gpu" and not torch.cuda.is_available():
        raise InputError("trainer.accelerator=gpu: torch sees no CUDA device here (auto or cpu run on the CPU)")
    device = torch.device("cuda", 0) if wanted != "cpu" and torch.cuda.is_available() else torch.device("cpu")
    precision = config.trainer.precision
    if precision == "auto":
        on_cpu = device.type == "cpu"
        # Other processors imitate bfloat16, which is slower than float32.
        computes = torch.ops.mkldnn._is_mkldnn_bf16_supported() if on_cpu else torch.cuda.is_bf16_supported()
        precision = "bf16" if computes else "float32"
    return device, precision


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

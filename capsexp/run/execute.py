"""One run: skip it if it is done, hold its folder, train it."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from capsexp.config.schema import Config
from capsexp.errors import BusyError
from capsexp.files import forget_parts, naming
from capsexp.run import records
from capsexp.run.build import dry_run
from capsexp.run.plan import Plan, finished, plan

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback


def run(
    config: Config,
    command: str | None = None,
    say: Callable[[str], None] = print,
    callbacks: "Sequence[Callback]" = (),
) -> records.Record:
    """Trains one configuration, or goes on with it, and returns its record; a finished one is returned as it is.

    Args:
        config: checked.
        command: what repeats the run, for the record.
        say: gets the lines that a user sees.
        callbacks: of Lightning, that watch the training.

    Raises InputError for what the user can mend before the training, BusyError when another process is at it,
    RunError for a training that failed, and KeyboardInterrupt; an interrupted run goes on from its last whole epoch
    when it is asked for again.
    """
    parameters = dry_run(config)
    planned = plan(config, command)
    if record := _done(planned, say):
        return record
    with owned(planned.folder):
        if record := _done(planned, say):  # by another process, since
            return record
        forget_parts(planned.path.parent, planned.name)
        forget_parts(planned.folder)
        from capsexp.run.train import train  # Lightning takes seconds to import

        what = f"; {planned.note}" if planned.note else ""
        say(f"{planned.name}: {parameters:,} parameters on {planned.device.type} in {planned.precision}{what}")
        return train(planned, parameters, say, callbacks)


def _done(planned: Plan, say: Callable[[str], None]) -> records.Record | None:
    """The record that needs no more training."""
    record = None if planned.config.rerun else finished(planned)
    if record:
        say(f"{planned.name}: finished already, {records.outcome(record)} (rerun=true trains again)")
    return record


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Holds a run's folder for this process; raises BusyError when another has it. The lock of a dead one is free."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{folder.name}: in hand already, by process {_owner(stream)}") from None
        with naming(folder / "lock"):
            stream.truncate(0)
            os.write(stream.fileno(), str(os.getpid()).encode())
        yield


def held(folder: Path) -> bool:
    """Whether another process has a run's folder at this moment."""
    try:
        with (folder / "lock").open("a+") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _owner(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read() or "unknown"

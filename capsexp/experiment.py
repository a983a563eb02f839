"""One run: skip it if it is done, hold its folder, train it."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from capsexp import records
from capsexp.build import dry_run
from capsexp.config import Config
from capsexp.errors import RunError
from capsexp.plan import finished, plan


def run(config: Config, command: str | None = None, say: Callable[[str], None] = print) -> records.Record:
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
        say(f"{planned.name}: finished already, {records.outcome(record)} (rerun=true trains again)")
        return record
    with owned(planned.folder):
        from capsexp.training import train  # Lightning takes seconds to import

        what = f"; {planned.note}" if planned.note else ""
        say(f"{planned.name}: {parameters:,} parameters on {planned.device.type} in {planned.precision}{what}")
        return train(planned, parameters, say)


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

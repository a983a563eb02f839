"""One run: skipped when it is finished, locked against other processes, trained."""

import errno
import fcntl
import io
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from capsexp.cli import print_line
from capsexp.config.compose import portable
from capsexp.config.schema import Config
from capsexp.errors import BusyError, InputError, RunError
from capsexp.files import check_writable, naming, opened, remove_parts
from capsexp.run import records
from capsexp.run.plan import Plan, check_precision, is_first, plan

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback

RECHECK = 2.0  # seconds until the lock of a run that another process trains is checked again
_INSTANT = 0.1  # seconds, longer than a check holds a lock


def run(config: Config, overrides: Sequence[str] | None = None, beside: bool = False) -> records.Record:
    """The record of a run: see `execute`.

    Args:
        overrides: that make the configuration, for the record's command.
        beside: whether it is one of several, so that its lines begin with its name.
    """
    planned = plan(config, overrides)
    if not beside:
        return execute(planned)
    with redirect_stdout(_Named(sys.stdout, planned.name)):
        print_line(" ".join(portable(overrides or [])))
        return execute(planned, wait=True)


class _Named(io.TextIOBase):
    """Whole lines for a stream, each with a name before it: other processes write there, too."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream, self.name, self.part = stream, name, ""

    def write(self, text: str) -> int:
        *lines, self.part = (self.part + text).split("\n")
        for line in lines:
            self.stream.write(f"{self.name}: {line.removeprefix(f'{self.name}: ')}\n")
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


def execute(planned: Plan, callbacks: "Sequence[Callback]" = (), wait: bool = False) -> records.Record:
    """The record of a planned run, which is trained, resumed, or finished already.

    Raises InputError for what the user can correct before the training, BusyError when another process trains the run
    and it isn't to `wait`, RunError for a training that failed, and KeyboardInterrupt. The next call resumes an
    interrupted run after its last completed epoch.
    """
    if record := _finished(planned):
        return record
    check_precision(planned.config)
    from capsexp.run.train import prepare, train  # Lightning takes seconds to import, which a finished run doesn't need

    prepared = prepare(planned)
    if not is_first():
        return train(*prepared, callbacks)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(planned.folder, wait))
            check_writable(planned.path.parent)  # now, and not after hours of training
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            elsewhere = "paths.logs=DIR paths.results=DIR write elsewhere"
            raise RunError(f"{error.filename}: {error.strerror}; {elsewhere}") from error
        if record := _finished(planned):  # by another process meanwhile
            return record
        note = f"; {planned.note}" if planned.note else ""
        print_line(f"{planned.name}: on {planned.device.type} in {planned.precision}{note}")
        remove_parts(planned.path.parent, planned.name)
        remove_parts(planned.folder)
        return train(*prepared, callbacks)


def _finished(planned: Plan) -> records.Record | None:
    """The record that makes training unnecessary, or None; raises InputError for a damaged record."""
    if planned.config.rerun or not planned.path.exists():
        return None
    record = records.read(planned.path)
    if record.status == "failed":
        return None
    print_line(f"{planned.name}: finished already, {records.result_line(record)} (rerun=true trains again)")
    return record


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Locks a run's folder, which waits or raises BusyError when another process has locked it.

    The system unlocks it when a process dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with opened(folder / "lock", "ab+") as stream:
        if not _flock(stream, fcntl.LOCK_EX):
            time.sleep(_INSTANT)  # `is_locked` in another process holds it for an instant
            if not _flock(stream, fcntl.LOCK_EX):
                stream.seek(0)
                process = stream.read().decode() or "unknown"
                if not wait:
                    raise BusyError(f"{folder.name}: already running, in process {process}")
                print_line(f"{folder.name}: already running, in process {process}; waits")
                fcntl.flock(stream, fcntl.LOCK_EX)
        with naming(folder / "lock"):
            stream.truncate(0)
            os.write(stream.fileno(), f"{os.getpid()} on {platform.node()}".encode())
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a run's folder."""
    try:
        with opened(folder / "lock", "rb+") as stream:
            return not _flock(stream, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _flock(stream: BinaryIO, kind: int) -> bool:
    """Locks a file, or returns False when another process has; raises InputError where there are no locks."""
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some NFS, Lustre and FUSE
        raise InputError(
            f"paths.logs={Path(stream.name).parents[1]}: has no file locks ({error.strerror}), by which two processes "
            "don't train one run; choose a folder on another file system"
        ) from None
    return True

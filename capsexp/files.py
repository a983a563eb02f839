"""Files that are either complete or absent, also after a power cut."""

import errno
import glob
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from capsexp.errors import InputError

PROBE = 1 << 17  # bytes; a record of 250 epochs has 80,000
ABANDONED = 3600.0  # seconds after which nobody writes a temporary file any more


def write_file(path: Path, content: bytes | memoryview | str) -> None:
    """Writes a whole file, a text in UTF-8: beside it first, on disk, then renamed into place.

    Raises OSError with `path` as its file name when that fails; nothing is left behind then. What a writer of `path`
    left that was killed an hour ago is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_parts(path.parent, f"{path.name}.", ABANDONED)
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        with part.open("xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        raise _named(error, path) from error
    finally:
        with suppress(OSError):
            part.unlink()
    with suppress(OSError):  # so that the rename survives a power cut, where the system supports it
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_output(path: Path, content: bytes | str) -> None:
    """Writes what the user names: a device or a pipe as it is, through a link its target, anything else whole.

    Raises OSError as `write_file`, and for a pipe that nobody reads.
    """
    if path.exists() and not path.is_file():
        with naming(path), open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb") as stream:
            os.set_blocking(stream.fileno(), True)
            stream.write(content.encode() if isinstance(content, str) else content)
    else:
        write_file(Path(os.path.realpath(path)), content)


def check_writable(folder: Path) -> None:
    """Raises OSError with the path where a file of PROBE bytes can't be written to a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(PROBE))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise _named(error, folder) from error


def opened(path: Path, mode: str) -> BinaryIO:
    """A regular file, open. A FIFO would wait for ever, and a link in a copied folder can lead anywhere.

    Raises InputError for anything else; links are followed in order to read, not to write.
    """
    refusal = InputError(f"{path}: not a file; move it away")

    def regular(name: str, flags: int) -> int:
        number = os.open(name, flags | os.O_NONBLOCK | (0 if mode == "rb" else os.O_NOFOLLOW), 0o666)
        if stat.S_ISREG(os.fstat(number).st_mode):
            return number
        os.close(number)
        raise refusal

    try:
        return cast(BinaryIO, open(path, mode, opener=regular))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise refusal from None
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds `path` to an OSError without a file name, as libraries raise them when they write."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise _named(error, path) from error


def _named(error: OSError, path: Path) -> OSError:
    return error if error.errno is None else OSError(error.errno, os.strerror(error.errno), str(path))


def remove_parts(folder: Path, name: str = "", age: float = 0.0) -> None:
    """Removes the temporary files of writers that were killed, of targets whose names begin with `name`.

    Args:
        age: in seconds; younger files are kept: their writers may still be there.
    """
    for part in folder.glob(f".{glob.escape(name)}*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime >= age:
                part.unlink()

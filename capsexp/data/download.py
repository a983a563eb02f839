"""Fetches a missing data set: all of it or nothing."""

import http.client
import os
import socket
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capsexp.data.reader import Reader
from capsexp.errors import InputError

_TIMEOUT = 20.0  # seconds without an answer
_FAILURES = (OSError, RuntimeError, EOFError, ValueError, http.client.HTTPException, tarfile.TarError, zlib.error)


def fetch(reader: Reader, root: Path) -> None:
    """Downloads the reader's files into `root`; raises InputError, and leaves nothing behind, when that fails.

    They come into a temporary folder of the same file system, and are renamed when all of them are there.
    """
    beside = next(folder for folder in (root, *root.parents) if os.path.isdir(folder))
    try:
        with tempfile.TemporaryDirectory(dir=beside, prefix=".capsexp-download-") as name, _timeout():
            temporary = Path(name)
            reader.download(temporary)
            files = reader.locate(temporary)
            if files.keys() != set(reader.keys):
                raise RuntimeError("the archive lacks files")
            for path in files.values():
                target = root / path.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
    except _FAILURES as error:
        reason = " ".join(str(error).split()) or type(error).__name__  # torchvision lists its mirrors, a line each
        raise InputError(f"the download failed: {reason}") from error


@contextmanager
def _timeout() -> Iterator[None]:
    """torchvision gives its connections no time limit; the default for new sockets is theirs."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)

"""The cache of md5s and decoded images beside the data, in `<root>/.capsexp`.

It can be deleted at any time. Where the folder can't be written, everything works without it, more slowly.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capsexp.data.reader import Reader, decoding
from capsexp.files import write_atomically

Log = Callable[[str], None]
Arrays = dict[str, NDArray[np.generic]]

_CHECKSUMS = "checksums.json"
#: (path, state of its files) → md5, known to this process.
_known: dict[tuple[str, str], str] = {}


class Cache:
    """The cache of a data set.

    Args:
        folder: of its files; None disables the cache on disk.
        name: the data set's, for messages.
        log: is called with a line for each step that takes time, and for each failure.
    """

    def __init__(self, folder: Path | None, name: str, log: Log) -> None:
        self.folder, self.name, self.log = folder, name, log

    def checksums(self, files: Mapping[str, Path], reader: Reader) -> dict[str, str]:
        """Key → md5. A file is read only if its size or modification time differs from the cached one."""
        states = {key: (str(path.absolute()), _state(path, reader)) for key, path in files.items()}
        if any(state not in _known for state in states.values()):
            _known.update(self._stored_checksums())
        unknown = [key for key, state in states.items() if state not in _known]
        if unknown and self.folder:
            self.log(f"{self.name}: checking {files[unknown[0]].parent.absolute()} …")
        for key in unknown:
            with decoding(files[key]):
                _known[states[key]] = reader.digest(files[key])
        if unknown:
            self._store_checksums({states[key]: _known[states[key]] for key in unknown})
        return {key: _known[state] for key, state in states.items()}

    def arrays(self, key: str, decode: Callable[[], Arrays]) -> Arrays:
        """The arrays stored under `key`; if there are none, those that `decode` returns, which are then stored."""
        if self.folder is None:
            return decode()
        path = self.folder / f"{key}.npz"
        stored = self._stored_arrays(path)
        if stored is not None:
            return stored
        arrays = decode()
        self._store(path, lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]
        return arrays

    def _stored_arrays(self, path: Path) -> Arrays | None:
        """The arrays in a file, or None; numpy checks the CRC-32 of each when it reads an npz."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            return None
        except Exception:  # zipfile and numpy raise many types for damaged files
            self.log(f"{self.name}: {path} is damaged; it's made again")
            with suppress(OSError):
                path.unlink()
            return None

    def _stored_checksums(self) -> dict[tuple[str, str], str]:
        if self.folder is None:
            return {}
        try:
            content = json.loads((self.folder / _CHECKSUMS).read_text(encoding="utf-8"))
            entries = content["entries"]
            if content["digest"] != digest(entries):  # a flipped bit in an md5 would make good files unknown
                raise ValueError
            return {(str(path), str(state)): str(md5) for path, state, md5 in entries}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            self.log(f"{self.name}: {self.folder / _CHECKSUMS} is damaged or of another version; it's made again")
            return {}

    def _store_checksums(self, new: dict[tuple[str, str], str]) -> None:
        if self.folder is None:
            return
        paths = {path for path, _ in new}
        kept = {key: md5 for key, md5 in self._stored_checksums().items() if key[0] not in paths}
        entries = [[path, state, md5] for (path, state), md5 in sorted((kept | new).items())]
        text = json.dumps({"digest": digest(entries), "entries": entries}, indent=1)
        self._store(self.folder / _CHECKSUMS, lambda stream: stream.write(text.encode()))

    def _store(self, path: Path, write: Callable[..., object]) -> None:
        try:
            write_atomically(path, write)
        except OSError as error:
            self.log(f"{self.name}: {path} can't be written ({error.strerror}); going on without")


def digest(entries: object) -> str:
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _state(path: Path, reader: Reader) -> str:
    """A hash that changes when a file is added, removed, renamed, resized or written again."""
    with decoding(path):
        states = sorted((part.name, (stat := part.stat()).st_size, stat.st_mtime_ns) for part in reader.parts(path))
    return hashlib.md5(repr(states).encode(), usedforsecurity=False).hexdigest()

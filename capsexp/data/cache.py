"""What is remembered beside the data, under `<root>/.capsexp`, so that it's worked out once: md5s, decoded images.

All of it can be deleted at any time. Where the folder can't be written, everything works without it, more slowly.
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

Say = Callable[[str], None]
Arrays = dict[str, NDArray[np.generic]]

_CHECKSUMS = "checksums.json"
#: (path, state of its files) → md5, for this process.
_known: dict[tuple[str, str], str] = {}


class Cache:
    """The cache in `folder`, or none where `folder` is None; `say` gets a line for whatever takes time or fails."""

    def __init__(self, folder: Path | None, name: str, say: Say) -> None:
        self.folder, self.name, self.say = folder, name, say

    def checksums(self, files: Mapping[str, Path], reader: Reader) -> dict[str, str]:
        """Key → md5. A file is read only if its size or modification time isn't the remembered one."""
        states = {key: (str(path.absolute()), _state(path, reader)) for key, path in files.items()}
        if any(state not in _known for state in states.values()):
            _known.update(self._stored_checksums())
        unknown = [key for key, state in states.items() if state not in _known]
        if unknown and self.folder:
            self.say(f"{self.name}: checking {files[unknown[0]].parent.absolute()} …")
        for key in unknown:
            with decoding(files[key]):
                _known[states[key]] = reader.digest(files[key])
        if unknown:
            self._store_checksums({states[key]: _known[states[key]] for key in unknown})
        return {key: _known[state] for key, state in states.items()}

    def arrays(self, key: str, decode: Callable[[], Arrays]) -> Arrays:
        """What is stored under `key`, else what `decode` returns, stored for the next time."""
        if self.folder is None:
            return decode()
        path = self.folder / f"{key}.npz"
        stored = self._stored_arrays(path)
        if stored is not None:
            return stored
        arrays = decode()
        self._store(path, lambda stream: np.savez(stream, allow_pickle=False, **arrays))
        return arrays

    def _stored_arrays(self, path: Path) -> Arrays | None:
        """The arrays in a file, or None. Reading an npz compares each array with its checksum (CRC-32)."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            return None
        except Exception:  # whatever a damaged file makes zipfile and numpy raise
            self.say(f"{self.name}: {path} is damaged; it's made again")
            with suppress(OSError):
                path.unlink()
            return None

    def _stored_checksums(self) -> dict[tuple[str, str], str]:
        if self.folder is None:
            return {}
        try:
            entries = json.loads((self.folder / _CHECKSUMS).read_text(encoding="utf-8"))
            return {(str(path), str(state)): str(md5) for path, state, md5 in entries}
        except (OSError, ValueError, TypeError):
            return {}

    def _store_checksums(self, new: dict[tuple[str, str], str]) -> None:
        if self.folder is None:
            return
        paths = {path for path, _ in new}
        kept = {key: md5 for key, md5 in self._stored_checksums().items() if key[0] not in paths}
        entries = [[path, state, md5] for (path, state), md5 in sorted((kept | new).items())]
        text = json.dumps(entries, indent=1)
        self._store(self.folder / _CHECKSUMS, lambda stream: stream.write(text.encode()))

    def _store(self, path: Path, write: Callable[..., object]) -> None:
        try:
            write_atomically(path, write)
        except OSError as error:
            self.say(f"{self.name}: {path} can't be written ({error.strerror}); going on without")


def _state(path: Path, reader: Reader) -> str:
    """Changes when a file is added, removed, renamed, resized or written again."""
    with decoding(path):
        states = sorted((part.name, (stat := part.stat()).st_size, stat.st_mtime_ns) for part in reader.parts(path))
    return hashlib.md5(repr(states).encode(), usedforsecurity=False).hexdigest()

"""The cache of md5s beside the data, in `<root>/.capsexp/checksums.json`.

It can be deleted at any time. Where the folder can't be written, everything works without it, more slowly.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from capsexp import Log
from capsexp.data.reader import Reader, decoding
from capsexp.files import write_file

_CHECKSUMS = "checksums.json"
#: (path, state of its files) → md5, known to this process.
_known: dict[tuple[str, str], str] = {}


def checksums(
    files: Mapping[str, Path], reader: Reader, folder: Path | None, log: Log, read: bool = False
) -> dict[str, str]:
    """Key → md5. A file is read only if `read`, or if its size or modification time isn't the cached one.

    Both stay as they are when a disk loses bits, or `cp -p` replaces a file.

    Args:
        folder: of the cache's files; None: nothing is cached on disk.
        log: is called with a line for each step that takes time, and for each failure.
    """
    states = {key: (str(path.absolute()), _state(path, reader)) for key, path in files.items()}
    if folder and any(state not in _known for state in states.values()):
        _known.update(_stored(folder / _CHECKSUMS, log))
    unknown = [key for key, state in states.items() if state not in _known]
    if unknown and folder:
        log(f"checking {files[unknown[0]].parent.absolute()} …")
    before = dict(_known)
    for key in files if read else unknown:
        with decoding(files[key]):
            _known[states[key]] = reader.digest(files[key])
    new = {state: _known[state] for state in states.values() if _known[state] != before.get(state)}
    if new and folder:
        _store(new, folder / _CHECKSUMS, log)
    return {key: _known[state] for key, state in states.items()}


def _stored(path: Path, log: Log) -> dict[tuple[str, str], str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content["entries"]
        if content["digest"] != digest(entries):  # a flipped bit in an md5 would make good files unknown
            raise ValueError
        return {(str(path), str(state)): str(md5) for path, state, md5 in entries}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        log(f"{path} is damaged or of another version; it's made again")
        return {}


def _store(new: dict[tuple[str, str], str], path: Path, log: Log) -> None:
    paths = {path for path, _ in new}
    kept = {key: md5 for key, md5 in _stored(path, log).items() if key[0] not in paths}
    entries = [[path, state, md5] for (path, state), md5 in sorted((kept | new).items())]
    try:
        write_file(path, json.dumps({"digest": digest(entries), "entries": entries}, indent=1))
    except OSError as error:
        log(f"{path} can't be written ({error.strerror}); going on without")


def digest(entries: object) -> str:
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _state(path: Path, reader: Reader) -> str:
    """A hash that changes when a file is added, removed, renamed, resized or written again."""
    with decoding(path):
        stats = {str(part.relative_to(path.parent)): part.stat() for part in reader.parts(path)}
        states = sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items())
    return hashlib.md5(repr(states).encode(), usedforsecurity=False).hexdigest()

"""A data set, from its configuration to uint8 tensors.

Find the files (or download them), compare their md5s with the accepted versions, decode, bring to size and
channels, remember the result. `data.reader` names the class that knows the format: see capsexp.data.reader.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capsexp.config.checks import NAME, TARGET, import_target
from capsexp.config.schema import Data
from capsexp.data.cache import Arrays, Cache, Say
from capsexp.data.download import fetch
from capsexp.data.pixels import fit
from capsexp.data.reader import Reader, SourceFile
from capsexp.data.versions import match
from capsexp.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_FORMAT = 1  # of the decoded images; raised when the same files decode to something else than before


@dataclass(frozen=True)
class Identity:
    """What the files are: null `note` for the published pixels and labels, and a digest of all their md5s."""

    note: str | None
    checksum: str


@dataclass(frozen=True)
class ImageSet:
    """Images uint8 [N, C, H, W], labels int64 [N]; `note` and `checksum` as in Identity."""

    train_images: "Tensor"
    train_labels: "Tensor"
    test_images: "Tensor"
    test_labels: "Tensor"
    note: str | None
    checksum: str


def identify(data: Data, say: Say = print) -> Identity:
    """What `load` would load. Files that haven't changed since they were last checked are not read again."""
    return _Source(data, say).identity


def load(data: Data, say: Say = print) -> ImageSet:
    """The whole data set; `say` gets a short line for whatever takes time.

    Raises InputError: files missing, damaged or of no accepted version; a size or channels that they can't have.
    """
    import torch  # here, since `identify` goes without

    source = _Source(data, say)
    tensors = {name: torch.from_numpy(array) for name, array in source.arrays().items()}
    return ImageSet(**tensors, note=source.identity.note, checksum=source.identity.checksum)


class _Source:
    """The accepted files of one data set."""

    def __init__(self, data: Data, say: Say) -> None:
        self.data, self.say = data, say
        self.size = data.size if data.synthesis is None else None  # a synthesis takes images as large as they come
        self.reader = _reader(data)
        root = Path(data.root).expanduser().absolute()
        paths = _located(data, self.reader, root, say)
        self.cache = Cache(None if self.reader.packaged else root / ".capsexp", data.name, say)
        md5s = self.cache.checksums(paths, self.reader)
        version = match(data, paths, md5s)
        self.files = {key: SourceFile(paths[key], md5s[key]) for key in self.reader.keys}
        self.identity = Identity(version.note, _digest(sorted(md5s.items())))

    def arrays(self) -> Arrays:
        data = self.data
        options = {key: value for key, value in data.reader.items() if key != NAME}
        facts = [_FORMAT, self.identity.checksum, sorted(options.items()), self.size, data.channels, data.classes]
        name = re.sub(r"[^\w-]", "_", data.name)
        return self.cache.arrays(f"{name}-{_digest(facts)[:16]}", self._decode)

    def _decode(self) -> Arrays:
        data = self.data
        if not self.reader.packaged:
            self.say(f"{data.name}: decoding …")
        splits = zip(("train", "test"), self.reader.read(self.files, data.classes), strict=True)
        arrays: Arrays = {}
        for name, split in splits:
            arrays[f"{name}_images"] = fit(split.images, self.size, data.channels, data.name)
            arrays[f"{name}_labels"] = split.labels
        return arrays


def _reader(data: Data) -> Reader:
    options = {key: value for key, value in data.reader.items() if key not in (NAME, TARGET)}
    reader = import_target(data.reader, "data.reader")(**options)
    if not isinstance(reader, Reader):
        raise InputError(f"data.reader.{TARGET}={data.reader[TARGET]}: must be a capsexp.data.reader.Reader")
    return reader


def _located(data: Data, reader: Reader, root: Path, say: Say) -> dict[str, Path]:
    """Where each of the reader's files is; missing ones are downloaded where that's allowed."""
    found = reader.locate(root)
    if found.keys() == set(reader.keys):
        return found
    reason = "data.download is false"
    if data.download:
        say(f"{data.name}: downloading into {root} …")
        try:
            fetch(reader, root)
            return reader.locate(root)
        except InputError as error:
            reason = str(error)
    raise InputError(f"{data.name}: {_missing(reader, found, root)}; {reason}")


def _missing(reader: Reader, found: Mapping[str, Path], root: Path) -> str:
    suffix = f" (or {reader.packed_suffix})" if reader.packed_suffix else ""
    names = ", ".join(key + suffix for key in reader.keys if key not in found)
    folder = next(iter(found.values())).parent if found else root / reader.places[0]
    return f"put {names} into {folder} (data.root or CAPSEXP_DATA names the data folder, here {root})"


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

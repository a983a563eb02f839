"""What a reader is: it knows a family of data sets' files, where they lie, and how they become arrays.

A reader is a class. Its keyword-only constructor parameters are its options, set under `data.reader` in the data
set's YAML. Everything else (versions, checksums, download, size, channels, cache) is the same for all of them: see
capsexp.data.source. A new data set is one YAML, and one such class where none of the existing ones serves.

A reader's module imports torchvision only where it reads or downloads: to identify a data set, for a run that turns
out to be finished, must cost next to nothing.
"""

import gzip
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from capsexp.errors import InputError, one_line

_CHUNK = 1 << 20


class Images(NamedTuple):
    """A split: images uint8 [N, H, W] or [N, H, W, 3], labels int64 [N]."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class SourceFile:
    """A file as it was found, and the md5 of its contents."""

    path: Path
    md5: str


class Reader(ABC):
    """Base of all readers; a subclass gives `keys` and `places`, and writes `read` and `download`."""

    #: The files' names, as the versions of the data set list them.
    keys: tuple[str, ...]
    #: The folders, below the data folder, in which the files may lie; downloads go to the first.
    places: tuple[str, ...]
    #: A file may lie there packed instead, with this suffix; its md5 is that of what is inside.
    packed_suffix: str = ""
    #: The files come with the program: no folder to look in, nothing to download or to keep decoded.
    packaged: bool = False

    @abstractmethod
    def read(self, files: Mapping[str, SourceFile], classes: int) -> tuple[Images, Images]:
        """The training and the test split; raises InputError that names the file at fault."""

    @abstractmethod
    def download(self, root: Path) -> None:
        """Fetches the files into the first of `places` below `root`, or raises what the network raises."""

    def locate(self, root: Path) -> dict[str, Path]:
        """The files that are there: in the first place that has all of them, else in the one that has most."""
        found = [self._find(root / place) for place in self.places]
        return max(found, key=len)  # the first of the longest

    def parts(self, path: Path) -> list[Path]:
        """The files on disk that make up `path`: itself, unless it is a folder."""
        return [path]

    def digest(self, path: Path) -> str:
        """The md5 of the contents, unpacked where they are packed."""
        md5 = hashlib.md5(usedforsecurity=False)
        with open_plain(path) as stream:
            while chunk := stream.read(_CHUNK):
                md5.update(chunk)
        return md5.hexdigest()

    def _find(self, folder: Path) -> dict[str, Path]:
        packed = {key: folder / (key + self.packed_suffix) for key in self.keys}
        plain = {key: folder / key for key in self.keys}
        return {key: path for key, path in [*packed.items(), *plain.items()] if os.path.exists(path)}  # plain ones win


def open_plain(path: Path) -> BinaryIO:
    """Opens a file for reading; a gzipped one gives what is inside."""
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turns whatever a decoder raises into one line that names the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path}: can't be read, truncated or damaged: {one_line(error)}") from error


def labelled(images: NDArray[Any], labels: NDArray[Any], classes: int, path: Path) -> Images:
    """A checked split, or a part of one; raises InputError that names `path`."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise InputError(f"{path}: holds {images.dtype} {list(images.shape)}, not grey or colour uint8 images")
    if labels.ndim != 1 or len(labels) != len(images) or len(images) == 0:
        raise InputError(f"{path}: {len(images)} images, but labels of shape {list(labels.shape)}")
    if labels.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are {labels.dtype}, not whole numbers")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise InputError(f"{path}: label {wrong} is outside 0..{classes - 1} (data.classes={classes})")
    return Images(images, labels.astype(np.int64))

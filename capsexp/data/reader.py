"""The base class of readers: from the files of a family of data sets to arrays; capsexp.data.source does the rest.

A reader's keyword-only constructor parameters are its options, set under `data.reader` in the data set's YAML. A new
data set is one YAML, and a reader where none of the existing ones can read its files.

A reader's module imports torchvision only where it reads or downloads: a finished run identifies its data set, too,
and that must be fast.
"""

import gzip
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsexp.config.schema import Data
from capsexp.errors import CapsexpError, InputError, RunError, first_line

RENEW = "; delete it and download it again"

Integers = NDArray[np.int64]

_AVERAGED_AT_ONCE = 512  # images; limits the memory for sums


class Images(NamedTuple):
    """A split, or a part of one: images uint8 [N, H, W] or [N, H, W, 3], labels int64 [N]."""

    images: NDArray[np.uint8]
    labels: Integers


class Reader(ABC):
    """Base of all readers; a subclass has `keys`, `places`, `read`, and perhaps `torchvision_class` or `download`."""

    #: The files' names, as listed by the versions of the data set.
    keys: tuple[str, ...]
    #: The folders, below the data folder, that may contain the files; downloads go to the first.
    places: tuple[str, ...]
    #: A file may be packed instead, with this suffix; its md5 is that of the unpacked contents.
    packed_suffix: str = ""
    #: What helps against damaged files; nothing where they are the user's own.
    remedy: str = RENEW
    #: The class of torchvision.datasets that downloads the files.
    torchvision_class: str = ""

    @abstractmethod
    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        """The training, the test and perhaps a validation split; raises InputError that names the damaged file."""

    def download(self, root: Path) -> None:
        """Downloads the files into the first of `places` below `root`; raises the network's errors."""
        if not self.torchvision_class:
            raise RuntimeError("the reader knows no address")
        import torchvision.datasets

        getattr(torchvision.datasets, self.torchvision_class)(root, download=True)

    def root(self, data: Data) -> Path:
        """The folder below which the files are."""
        return Path(data.root).expanduser().absolute()

    def locate(self, root: Path) -> dict[str, Path]:
        """The existing files by key, from the first place that has all of them, else from the one that has most."""
        found = [
            {
                key: path
                for key in self.keys
                for suffix in (self.packed_suffix, "")  # a plain file wins
                if os.path.isfile(path := root / place / (key + suffix)) or os.path.isdir(path)
            }
            for place in self.places
        ]
        return max(found, key=len)  # the first of the longest

    def digest(self, path: Path) -> str:
        """The md5 of the unpacked contents."""
        with unpacked(path) as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def part_of_each(labels: Integers, order: Integers, count: int, groups: Integers | None = None) -> Integers:
    """The first `count` indices in `order`, but as many of each class as its part of all, and never all of a class.

    At least one of each class that has two: with more such classes than `count`, more indices. [N], [N] -> ascending.
    With `groups`, [N], about as many: all of a group or none.
    """
    if groups is not None:
        return _whole_groups(labels, order, count, groups)
    first = in_proportion(labels, order)
    _, last = np.unique(labels[first[::-1]], return_index=True)  # of each class, counted from the end
    first = np.delete(first, len(first) - 1 - last)
    return np.sort(first[: max(count, len(np.unique(labels[first])))])


def _whole_groups(labels: Integers, order: Integers, count: int, groups: Integers) -> Integers:
    """The indices of groups in `order` of which no class gets more than its part; then of the smallest for the rest."""
    sizes = np.zeros((max(groups, default=-1) + 1, max(labels, default=-1) + 1), np.int64)  # images by group and class
    np.add.at(sizes, (groups, labels), 1)
    of_class, taken, chosen = sizes.sum(axis=0), np.zeros(sizes.shape[1], np.int64), set[int]()
    most = np.maximum(1, np.round(of_class * count / max(1, len(labels))))
    drawn = list(dict.fromkeys(groups[order].tolist()))
    for rest in (False, True):
        for group in sorted(drawn, key=lambda group: rest * int(sizes[group].sum())):
            more, own = taken + sizes[group], sizes[group] > 0
            needed = (taken == 0)[own].any() if rest else (more <= most)[own].all()
            if group not in chosen and needed and (more < of_class)[own].all():
                chosen.add(group)
                taken = more
    return np.flatnonzero(np.isin(groups, list(chosen)))


def in_proportion(labels: Integers, order: Integers) -> Integers:
    """`order`, changed so that it begins with one of each class and goes on with the classes in proportion."""
    _, classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    ranks = np.empty(len(order))  # within the class
    ranks[np.argsort(classes, kind="stable")] = np.concatenate([np.arange(count) for count in [*counts, 0]])
    places = np.where(ranks == 0, 0, (ranks + 0.5) / counts[classes])
    return order[np.argsort(places, kind="stable")]


def unpacked(path: Path) -> gzip.GzipFile | BufferedReader:
    """A file, open, that is read decompressed if it is gzipped."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def host_memory() -> int:
    """This machine's memory in bytes, or what this process's control group may use of it."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such group; "max"
            limits.append(int(Path("/sys/fs/cgroup", file).read_text()))
    return min(limits)


@contextmanager
def decoding(path: Path, remedy: str = RENEW, what: str = "can't be read, truncated or damaged") -> Iterator[None]:
    """A context that turns any exception of a decoder into an InputError of one line with file's name and remedy."""
    try:
        yield
    except (CapsexpError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:  # of the system, not of a decoder
            raise unreadable(path, error) from error
        raise InputError(f"{path}: {what}: {first_line(error)}{remedy}") from error


def unreadable(path: Path, error: OSError) -> CapsexpError:
    """The error for a file that the system doesn't give: the user's where it is the wrong file, else the machine's."""
    wrong = isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError)
    return (InputError if wrong else RunError)(f"{error.filename or path}: can't be read ({error.strerror})")


def labelled(images: NDArray[Any], labels: NDArray[Any], classes: int, path: Path) -> Images:
    """The checked images and labels; raises InputError with `path` for wrong types, shapes or labels."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise InputError(f"{path}: holds {images.dtype} {list(images.shape)}, not grey or colour uint8 images")
    if labels.ndim != 1 or len(labels) != len(images) or len(images) == 0:
        raise InputError(f"{path}: {len(images)} images, but labels of shape {list(labels.shape)}")
    if labels.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are {labels.dtype}, not whole numbers")
    if len(wrong := labels[(labels < 0) | (labels >= classes)]):
        raise InputError(f"{path}: label {wrong[0]} is outside 0..{classes - 1} (data.classes={classes})")
    return Images(images, labels.astype(np.int64))


def fit(images: NDArray[np.uint8], size: int | None, channels: int, name: str) -> NDArray[np.uint8]:
    """The images in the configured size and channels: [N, H, H] or [N, H, H, 3] → [N, channels, size, size].

    Larger images are averaged down; a size of None keeps H. Grey images are repeated to three channels.

    Raises InputError for larger sizes, for images that aren't square, and for colour images with one channel.
    """
    grey = images.ndim == 3
    if channels == 1 and not grey:
        raise InputError(f"data.channels=1: must be 3, since the images of {name} are in colour")
    side = images.shape[1]
    size = side if size is None else size
    if images.shape[2] != side:
        raise InputError(f"{name}: images must be square; they are {side}×{images.shape[2]}")
    if size > side:
        raise InputError(f"data.size={size}: must be at most {side}; images of {name} are {side}×{side}")
    planes = images[:, None] if grey else images.transpose(0, 3, 1, 2)
    planes = planes if size == side else _averaged(planes, size)
    return np.array(np.broadcast_to(planes, (len(planes), channels, size, size)), order="C")


def _averaged(planes: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """[N, C, H, H] → [N, C, size, size]; each new pixel is the mean over the area that it covers, rounded half up.

    In units of 1/size of an old pixel, an old pixel is `size` and a new one H long, so that the weights, what a new
    pixel covers of an old one, are integers with sum H², and everything but the rounding is exact.
    """
    side = planes.shape[2]
    old, new = np.arange(side), np.arange(size)[:, None]
    covered = np.minimum((new + 1) * side, (old + 1) * size) - np.maximum(new * side, old * size)  # [size, H]
    weights = covered.clip(0).astype(np.float64)  # in which no sum is rounded
    averaged = np.empty((*planes.shape[:2], size, size), np.uint8)
    for start in range(0, len(planes), _AVERAGED_AT_ONCE):
        sums = weights @ (planes[start : start + _AVERAGED_AT_ONCE] @ weights.T)
        averaged[start : start + _AVERAGED_AT_ONCE] = (2 * sums.astype(np.int64) + side**2) // (2 * side**2)
    return averaged

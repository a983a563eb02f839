"""Anybody's images, `data=folder data.path=PATH`: class folders as torchvision's ImageFolder has them, a table, arrays.

    PATH/CLASS/…                                  a part of each class is drawn at random for the test
    PATH/train/CLASS/…, PATH/test/CLASS/…         split; PATH/val/CLASS/… are the held-out images of protocol=heldout
    PATH/…, data.labels=TABLE                     a CSV file with a line a picture: file, class, perhaps split and group
    PATH/…, data.labels=PATTERN                   a regular expression, whose brackets match the class in a file's name
    PATH.npz                                      arrays `images`, uint8 [N, H, W] or [N, H, W, 3], and `labels` [N],
                                                  whole numbers or texts; where split, `test_images`, `test_labels`,
                                                  and `val_images`, `val_labels`
    PATH/train-images-idx3-ubyte, …               MNIST's files, and those of sets in its format: data=idx

The splits may have other usual names, such as Training and validation; without test/, val/ is for the test. One folder
around everything is entered. Classes are in the order of their names, images in that of their files; see
`capsexp.data.pictures` for how these become pixels. Pictures of one `data.group` (a column of the table, or a pattern)
are in one split.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray

from capsexp import Seed
from capsexp.config.checks import check_value
from capsexp.config.schema import Data
from capsexp.data.listing import Source, array_files, arrays, complete, flat, listing, place
from capsexp.data.pictures import Background, Conversion, Picture, Shape, converted, is_colour, listed
from capsexp.data.reader import Images, Reader, host_memory, part_of_each
from capsexp.errors import InputError, printable

_KEY = "images"


@dataclass(kw_only=True)
class Folder(Reader):
    """Reads the images at `data.path`. The md5 is that of classes and contents, whatever the files' names."""

    keys = (_KEY,)
    remedy = ""

    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    split_seed: Seed = 0
    background: Background = "white"
    shape: Shape = "stretch"
    sixteen_bits: bool = False
    float_range: list[float] | None = None
    max_pixels: Annotated[int, Ge(1)] = Conversion.max_pixels
    invert: bool = False
    skip_damaged: bool = False

    def completed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration `data`, with the classes, channels and numbers of images of `data.path`.

        `class_names` may have more classes than there are images of: those of a network that is evaluated. Raises
        InputError for other differences.
        """
        source = source_of(data)
        path, (found, labels, groups) = source.path, _found(source)
        names = data.get("class_names") or list(found)
        if unknown := set(found) - set(names):
            raise InputError(f"{path}: has class {min(unknown)}, which is none of {', '.join(names)}")
        if not data.get("class_names") and len(names) < 2:
            raise InputError(f"{path}: must have images of two classes at least; {flat()}")
        if (typed := data.get("classes") or len(names)) != len(names):
            raise InputError(f"data.classes={typed}: {path} has {len(names)}")
        test = len(labels["test"]) or len(self._drawn(labels["train"], groups))
        if not test and not data.get("class_names"):
            what = "groups" if source.group else "images"
            raise InputError(f"{path}: must have a class with two {what} at least, one to train and one to test")
        train = sum(map(len, labels.values())) - test
        counts = [train, test] if train and test else None  # images to evaluate
        channels = data.get("channels") or _channels(source)
        title = data.get("title") or (path.parent if path.name == "raw" else path).name
        found_in = {"classes": len(names), "class_names": names, "channels": channels, "images": counts}
        return {**data, **found_in, "title": printable(title)}

    def root(self, data: Data) -> Path:
        self.source = source_of(vars(data))
        return self.source.path

    def locate(self, root: Path) -> dict[str, Path]:
        return {_KEY: root}

    def check_training(self, names: Sequence[str]) -> None:
        """Raises InputError for options without effect, and for typed classes in another order than they are found.

        A network that is evaluated has them from its training.
        """
        path, found = self.source.path, list(_found(self.source)[0])
        if sorted(names) == sorted(found) and list(names) != found:
            raise InputError(f"data.class_names={names}: {path} has {found}")
        own = self.test_fraction, self.split_seed
        if has_test(self.source) and own != (Folder().test_fraction, Folder().split_seed):
            raise InputError(f"data.reader: test_fraction and split_seed draw test images, but {path} has its own")

    def note(self) -> str:
        """What the images are, for records and tables."""
        if has_test(self.source):
            return "own images"
        part = f"{100 * self.test_fraction:.3g} % of each class"
        kept = f", {printable(self.source.group)} kept together" if self.source.group else ""
        return f"own images, {part} drawn for the test with seed {self.split_seed}{kept}"

    def parts(self, path: Path) -> list[Path]:
        return array_files(path) or [one.picture for split in listing(self.source).splits.values() for one in split]

    def digest(self, path: Path) -> str:
        md5, splits = hashlib.md5(usedforsecurity=False), listing(self.source).splits
        for file in array_files(path):
            with file.open("rb") as stream:
                hashlib.file_digest(stream, lambda: md5)
        for number, role in enumerate(() if array_files(path) else ("train", "test", "val")):
            for name, file, group in splits[role]:
                contents = file.read_bytes()
                of_group = os.fsencode(f"{group}/" if group else "")  # by which the split is drawn
                md5.update(f"{number} {len(contents)} ".encode() + of_group + os.fsencode(name) + b"\0" + contents)
        return md5.hexdigest()

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        """The images in the configured size, [N, size, size] or [N, size, size, 3]: training, test, validation."""
        path, found = files[_KEY], listing(self.source)
        _check_memory([one.picture for split in found.splits.values() for one in split], data)
        splits = complete(arrays(path)) if array_files(path) else found.splits
        every = [entry for split in splits.values() for entry in split]
        pixels, problems = converted([entry.picture for entry in every], conversion_of(data))
        if problems and not self.skip_damaged:
            others = [problem for problem in problems.values() if "data.reader." not in problem]
            remedy = "; data.reader.skip_damaged=true leaves them out" if others else ""
            raise InputError(f"{listed(problems.values())}{remedy}")
        self.skipped = [*found.left, *problems.values()]
        numbers = {name: number for number, name in enumerate(data.class_names)}
        labels = np.array([numbers[printable(str(entry.name))] for entry in every], np.int64)
        groups = _numbered([entry.group for entry in every]) if self.source.group else None
        roles = np.repeat(list(splits), [len(split) for split in splits.values()])
        roles[list(problems)] = ""
        if not splits["test"]:
            train = np.flatnonzero(roles == "train")
            roles[train[self._drawn(labels[train], None if groups is None else groups[train])]] = "test"
        self.groups = None if groups is None else groups[roles == "train"]
        return tuple(Images(pixels[roles == role], labels[roles == role]) for role in ("train", "test", "val"))

    def _drawn(self, labels: NDArray[np.int64], groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The indices of the test images among those with these labels."""
        # RandomState's streams never change; default_rng's may change with numpy's version.
        order = np.random.RandomState(self.split_seed).permutation(len(labels))
        return part_of_each(labels, order, round(len(labels) * self.test_fraction), groups)


def source_of(data: Mapping[str, Any]) -> Source:
    """What names the pictures of a configured set; raises InputError for no path."""
    columns = check_value(data.get("columns") or [], list[str], "data.columns")
    labels, group = (check_value(data.get(key), str | None, f"data.{key}") for key in ("labels", "group"))
    return Source(place(data.get("path")), labels, tuple(columns), group)


def conversion_of(data: Data) -> Conversion:
    """How anybody's pictures become those that the network of a data set takes."""
    reader = data.reader.make()
    if not isinstance(reader, Folder):
        return Conversion(data.size, data.channels)
    options = {name: getattr(reader, name) for name in ("background", "shape", "sixteen_bits", "float_range", "invert")}
    return Conversion(data.size, data.channels, **options, max_pixels=reader.max_pixels)


def has_test(source: Source) -> bool:
    """Whether test images are given, and not to be drawn."""
    return bool(listing(source).splits["test"])


@cache  # a study composes a hundred configurations
def _found(source: Source) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]], NDArray[np.int64] | None]:
    """The names of the classes, the labels of each split's images, and the groups of those for training."""
    splits, names, _ = listing(source)
    numbers = {name: number for number, name in enumerate(names)}
    labels = {role: np.array([numbers[one.name] for one in split], np.int64) for role, split in splits.items()}
    groups = _numbered([entry.group for entry in splits["train"]]) if source.group else None
    return tuple(printable(str(name)) for name in names), labels, groups


def _numbered(texts: Sequence[str]) -> NDArray[np.int64]:
    """A number for each text, equal for equal ones."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


@cache
def _channels(source: Source) -> int:
    """3 if an image is in colour, else 1."""
    return 3 if any(is_colour(entry.picture) for split in listing(source).splits.values() for entry in split) else 1


def _check_memory(images: Sequence[Picture], data: Data) -> None:
    """Raises InputError for images that don't fit into memory, before any is decoded."""
    stored = sum(image.nbytes for image in images if isinstance(image, np.ndarray))
    needed = stored + 3 * len(images) * data.channels * data.size**2  # as decoded, as split, in the networks' layout
    if needed > (memory := host_memory()):
        sizes = f"{needed / 1e9:,.1f} GB of memory, and this machine has {memory / 1e9:,.1f}"
        raise InputError(f"data.size={data.size}: {len(images):,} images take {sizes}; smaller ones take less")

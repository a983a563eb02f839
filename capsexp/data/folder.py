"""Anybody's images, `data=folder data.path=PATH`: class folders as torchvision's ImageFolder has them, or an .npz file.

    PATH/CLASS/…                                  a part of each class is drawn at random for the test
    PATH/train/CLASS/…, PATH/test/CLASS/…         split; PATH/val/CLASS/… are the held-out images of protocol=heldout
    PATH.npz                                      arrays `images`, uint8 [N, H, W] or [N, H, W, 3], and `labels` [N],
                                                  whole numbers or texts; where split, `test_images`, `test_labels`,
                                                  and `val_images`, `val_labels`

The splits may have other usual names, such as Training and validation; without test/, val/ is for the test. One folder
around everything is entered. Classes are in the order of their names, images in that of their files; see
`capsexp.data.pictures` for how these become pixels.
"""

import hashlib
import math
import os
import re
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from capsexp import Seed
from capsexp.config.schema import Data
from capsexp.data.pictures import (
    Background,
    Conversion,
    Picture,
    Shape,
    converted,
    files_below,
    is_colour,
    is_visible,
    listed,
)
from capsexp.data.reader import Images, Reader, host_memory, part_of_each
from capsexp.errors import InputError, first_line, printable

_KEY = "images"

#: The usual names of splits, by what they are here.
_ROLES = {
    "train": r"(seg[ _-]?)?tr(ai)?n(ing)?([ _-]?(set|data|images))?",
    "val": r"(seg[ _-]?)?(val(id(ation)?)?|dev(el(opment)?)?)([ _-]?(set|data|images))?",
    "test": r"(seg[ _-]?)?te?st(ing)?([ _-]?(set|data|images))?",
}

ClassImages = Sequence[tuple[Any, Picture]]  # a class, and an image of it
Listed = Mapping[str, ClassImages]  # by role


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
    skip_damaged: bool = False

    def completed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration `data`, with the classes, channels and numbers of images of `data.path`.

        `class_names` may have more classes than there are images of: those of a network that is evaluated. Raises
        InputError for other differences.
        """
        path = place(data["path"])
        found, labels = _found(path)
        names = data.get("class_names") or list(found)
        if names != list(found) and not set(found) < set(names):
            raise InputError(f"data.class_names={names}: {path} has {list(found)}")
        if not data.get("class_names") and len(names) < 2:
            raise InputError(f"{path}: must have images of two classes at least")
        if (typed := data.get("classes") or len(names)) != len(names):
            raise InputError(f"data.classes={typed}: {path} has {len(names)}")
        test = len(labels["test"]) or len(self._drawn(labels["train"]))
        if not test and not data.get("class_names"):
            raise InputError(f"{path}: must have a class with two images at least, one to train and one to test")
        train = sum(map(len, labels.values())) - test
        counts = [train, test] if train and test else None  # images to evaluate
        channels = data.get("channels") or _channels(path)
        return {**data, "classes": len(names), "class_names": names, "channels": channels, "images": counts}

    def note(self, path: Path) -> str:
        """What the images are, for records and tables; raises InputError for options without effect."""
        if not has_test(path):
            part = f"{100 * self.test_fraction:.3g} % of each class"
            return f"own images, {part} drawn for the test with seed {self.split_seed}"
        if (self.test_fraction, self.split_seed) != (Folder().test_fraction, Folder().split_seed):
            raise InputError(f"data.reader: test_fraction and split_seed draw test images, but {path} has its own")
        return "own images"

    def locate(self, root: Path) -> dict[str, Path]:
        return {_KEY: root}

    def parts(self, path: Path) -> list[Path]:
        return [path] if path.is_file() else [file for split in _folders(path).values() for _, file in split]

    def digest(self, path: Path) -> str:
        if path.is_file():
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "md5").hexdigest()
        md5, splits = hashlib.md5(usedforsecurity=False), _folders(path)
        for number, role in enumerate(("train", "test", "val")):
            for name, file in splits[role]:
                contents = file.read_bytes()
                md5.update(f"{number} {len(contents)} ".encode() + os.fsencode(name) + b"\0" + contents)
        return md5.hexdigest()

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        """The images in the configured size, [N, size, size] or [N, size, size, 3]: training, test, validation."""
        path = files[_KEY]
        _check_memory([image for split in _listed(path, pixels=False).values() for _, image in split], data)
        splits = _listed(path)
        every = [pair for split in splits.values() for pair in split]
        pixels, problems = converted([image for _, image in every], conversion_of(data))
        if problems and not self.skip_damaged:
            raise InputError(f"{listed(problems.values())}; data.reader.skip_damaged=true leaves them out")
        self.skipped = list(problems.values())
        numbers = {name: number for number, name in enumerate(data.class_names)}
        labels = np.array([numbers[printable(str(name))] for name, _ in every], np.int64)
        roles = np.repeat(list(splits), [len(split) for split in splits.values()])
        roles[list(problems)] = ""
        if not splits["test"]:
            train = np.flatnonzero(roles == "train")
            roles[train[self._drawn(labels[train])]] = "test"
        return tuple(Images(pixels[roles == role], labels[roles == role]) for role in ("train", "test", "val"))

    def _drawn(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices of the test images among those with these labels."""
        # RandomState's streams never change; default_rng's may change with numpy's version.
        order = np.random.RandomState(self.split_seed).permutation(len(labels))
        return part_of_each(labels, order, round(len(labels) * self.test_fraction))


def place(typed: str | None) -> Path:
    """The absolute path that `data.path` names; raises InputError for none."""
    path = Path(typed or "").expanduser().absolute()
    if not typed or not (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        given = "data.path: missing;" if not typed else f"data.path={typed}:" + " isn't there;" * (not path.exists())
        raise InputError(f"{given} must be a folder with a folder for each class, or an .npz file")
    return path


def conversion_of(data: Data) -> Conversion:
    """How anybody's pictures become those that the network of a data set takes."""
    reader = data.reader.make()
    own = reader if isinstance(reader, Folder) else Folder()
    return Conversion(data.size, data.channels, own.background, own.shape, own.sixteen_bits)


def has_test(path: Path) -> bool:
    """Whether test images are given, and not to be drawn."""
    return bool(_listed(path, pixels=False)["test"])


@cache  # a study composes a hundred configurations
def _found(path: Path) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """The names of the classes, and the labels of each split's images."""
    splits = _listed(path, pixels=False)
    names = sorted({name for split in splits.values() for name, _ in split})
    numbers = {name: number for number, name in enumerate(names)}
    labels = {role: np.array([numbers[name] for name, _ in split], np.int64) for role, split in splits.items()}
    return tuple(printable(str(name)) for name in names), labels


@cache
def _channels(path: Path) -> int:
    """3 if an image is in colour, else 1."""
    return 3 if any(is_colour(image) for split in _listed(path, pixels=False).values() for _, image in split) else 1


def _check_memory(images: Sequence[Picture], data: Data) -> None:
    """Raises InputError for images that don't fit into memory, before any is decoded."""
    stored = sum(image.nbytes for image in images if isinstance(image, np.ndarray))
    needed = stored + 3 * len(images) * data.channels * data.size**2  # as decoded, as split, in the networks' layout
    if needed > (memory := host_memory()):
        sizes = f"{needed / 1e9:,.1f} GB of memory, and this machine has {memory / 1e9:,.1f}"
        raise InputError(f"data.size={data.size}: {len(images):,} images take {sizes}; smaller ones take less")


def _listed(path: Path, pixels: bool = True) -> Listed:
    """The images of each split; no test images where they are to be drawn.

    Without `pixels`, black images stand in place of those of an array, which are not read.
    """
    splits: Listed = _arrays(path, pixels) if path.is_file() else _folders(path)
    if not splits["test"]:
        splits = {**splits, "test": splits["val"], "val": []}
    for role, what in {"test": "test", "val": "validation"}.items():
        unknown = {name for name, _ in splits[role]}.difference(name for name, _ in splits["train"])
        if unknown and splits["train"]:
            raise InputError(f"{path}: class {min(unknown)} has {what} images, but no training images")
    return splits


def _folders(path: Path) -> dict[str, list[tuple[str, Path]]]:
    """As in `_listed`, of class folders, or of folders of them."""
    found = _subfolders(path)
    roles = {name: role for name in found for role, names in _ROLES.items() if re.fullmatch(names, name, re.IGNORECASE)}
    if not found:
        raise InputError(f"{path}: has no folders; must have one for each class")
    inside = {name: _subfolders(path / name) for name in found}
    if len(found) == 1 and not roles and inside[found[0]]:
        return _folders(path / found[0])
    if len(roles) == len(found) or len(set(roles.values())) > 1:
        if not len(set(roles.values())) == len(roles) == len(found):
            raise InputError(f"{path}: has {', '.join(found)}; must have train, test and val, each at most once")
        splits = {role: _in_classes(path / name) for name, role in roles.items()}
        return {role: splits.get(role, []) for role in _ROLES}
    first, *others = inside.values()
    files = (each for name in found for each in (path / name).iterdir() if not each.is_dir() and is_visible(each.name))
    if len(first) > 1 and all(other == first for other in others) and not any(files):
        raise InputError(
            f"{path}: {' and '.join(found)} have the same folders ({', '.join(first)}): splits must be named train, "
            "test and val, and a class must have pictures of its own"
        )
    return {"train": _in_classes(path), "val": [], "test": []}


def _in_classes(folder: Path) -> list[tuple[str, Path]]:
    """The files in the class folders of a folder, or of the one folder in it; raises InputError where there are none.

    A name that is written in two ways in Unicode is one class.
    """
    found: list[tuple[str, Path]] = []
    names = _subfolders(folder)
    if len(names) == 1 and _subfolders(folder / names[0]):
        return _in_classes(folder / names[0])
    for name in names:
        files = list(files_below(folder / name))
        if not files:
            raise InputError(f"{folder / name}: a class without images")
        found += [(unicodedata.normalize("NFC", name), file) for file in files]
    if not found:
        raise InputError(f"{folder}: has no class folders")
    return sorted(found, key=lambda pair: pair[0])


def _subfolders(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir() and is_visible(each.name))


def _arrays(path: Path, pixels: bool) -> Listed:
    """As in `_listed`, of an .npz file; raises InputError for damaged ones, and for other arrays."""
    splits: dict[str, ClassImages] = {role: [] for role in _ROLES}
    try:
        with np.load(path, allow_pickle=False) as arrays, zipfile.ZipFile(path) as archive:
            for role, prefix in {"train": "", "val": "val_", "test": "test_"}.items():
                names = [f"{prefix}images", f"{prefix}labels"]
                if role == "train" or names[0] in arrays:
                    splits[role] = _split(arrays, archive, names, pixels)
    except MemoryError:
        raise InputError(f"{path}: its arrays don't fit into memory") from None
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        raise InputError(f"{path}: can't be used: {first_line(error)}") from None
    return splits


def _split(arrays: Any, archive: zipfile.ZipFile, names: Sequence[str], pixels: bool) -> ClassImages:
    """The labels and images of two arrays; raises ValueError for others than `Folder` takes."""
    if missing := [name for name in names if name not in arrays]:
        raise ValueError(f"has {', '.join(arrays.files)}, not {' and '.join(missing)}; must have images and labels")
    (shape, kind), (labelled, label) = (_header(archive, f"{name}.npy") for name in names)
    if kind != np.uint8 or not (len(shape) == 3 or shape[3:] in ((1,), (3,))) or 0 in shape:
        raise ValueError(f"{names[0]} must be uint8 [N, H, W] or [N, H, W, 3]; they are {kind} {list(shape)}")
    if labelled[:1] != shape[:1]:
        raise ValueError(f"{names[1]}: {math.prod(labelled[:1]):,}, but {shape[0]:,} {names[0]}")
    if label.kind not in "iuU" or len(labelled) != 1:
        known = "; labels.astype(str) makes texts" if label.kind == "O" else ""
        raise ValueError(f"{names[1]} must be [N] whole numbers or texts; they are {label} {list(labelled)}{known}")
    images = arrays[names[0]] if pixels else np.broadcast_to(np.zeros((), kind), shape)
    return list(zip(arrays[names[1]].tolist(), images[..., 0] if shape[3:] == (1,) else images, strict=True))


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of a stored array; raises ValueError where it would need more bytes than there are."""
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
        stored = archive.getinfo(name).file_size - stream.tell()
    if not kind.hasobject and kind.itemsize * math.prod(shape) != stored:
        raise ValueError(f"{name}: says {kind} {list(shape)}, and has {stored:,} bytes")
    return shape, kind

"""Anybody's images, `data=folder data.path=PATH`: class folders as torchvision's ImageFolder has them, or an .npz file.

    PATH/CLASS/…                                  split at random into training and test images
    PATH/train/CLASS/…, PATH/test/CLASS/…         split; images in PATH/val/CLASS/… are training images, too
    PATH.npz                                      arrays `images`, uint8 [N, H, W] or [N, H, W, 3], and `labels` [N],
                                                  whole numbers or texts; where split, `test_images` and `test_labels`

Images are grey or in colour, and of any size: each is resized once to `data.size`, and stretched where it isn't square.
Pixels are means over areas; of an image smaller than that they are interpolated linearly. Classes are in the order of
their names, images in that of their files.
"""

import hashlib
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capsexp.config.schema import Data
from capsexp.data.reader import Images, SplittingReader, host_memory
from capsexp.errors import InputError, first_line, plural, printable

_KEY = "images"
_GREY = ("1", "L", "LA")  # Pillow's modes
_NAMED = 5  # files in an error message

Picture = Path | NDArray[np.uint8]  # a file; or pixels [H, W] or [H, W, 3]
Files = list[tuple[str, Path]]  # a class, and an image of it
Split = Sequence[tuple[Any, Picture]]


class Folder(SplittingReader):
    """Reads the images at `data.path`. The md5 is that of classes and contents, whatever the files' names."""

    keys = (_KEY,)

    @staticmethod
    def completed(data: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration `data`, with the classes and channels of `data.path`; raises InputError for other ones."""
        names, channels = _found(place(data["path"]))
        found = {"classes": len(names), "class_names": list(names), "channels": channels}
        for key, value in found.items():
            typed = data.get(key) or value
            if typed != value and (key, typed) != ("channels", 3):  # to which grey images are repeated
                raise InputError(f"data.{key}={typed}: {data['path']} has {value}")
        return {**data, **found, "channels": data.get("channels") or channels}

    def note(self, path: Path) -> str:
        """What the images are, for records and tables; raises InputError for options without effect."""
        if not _listed(path, pixels=False)[1]:
            return f"own images, {100 * self.test_fraction:.3g} % drawn for the test with seed {self.split_seed}"
        if vars(self) != vars(Folder()):
            raise InputError(f"data.reader: test_fraction and split_seed draw test images, but {path} has its own")
        return "own images"

    def locate(self, root: Path) -> dict[str, Path]:
        return {_KEY: root}

    def parts(self, path: Path) -> list[Path]:
        return [path] if path.is_file() else [file for split in _folders(path) for _, file in split]

    def digest(self, path: Path) -> str:
        if path.is_file():
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "md5").hexdigest()
        md5 = hashlib.md5(usedforsecurity=False)
        for number, split in enumerate(_folders(path)):
            for name, file in split:
                contents = file.read_bytes()
                md5.update(f"{number} {len(contents)} ".encode() + os.fsencode(name) + b"\0" + contents)
        return md5.hexdigest()

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        """The images in the configured size, [N, size, size] or [N, size, size, 3]."""
        path = files[_KEY]
        _check_memory([image for split in _listed(path, pixels=False) for _, image in split], data)
        train, test = _listed(path)
        labels = {name: label for label, name in enumerate(_classes(train))}
        if not test:
            train, test = ([train[index] for index in part] for part in self.split(len(train), path))
        every, count = [*train, *test], len(train)
        pixels = pictures([image for _, image in every], data.size, data.channels, strict=True)
        numbers = np.array([labels[name] for name, _ in every], np.int64)
        return Images(pixels[:count], numbers[:count]), Images(pixels[count:], numbers[count:])


def place(typed: str | None) -> Path:
    """The absolute path that `data.path` names; raises InputError for none."""
    path = Path(typed or "").expanduser().absolute()
    if not typed or not (path.is_dir() or (path.suffix == ".npz" and path.is_file())):
        given = f"data.path={typed}: isn't there" if typed else "data.path: missing"
        raise InputError(f"{given}; must be a folder with a folder for each class, or an .npz file")
    return path


def pictures(sources: Sequence[Picture], size: int, channels: int, strict: bool = False) -> NDArray[np.uint8]:
    """Images as networks see them: [N, size, size], or [N, size, size, 3] in colour.

    Args:
        strict: refuses images in colour where there is one channel; otherwise they are made grey.

    Raises InputError with one line that names the files that can't be used.
    """
    images = np.empty((len(sources), size, size, *([3] if channels == 3 else [])), np.uint8)
    problems: list[str] = []
    read = partial(_picture, size=size, channels=channels, strict=strict)
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor() as threads:
        for number, picture in enumerate(threads.map(read, sources)):
            if isinstance(picture, str):
                problems.append(picture)
            else:
                images[number] = picture
    if problems:
        more = [f"and {plural(len(problems) - _NAMED, 'more file')}"] if len(problems) > _NAMED else []
        raise InputError("; ".join([*problems[:_NAMED], *more]))
    return images


def _picture(source: Picture, size: int, channels: int, strict: bool) -> NDArray[np.uint8] | str:
    """One of `pictures`; or what is wrong with its file."""
    try:
        with Image.open(source) if isinstance(source, Path) else Image.fromarray(source) as opened:
            if opened.mode.startswith(("I", "F")):
                return f"{source}: must have 8 bits a colour"
            if strict and channels == 1 and opened.mode not in _GREY:
                return f"{source}: in colour, unlike others; data.channels=3 reads all in colour"
            image = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
        smooth = Image.Resampling.BOX if min(image.size) >= size else Image.Resampling.BILINEAR
        return np.asarray(image.resize((size, size), smooth))
    except UnidentifiedImageError:
        return f"{source}: not an image file"
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        return f"{source}: can't be read ({reason})"


@cache  # a study composes a hundred configurations
def _found(path: Path) -> tuple[tuple[str, ...], int]:
    """The names of the classes; and the channels, 3 if the first image of a class is in colour."""
    train, _ = _listed(path, pixels=False)
    colour = any(map(_is_colour, dict(reversed(train)).values()))
    return tuple(printable(str(name)) for name in _classes(train)), 3 if colour else 1


def _is_colour(source: Picture) -> bool:
    if not isinstance(source, Path):
        return source.ndim == 3
    with suppress(Exception), Image.open(source) as image:  # `pictures` names what can't be opened
        return image.mode not in _GREY
    return False


def _check_memory(images: Sequence[Picture], data: Data) -> None:
    """Raises InputError for images that don't fit into memory, before any is decoded."""
    stored = sum(image.nbytes for image in images if not isinstance(image, Path))
    needed = stored + 2 * len(images) * data.channels * data.size**2  # as decoded, and in the networks' layout
    if needed > (memory := host_memory()):
        sizes = f"{needed / 1e9:,.1f} GB of memory, and this machine has {memory / 1e9:,.1f}"
        raise InputError(f"data.size={data.size}: {len(images):,} images take {sizes}; smaller ones take less")


def _classes(images: Split) -> list[Any]:
    return sorted({name for name, _ in images})


def _listed(path: Path, pixels: bool = True) -> tuple[Split, Split]:
    """The training and the test images; no test images where they are not split.

    Args:
        pixels: False: black ones in place of those of an array, which are not read.
    """
    train, test = _arrays(path, pixels) if path.is_file() else _folders(path)
    if len(_classes(train)) < 2:
        raise InputError(f"{path}: must have images of two classes at least")
    if unknown := [name for name in _classes(test) if name not in _classes(train)]:
        raise InputError(f"{path}: class {unknown[0]} has test images, but no training images")
    return train, test


def _folders(path: Path) -> tuple[Files, Files]:
    """As in `_listed`, of class folders."""
    found = _subfolders(path)
    if not found:
        raise InputError(f"{path}: has no folders; must have one for each class")
    if not (found <= {"train", "val", "test"} or {"train", "test"} <= found):
        return _in_classes(path), []
    if found - {"val"} != {"train", "test"}:
        raise InputError(f"{path}: has {', '.join(sorted(found))}; must have train, test and at most val")
    train = [pair for name in ("train", "val") if name in found for pair in _in_classes(path / name)]
    return train, _in_classes(path / "test")


def _in_classes(folder: Path) -> Files:
    """The files in the class folders of a folder, without hidden ones; raises InputError where there are none."""
    found: Files = []
    for name in sorted(_subfolders(folder)):
        files = sorted(_files(folder / name))
        if not files:
            raise InputError(f"{folder / name}: a class without images")
        found += [(name, Path(file)) for file in files]
    if not found:
        raise InputError(f"{folder}: has no class folders")
    return found


def _files(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        yield from (os.path.join(place, name) for name in names if name[0] != ".")


def _subfolders(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir() and each.name[0] != "."}


def _arrays(path: Path, pixels: bool) -> tuple[Split, Split]:
    """As in `_listed`, of an .npz file; raises InputError for damaged ones, and for other arrays."""
    splits: list[Split] = [[], []]
    try:
        with np.load(path, allow_pickle=False) as arrays, zipfile.ZipFile(path) as archive:
            for number, prefix in enumerate(["", "test_"] if "test_images" in arrays else [""]):
                images = arrays[f"{prefix}images"] if pixels else _black(archive, f"{prefix}images.npy")
                labels = arrays[f"{prefix}labels"]
                if images.dtype != np.uint8 or not (images.ndim == 3 or images.shape[3:] == (3,)):
                    raise ValueError(f"{prefix}images must be uint8 [N, H, W] or [N, H, W, 3]")
                if labels.shape != images.shape[:1] or labels.dtype.kind not in "iuU":
                    raise ValueError(f"{prefix}labels must be [N] whole numbers or texts")
                splits[number] = list(zip(labels.tolist(), images, strict=True))
    except MemoryError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        raise InputError(f"{path}: can't be used: {first_line(error)}") from None
    return splits[0], splits[1]


def _black(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of the shape and type of a stored one, which is not read."""
    with archive.open(name) as stream:
        np.lib.format.read_magic(stream)
        shape, _, kind = np.lib.format.read_array_header_1_0(stream)
    return np.broadcast_to(np.zeros((), kind), shape)

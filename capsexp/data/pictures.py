"""Pixels of pictures in files: uint8, of one size and one number of channels, whatever the files have."""

import os
import stat
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capsexp.errors import InputError, first_line, plural

#: What is decoded. Pillow knows more formats, and starts a program, Ghostscript, for one of them.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")

_MAX_BYTES = 256_000_000  # of a file
_GREY = ("1", "L", "LA", "I", "F")  # Pillow's modes; I;16 and its kin begin with I
_NAMED = 20  # files in an error message
_HIDDEN = ("__MACOSX", "Thumbs.db", "desktop.ini")  # and what begins with a full stop

Background = Literal["white", "black"]
Shape = Literal["stretch", "pad", "crop"]
Picture = Path | NDArray[np.uint8] | Image.Image  # a file; pixels [H, W] or [H, W, 3]; or Pillow's


@dataclass(frozen=True)
class Conversion:
    """How pictures become pixels.

    Each is resized once. Pixels are means over areas; of a picture smaller than `size` they are interpolated linearly.
    """

    size: int  # pixels a side
    channels: int  # 1 or 3; colours are made grey, grey is repeated
    background: Background = "white"  # under transparent pixels, and beside pictures that are padded
    shape: Shape = "stretch"  # what makes a square of other pictures; crop keeps the middle
    sixteen_bits: bool = False  # grey values of 16 bits are scaled to 8; otherwise such a picture is refused


def pictures(sources: Sequence[Picture], conversion: Conversion) -> NDArray[np.uint8]:
    """The pixels, [N, size, size] or [N, size, size, 3]; raises InputError that names the files that can't be used."""
    images, problems = converted(sources, conversion)
    if problems:
        raise InputError(listed(problems.values()))
    return images


def converted(sources: Sequence[Picture], conversion: Conversion) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """The pixels, as of `pictures`; and by index, what is wrong with those that can't be used."""
    size, channels = conversion.size, conversion.channels
    images = np.zeros((len(sources), size, size, *([3] if channels == 3 else [])), np.uint8)
    problems: dict[int, str] = {}
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor() as threads:
        for number, pixels in enumerate(threads.map(partial(_pixels, conversion=conversion), sources)):
            if isinstance(pixels, str):
                source = sources[number]
                problems[number] = f"{source if isinstance(source, Path) else f'image {number}'}: {pixels}"
            else:
                images[number] = pixels
    return images, problems


def listed(problems: Iterable[str]) -> str:
    """The problems in a line; of more than twenty the first ones."""
    every = list(problems)
    more = [f"and {plural(len(every) - _NAMED, 'more file')}"] if len(every) > _NAMED else []
    return "; ".join([*every[:_NAMED], *more])


def is_colour(source: Picture) -> bool:
    """Whether a picture is stored in colour; not if it can't be opened."""
    if isinstance(source, np.ndarray):
        return source.ndim == 3
    with suppress(Exception), _opened(source) as image:  # `converted` says what is wrong with it
        return image.mode.partition(";")[0] not in _GREY
    return False


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name is the user's, and not one of the system's."""
    return name[0] != "." and name not in _HIDDEN


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and in those below it, by name, without hidden ones.

    A linked folder is entered once, and not at all if the folder lies in it. Raises InputError for what isn't a regular
    file, and for one of more than 256 MB.
    """
    entered = set(folder.resolve().parents)
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := Path(place).resolve()) in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(filter(is_visible, folders))
        for file in (Path(place, name) for name in sorted(filter(is_visible, names))):
            if problem := _problem(file):
                raise InputError(f"{file}: {problem}")
            yield file


def _problem(file: Path) -> str | None:
    """Why a file isn't opened; opening a FIFO would wait for ever, and some devices never end."""
    try:
        status = file.stat()
    except OSError as error:
        return f"can't be read ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if not status.st_size:
        return "empty"
    return f"has {status.st_size // 10**6:,} MB; must have at most 256" if status.st_size > _MAX_BYTES else None


def _opened(source: Picture) -> Image.Image:
    """A picture, opened; raises InputError for what is no regular file, and Pillow's errors."""
    if isinstance(source, Image.Image):
        return source.copy()  # which is closed
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    if problem := _problem(source):
        raise InputError(problem)
    return Image.open(source, formats=FORMATS)


def _pixels(source: Picture, conversion: Conversion) -> NDArray[np.uint8] | str:
    """The pixels of a picture; or what is wrong with its file."""
    try:
        with _opened(source) as opened:
            image = _on_background(_in_eight_bits(ImageOps.exif_transpose(opened), conversion), conversion.background)
            image = image.convert("L" if conversion.channels == 1 else "RGB")
        return np.asarray(_square(image, conversion))
    except InputError as error:
        return str(error)
    except UnidentifiedImageError:
        return f"not a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image"
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        return f"can't be read ({reason})"


def _in_eight_bits(image: Image.Image, conversion: Conversion) -> Image.Image:
    if image.mode[0] not in "IF":
        return image
    if not conversion.sixteen_bits:
        raise InputError("must have 8 bits a colour; a run with data.reader.sixteen_bits=true takes 16")
    values = np.asarray(image)
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 65_535:
        raise InputError("must have 8 or 16 bits a colour")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))  # 65,535 = 257 · 255


def _on_background(image: Image.Image, colour: str) -> Image.Image:
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, colour), layer).convert("RGB")


def _square(image: Image.Image, conversion: Conversion) -> Image.Image:
    target, sides = (conversion.size, conversion.size), image.size
    shrinks = (max if conversion.shape == "pad" else min)(sides) >= conversion.size
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    if conversion.shape == "pad":
        return ImageOps.pad(image, target, method, conversion.background)
    if conversion.shape == "crop":
        return ImageOps.fit(image, target, method)
    return image.resize(target, method)

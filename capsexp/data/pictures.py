"""Pixels of pictures in files: uint8, of one size and one number of channels, whatever the files have."""

import math
import os
import re
import stat
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capsexp.data.reader import unreadable
from capsexp.errors import CapsexpError, InputError, RunError, first_line, plural

#: What is decoded. Pillow knows more formats, and starts a program, Ghostscript, for one of them.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
Image.MAX_IMAGE_PIXELS = None  # Conversion.max_pixels is the limit

_MAX_BYTES = 256_000_000  # of a file
_GREY = ("1", "L", "LA", "I", "F")  # Pillow's modes; I;16 and its kin begin with I
_NAMED = 20  # files in an error message
_HIDDEN = ("__MACOSX", "Thumbs.db", "desktop.ini")  # and what begins with a full stop
TEXTS = (".csv", ".tsv", ".json", ".txt", ".xml", ".md", ".html")  # suffixes of what lies beside pictures
_PICTURES = r"images?|imgs?|jpegimages|pictures?|photos?"  # names of folders
_MASKS = r"(.+[ _-])?(masks?|annotations?|segmentations?|labels?|ground[ _-]?truth)"  # beside them, not of the class

Background = Literal["white", "black"]
Shape = Literal["stretch", "pad", "crop"]
Picture = Path | NDArray[np.uint8] | Image.Image  # a file; pixels [H, W] or [H, W, 3]; or Pillow's


@dataclass(kw_only=True)
class Options:
    """What is done with pictures that aren't square, opaque and of 8 bits."""

    background: Background | None = None  # under transparent pixels, and beside padded ones; None: unlike what is drawn
    shape: Shape = "stretch"  # what makes a square of other pictures; crop keeps the middle
    sixteen_bits: bool = False  # grey values of 16 bits are scaled to 8; otherwise such a picture is refused
    float_range: list[float] | None = None  # values of 32 bits that become 0 and 255; None: such are refused
    invert: bool = False  # dark becomes light
    max_pixels: Annotated[int, Ge(1)] = 50_000_000  # of a picture before it is resized

    def __post_init__(self) -> None:
        ends = self.float_range
        if ends is not None and not (len(ends) == 2 and ends[0] < ends[1]):
            raise InputError(f"data.reader.float_range={ends}: must be two numbers, the smaller first")


@dataclass
class Conversion(Options):
    """How pictures become pixels.

    Each is resized once. Pixels are means over areas; of a picture smaller than `size` they are interpolated linearly.
    """

    size: int  # pixels a side
    channels: int  # 1 or 3; colours are made grey, grey is repeated


def pictures(sources: Sequence[Picture], conversion: Conversion) -> NDArray[np.uint8]:
    """The pixels, [N, size, size] or [N, size, size, 3]; raises InputError that names the files that can't be used."""
    images, problems = converted(sources, conversion)
    if problems:
        raise InputError(listed(problems.values()))
    return images


def converted(sources: Sequence[Picture], conversion: Conversion) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """The pixels, as of `pictures`; and by index, what is wrong with those that can't be used.

    Raises RunError or InputError for an error of the machine: it is no property of a picture.
    """
    size, channels = conversion.size, conversion.channels
    images = np.zeros((len(sources), size, size, *([3] if channels == 3 else [])), np.uint8)
    problems: dict[int, str] = {}
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(os.cpu_count()) as threads:
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
    """Whether a picture is stored in colour; not if it is none. Raises CapsexpError as `converted`."""
    if isinstance(source, np.ndarray):
        return source.ndim == 3
    try:
        with _opened(source) as image:
            return image.mode.partition(";")[0] not in _GREY
    except Exception as error:
        _wrong(source, error)  # `converted` says what is wrong with it
        return False


def visible(names: Iterable[str]) -> list[str]:
    """The names that are the user's, and not the system's, in order; without folders of masks beside one of images."""
    found = sorted(name for name in names if name[0] != "." and name not in _HIDDEN)
    images = [name for name in found if re.fullmatch(_PICTURES, name, re.IGNORECASE)]
    others = [name for name in found if name not in images]
    return images if images and all(re.fullmatch(_MASKS, name, re.IGNORECASE) for name in others) else found


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and in those below it, by name, without hidden ones and texts.

    A linked folder is entered once, and not at all if the folder lies in it. Raises InputError for what isn't a regular
    file, and for one of more than 256 MB.
    """
    entered = set(folder.resolve().parents)
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := Path(place).resolve()) in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = visible(folders)
        for file in (Path(place, name) for name in visible(names) if not name.lower().endswith(TEXTS)):
            if problem := _problem(file):
                raise InputError(f"{file}: {problem}")
            yield file


def _problem(file: Path) -> str | None:
    """Why a file isn't opened; opening a FIFO would wait for ever, and some devices never end."""
    try:
        status = file.stat()
    except OSError as error:
        raise unreadable(file, error) from error
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return f"has {status.st_size // 10**6:,} MB; must have at most 256" if status.st_size > _MAX_BYTES else None


def _opened(source: Picture, max_pixels: float = math.inf) -> Image.Image:
    """A picture, opened; raises ValueError for what is no regular file or too large, and Pillow's errors."""
    if isinstance(source, Image.Image):
        return source.copy()  # which is closed
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    if problem := _problem(source):
        raise ValueError(problem)
    if not source.stat().st_size:
        raise ValueError("empty")
    image = Image.open(source, formats=FORMATS)  # reads the header
    if (pixels := math.prod(image.size)) > max_pixels:
        image.close()
        raise ValueError(f"has {pixels:,} pixels; a run with data.reader.max_pixels={pixels} takes it")
    return image


def _pixels(source: Picture, conversion: Conversion) -> NDArray[np.uint8] | str:
    """The pixels of a picture; or what is wrong with it."""
    try:
        with _opened(source, conversion.max_pixels) as opened:
            image = _on_background(_in_eight_bits(ImageOps.exif_transpose(opened), conversion), conversion.background)
            image = image.convert("L" if conversion.channels == 1 else "RGB")
        pixels = np.asarray(_square(image, conversion))
    except Exception as error:  # Pillow raises many kinds for damaged files
        return _wrong(source, error)
    return 255 - pixels if conversion.invert else pixels


def _wrong(source: Picture, error: Exception) -> str:
    """What is wrong with a picture; raises RunError or InputError where it is the machine or the file's place."""
    name = source if isinstance(source, Path) else Path("a picture")
    if isinstance(error, MemoryError):
        raise RunError(f"{name}: out of memory; fewer programs at once, or smaller pictures, need less") from error
    if isinstance(error, OSError) and error.errno:  # Pillow's own have none
        raise unreadable(name, error) from error
    if isinstance(error, CapsexpError):
        raise error
    if isinstance(error, UnidentifiedImageError):
        return f"not a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image"
    return f"can't be used: {first_line(error)}"


def _in_eight_bits(image: Image.Image, conversion: Conversion) -> Image.Image:
    """The image with values from 0 to 255; raises ValueError for others, unless an option scales them."""
    if image.mode[0] not in "IF":
        return image
    values, least, most = np.asarray(image), 0.0, 65_535.0
    if image.mode == "F":
        if not conversion.float_range:
            raise ValueError("has floats; a run with data.reader.float_range=[0,1] takes those from 0 to 1")
        least, most = conversion.float_range
    elif not conversion.sixteen_bits:
        raise ValueError("must have 8 bits a colour; a run with data.reader.sixteen_bits=true takes 16")
    if not (values.min() >= least and values.max() <= most):
        raise ValueError(f"has values from {values.min():g} to {values.max():g}; must be from {least:g} to {most:g}")
    return Image.fromarray(np.round(255 * ((values - least) / (most - least))).astype(np.uint8))


def _on_background(image: Image.Image, colour: Background | None) -> Image.Image:
    """The image without transparent pixels; without a colour, light ones are on black and dark ones on white."""
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    if colour is None:
        drawn = np.asarray(layer.convert("L"))[np.asarray(layer.getchannel("A")) > 0]
        colour = "black" if drawn.size and drawn.mean() > 127 else "white"
    return Image.alpha_composite(Image.new("RGBA", layer.size, colour), layer).convert("RGB")


def _square(image: Image.Image, conversion: Conversion) -> Image.Image:
    target, sides = (conversion.size, conversion.size), image.size
    shrinks = (max if conversion.shape == "pad" else min)(sides) >= conversion.size
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    if conversion.shape == "pad":
        return ImageOps.pad(image, target, method, conversion.background or "white")
    if conversion.shape == "crop":
        return ImageOps.fit(image, target, method)
    return image.resize(target, method)

"""Looks inside one image: python -m capsexp.inspect checkpoint=… image=… [data=…] [output=…]

checkpoint=PATH  that a run wrote, logs/RUN/best.ckpt or last.ckpt; or the run's folder, for its best
image=NUMBER     of the test set, from 0; or a PNG or JPEG file. It is made grey or coloured as the network wants it.
                 It must be square and at least as large as the network's images; a larger one is averaged down
data=NAME        another data set for NUMBER and for the classes' names; data.root=DIR names the data folder
output=FILE      the picture, .png, with the numbers beside it as .json
                 (default: inspect/IMAGE.png beside the checkpoint)

The picture has what the class capsules say; how much of each child capsule goes to the predicted class, iteration by
iteration, on the pixels that it looks at, through all layers between; what each attention module multiplies with; and,
of a network with a decoder, the reconstruction, and those with one number of the winning capsule changed.
"""

import dataclasses
import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capsexp.cli import end_with, own_words
from capsexp.config.checks import nearest
from capsexp.config.schema import Data
from capsexp.data.reader import fit
from capsexp.errors import InputError, one_line
from capsexp.files import write_atomically

if TYPE_CHECKING:
    from capsexp.inspect.analysis import Asked
    from capsexp.inspect.restore import Restored

_WORDS = {
    "checkpoint": "a checkpoint or a run's folder",
    "image": "the number of a test image, or a PNG or JPEG file",
    "output": "the name of a .png file",
}


def main(words: list[str]) -> None:
    """Runs the command; raises InputError for what the user can mend."""
    given, overrides = own_words(words, _WORDS)
    _check(given, overrides)
    from capsexp.inspect.analysis import look, numbers  # torch takes seconds to import
    from capsexp.inspect.picture import picture
    from capsexp.inspect.restore import restore

    restored = restore(Path(given["checkpoint"]), "cpu", overrides)
    asked = _asked(restored, given["image"])
    inside = look(restored, asked)
    path = Path(given.get("output") or restored.path.parent / "inspect" / f"{Path(given['image']).stem}.png")
    drawn, text = picture(inside), json.dumps(numbers(inside), ensure_ascii=False) + "\n"
    write_atomically(path, lambda stream: stream.write(drawn))
    write_atomically(path.with_suffix(".json"), lambda stream: stream.write(text.encode()))
    print(f"{asked.name}: {inside.verdict} ({inside.score_is} {inside.scores[inside.winner]:.3f})")
    print(f"picture {path}")
    print(f"numbers {path.with_suffix('.json')}")


def _check(given: dict[str, str], overrides: list[str]) -> None:
    """Raises InputError for words that are missing or not known, before anything is read."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] != "data":
            names = sorted((*_WORDS, "data"))
            raise InputError(f"{key}: no such key{nearest(key, names)} (there are {', '.join(names)})")
    for key in ("checkpoint", "image"):
        if key not in given:
            raise InputError(f"{key}: missing; must be {_WORDS[key]}")
    if "output" in given and Path(given["output"]).suffix != ".png":
        raise InputError(f"output={given['output']}: must be {_WORDS['output']}")


def _asked(restored: "Restored", image: str) -> "Asked":
    """The image: a number's or a file's."""
    number = re.fullmatch(r"[+-]?\d+", image)
    return _of_test_set(restored, int(image)) if number else _of_file(Path(image), restored.config.data)


def _of_file(path: Path, data: Data) -> "Asked":
    import torch

    from capsexp.inspect.analysis import Asked

    pixels = fit(_read(path, data.size, data.channels)[None], data.size, data.channels, data.name)
    return Asked(path.name, torch.from_numpy(pixels[0]).float() / 255, None)


def _of_test_set(restored: "Restored", number: int) -> "Asked":
    from capsexp.data import source
    from capsexp.data.module import test_split
    from capsexp.inspect.analysis import Asked

    config = restored.config
    whole = dataclasses.replace(config, budget=dataclasses.replace(config.budget, test_images=None))
    images, labels = test_split(source.load(config.data), whole)
    if not 0 <= number < len(labels):
        raise InputError(f"image={number}: must be from 0 to {len(labels) - 1}, the test images of {config.data.name}")
    label = labels[number]
    classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
    return Asked(f"{config.data.name} test image {number}", images[number].float() / 255, classes)


def _read(path: Path, size: int, channels: int) -> NDArray[np.uint8]:
    """A file's pixels, [H, H] or, for a network that sees colours, [H, H, 3]; raises InputError."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as opened:
            mode, image = opened.mode, ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise InputError(f"image={path}: no such file, and not a number") from None
    except UnidentifiedImageError:
        raise InputError(f"image={path}: not an image file") from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        raise InputError(f"image={path}: can't be read ({reason})") from None
    if mode.startswith(("I", "F")):
        raise InputError(f"image={path}: must have 8 bits a colour")
    if image.width != image.height or image.width < size:
        wanted = f"must be square and at least {size}×{size}, as this network's images"
        raise InputError(f"image={path}: {image.width}×{image.height} pixels; {wanted}")
    return np.asarray(image)


if __name__ == "__main__":
    end_with(main, __doc__)

"""The figures as they stand in the page: as data, so that nothing has to be loaded, and no larger than needed."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from capsexp.figures.catalogue import FIGURES

COLOURS = 24  # of a plot, smooth edges included
QUALITY = 30  # of a figure that shows images
SCALE = 0.6  # shown px of a file's: letters of 9 points at 120 dpi are 9 px high
METHOD = 6  # of WebP: the smallest files, the slowest to make


@dataclass(frozen=True)
class Picture:
    """A figure of `python -m capsexp.figures`."""

    name: str
    what: str  # it shows
    address: str | None  # data:…; None: it is to be drawn
    size: tuple[int, int] = (600, 400)  # px, as shown where there is room

    @property
    def command(self) -> str:
        """What draws it."""
        return f"python -m capsexp.figures {self.name}"


def load(folder: Path) -> list[Picture]:
    """All figures."""
    return [_picture(folder / f"{name}.png", name, what) for name, what in FIGURES.items()]


def _picture(path: Path, name: str, what: str) -> Picture:
    try:
        with Image.open(path) as image:
            width, height = (round(SCALE * side) for side in image.size)
            content = _encoded(image.convert("RGB"), (width, height))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # missing or damaged
        return Picture(name, what, None)
    return Picture(name, what, f"data:image/webp;base64,{base64.b64encode(content).decode()}", (width, height))


def _encoded(image: Image.Image, shown: tuple[int, int]) -> bytes:
    """As WebP: a plot without loss in few colours; images, which are smaller with loss, in the size that is `shown`."""
    plot = _webp(image.quantize(COLOURS).convert("RGB"), lossless=True, quality=100)
    if len(plot) <= len(_webp(image, quality=QUALITY)):
        return plot
    return _webp(image.resize(shown, Image.Resampling.LANCZOS), quality=QUALITY)


def _webp(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "webp", method=METHOD, **options)
    return file.getvalue()

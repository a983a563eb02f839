"""The figures as they stand in the page: as data, so that nothing has to be loaded, and no larger than needed."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from capsexp.figures.catalogue import FIGURES

COLOURS = 24  # of a plot, smooth edges included
QUALITY = 30  # of a figure that shows images
SCALE = 0.6  # shown px of a file's: letters of 9 points at 120 dpi are 9 px high


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
            content = min(_encoded(image.convert("RGB")), key=len)
            width, height = (round(SCALE * side) for side in image.size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # missing or damaged
        return Picture(name, what, None)
    return Picture(name, what, f"data:image/webp;base64,{base64.b64encode(content).decode()}", (width, height))


def _encoded(image: Image.Image) -> list[bytes]:
    """As WebP: without loss in few colours, which is smaller for plots, and with loss, which is for photographs."""
    plot, photograph = io.BytesIO(), io.BytesIO()
    image.quantize(COLOURS).convert("RGB").save(plot, "webp", lossless=True, quality=100, method=6)
    image.save(photograph, "webp", quality=QUALITY, method=6)
    return [plot.getvalue(), photograph.getvalue()]

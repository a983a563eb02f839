"""The figures as they stand in the page: SVG files as data, so that nothing has to be loaded; captions as text."""

import base64
import re
from dataclasses import dataclass
from pathlib import Path

from capsexp.figures.catalogue import FIGURES


@dataclass(frozen=True)
class Picture:
    """A figure of `python -m capsexp.figures`."""

    name: str
    what: str  # it shows
    address: str  # data:…
    size: tuple[int, int] = (600, 400)  # px where there is room, one a point
    alt: str = ""
    caption: str = ""
    photographs: bool = False  # which keep their colours on a dark page


#: The answer's files, in the order in which a browser chooses: when, and which.
ANSWERS = {
    "(max-width: 40rem) and (prefers-color-scheme: dark)": "answer_narrow_dark",
    "(max-width: 40rem)": "answer_narrow_light",
    "screen and (prefers-color-scheme: dark)": "answer_dark",
    "": "answer_light",
}


def load(folder: Path, answer: bool = True) -> dict[str, Picture]:
    """All figures that are drawn, by name, and the answer's files, which are of all studies."""
    names = FIGURES | (dict.fromkeys(ANSWERS.values(), FIGURES["answer"]) if answer else {})
    drawn = {name: _picture(folder / f"{name}.svg", name, entry.what) for name, entry in names.items()}
    return {name: picture for name, picture in drawn.items() if picture}


def _picture(path: Path, name: str, what: str) -> Picture | None:
    content = path.read_bytes() if path.is_file() else b""
    size = re.search(rb'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"', content)
    if size is None or not content.rstrip().endswith(b"</svg>"):  # missing or damaged
        return None
    width, height = (round(float(side)) for side in size.groups())
    address = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
    texts = path.with_suffix(".txt")
    alt, _, caption = texts.read_text(encoding="utf-8").partition("\n") if texts.is_file() else ("", "", "")
    return Picture(
        name, what, address, (width, height), alt or f"Figure {name}: {what}", caption.strip(), b"<image" in content
    )

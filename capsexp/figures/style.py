"""What all figures have in common: colours, where legends and notes stand, files that are the same whenever drawn.

Colours are Okabe and Ito's, which people with any colour vision tell apart; each comes with a marker, a line and a
hatch of its own, so that a grey print loses nothing.
"""

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from capsexp.files import write_atomically

SUFFIXES = (".png", ".svg")
FONT, LINE = 8, 0.16  # points of the notes; inches from line to line
GREY = "0.4"


@dataclass(frozen=True)
class Look:
    """How one network looks wherever it is drawn."""

    color: str
    marker: str
    line: Any
    hatch: str

    @property
    def curve(self) -> dict[str, Any]:
        """As a line's keywords."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line, "markersize": 5, "linewidth": 1.5}


LOOKS = [
    Look("#000000", "o", "-", ""),
    Look("#E69F00", "s", "--", "//"),
    Look("#0072B2", "^", "-.", ".."),
    Look("#D55E00", "D", ":", "xx"),
    Look("#009E73", "v", (0, (5, 1, 1, 1, 1, 1)), "--"),
    Look("#CC79A7", "X", (0, (3, 1)), "||"),
]


@contextmanager
def ours() -> Iterator[None]:
    """Draws with these settings, whatever those of the user's matplotlib are."""
    with matplotlib.style.context(["default", {"font.size": 9, "svg.hashsalt": "capsexp", "image.cmap": "gray"}]):
        yield


class Page:
    """A figure: a title, a grid of axes, notes below.

    Args:
        title: names the source's figure.
        size: in inches, of what stands above the notes.
        grid: rows and columns of axes.
    """

    def __init__(self, title: str, size: tuple[float, float], grid: tuple[int, int] = (1, 1)) -> None:
        self.figure = Figure(figsize=size, layout="constrained")
        self.figure.suptitle("\n".join(textwrap.wrap(title, int(13 * size[0]))), fontsize=11)
        self.axes: list[list[Axes]] = self.figure.subplots(*grid, squeeze=False).tolist()
        self.notes: list[str] = []

    def note(self, *notes: str) -> None:
        """Writes whole lines below the plot, where they are long in several; nothing for an empty one."""
        self.notes += [note for note in notes if note]

    def files(self) -> dict[str, bytes]:
        """The figure by suffix; the same drawing gives the same bytes."""
        self._make_room()
        return {suffix: self._rendered(suffix[1:]) for suffix in SUFFIXES}

    def _make_room(self) -> None:
        """Lengthens the figure by its notes."""
        width, height = self.figure.get_size_inches()
        lines = [line for note in self.notes for line in textwrap.wrap(note, int(16.5 * width))]
        below = LINE * len(lines) + 0.05
        self.figure.set_size_inches(width, height + below)
        share = below / (height + below)
        self.figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[call-arg,union-attr]
        self.figure.text(0.01, share, "\n".join(lines), fontsize=FONT, va="top", linespacing=1.25)
        self.notes = []

    def _rendered(self, kind: str) -> bytes:
        stream = io.BytesIO()
        self.figure.savefig(stream, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else {})
        return _smaller(stream) if kind == "png" else stream.getvalue()


def _smaller(stream: io.BytesIO) -> bytes:
    """A PNG file without transparency, and without colours where it has none."""
    image, smaller = Image.open(stream).convert("RGB"), io.BytesIO()
    image = image if np.ptp(np.asarray(image), axis=2).any() else image.convert("L")
    image.save(smaller, "png", optimize=True)
    return smaller.getvalue()


def write(files: dict[str, bytes], folder: Path, name: str) -> None:
    """Writes a figure's files; raises OSError with the path when the disk refuses."""
    for suffix, content in files.items():
        write_atomically(folder / f"{name}{suffix}", lambda stream, content=content: stream.write(content))  # type: ignore[misc]


def legend(axis: Axes, columns: int = 1) -> None:
    """The legend below the axes, where no data are."""
    axis.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, frameon=False, fontsize=FONT, handlelength=4
    )


def count_epochs(axis: Axes, what: str = "epoch") -> None:
    """Whole numbers along the axis, of epochs or iterations."""
    axis.set_xlabel(what)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def level(axis: Axes, printed: Sequence[tuple[str, float, Look]]) -> None:
    """Published numbers as levels across the axes, with marker and number as printed where they end at the right.

    Comes after all else is plotted.
    """
    for _, value, look in printed:
        axis.axhline(value, color=look.color, linewidth=0.8, linestyle=(0, (1, 3)), zorder=1)
    values = [value for _, value, _ in printed]
    low, high = min([axis.get_ylim()[0], *values]), max([axis.get_ylim()[1], *values])
    high += 0.06 * (high - low)
    axis.set_ylim(low, high)
    ordered = sorted(printed, key=lambda level: level[1])
    heights = [(value - low) / (high - low) for _, value, _ in ordered]
    outside: dict[str, Any] = {"transform": axis.transAxes, "clip_on": False}
    for (text, _, look), height, place in zip(ordered, heights, spaced(heights, 0.05), strict=True):
        axis.plot([1, 1.02], [height, place], color=look.color, linewidth=0.8, **outside)
        axis.plot(1.03, place, color=look.color, marker=look.marker, markersize=4, **outside)
        axis.text(1.05, place, text, va="center", fontsize=FONT, **outside)


def spaced(places: Sequence[float], gap: float) -> list[float]:
    """Places in ascending order, moved as little as needs be to stand `gap` apart, groups about their middles."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _first(groups[-1], gap) - _last(groups[-2], gap) < gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_first(group, gap) + gap * index for group in groups for index in range(len(group))]


def _first(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _last(group: Sequence[float], gap: float) -> float:
    return _first(group, gap) + gap * (len(group) - 1)

"""The style of all figures: colours, legends, published numbers, captions, alt texts; the same files in every drawing.

Colours are Okabe and Ito's, distinct in any colour vision; each comes with its own marker, line and hatch, so that a
grey print loses nothing. The background is white and opaque, a card on a dark page. Texts in SVG files are texts. With
WIDTH and FONT_SIZE no text is smaller than 9 px where a figure is at least 720 px wide.
"""

import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

SUFFIXES = (".png", ".svg")
WIDTH = 10.0  # inches, at most
FONT_SIZE = 9  # the smallest text, in points
GREY = "0.4"
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "handlelength": 4}


@dataclass(frozen=True)
class SeriesStyle:
    """How one series is drawn in all plots of a figure."""

    color: str
    marker: str
    line: Any
    hatch: str
    size: int = 5

    @property
    def curve(self) -> dict[str, Any]:
        """Keywords of a plotted line."""
        point = {"color": self.color, "marker": self.marker, "markersize": self.size}
        return point | {"linestyle": self.line, "linewidth": 1.5}

    @property
    def bar(self) -> dict[str, Any]:
        """Keywords of a bar."""
        return {"color": self.color, "alpha": 0.6, "hatch": self.hatch}


STYLES = [
    SeriesStyle("#000000", "o", "-", ""),
    SeriesStyle("#E69F00", "s", "--", "//"),
    SeriesStyle("#0072B2", "^", "-.", ".."),
    SeriesStyle("#D55E00", "D", ":", "xx"),
    SeriesStyle("#009E73", "v", (0, (5, 1, 1, 1, 1, 1)), "--"),
    SeriesStyle("#CC79A7", "X", (0, (3, 1)), "||"),
]


@contextmanager
def default_style() -> Iterator[None]:
    """Draws with these settings, whatever the user's matplotlib is set to."""
    svg = {"svg.hashsalt": "capsexp", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana"]}
    with matplotlib.style.context(["default", {"font.size": FONT_SIZE, "image.cmap": "gray", **svg}]):
        yield


class PaperFigure:
    """A paper's figure, redrawn: a title, a grid of axes, the notes of its caption, and an alt text.

    Args:
        title: names the source's figure.
        size: in inches, at most WIDTH.
        grid: rows and columns of axes.
    """

    def __init__(self, title: str, size: tuple[float, float], grid: tuple[int, int] = (1, 1)) -> None:
        self.figure = Figure(figsize=size, layout="constrained")
        self.figure.suptitle("\n".join(textwrap.wrap(title, int(13 * size[0]))), fontsize=11)
        self.axes: list[list[Axes]] = self.figure.subplots(*grid, squeeze=False).tolist()
        self.notes: list[str] = []
        self.alt = [f"{title}."]

    def note(self, *notes: str) -> None:
        """Adds notes to the caption; none for an empty one."""
        self.notes += [note for note in notes if note]

    def describe(self, *sentences: str) -> None:
        """Adds to the alt text what can be seen."""
        self.alt += sentences

    def legend(self, columns: int) -> None:
        """One legend for all axes, below them, without what differs among the lines of a name: seeds and training."""
        handles: dict[str, Any] = {}
        for axis in self.figure.axes:
            for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(name.partition(" (n = ")[0], handle)
        self.figure.legend([*handles.values()], [*handles], ncols=columns, loc="outside lower center", **LEGEND)

    def files(self) -> dict[str, bytes]:
        """The figure by suffix, and as .txt its alt text, then its caption, a line each; the same bytes every time.

        Their order matters: the layout of the second file starts from that of the first.
        """
        texts = f"{' '.join(self.alt)}\n{' '.join(self.notes)}\n"
        return {suffix: rendered(self.figure, suffix[1:]) for suffix in SUFFIXES} | {".txt": texts.encode()}


def rendered(figure: Figure, kind: str) -> bytes:
    """A PNG or SVG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else {})
    return _smaller(stream) if kind == "png" else _numbered(stream.getvalue())


def _numbered(svg: bytes) -> bytes:
    """An SVG file with numbered clip paths, and numbers with two digits behind the point.

    Matplotlib's ids are hashes of their coordinates, whose last digits differ from one layout to the next.
    """
    svg = re.sub(rb"(?<=\d\.\d\d)\d+", b"", svg)
    for number, name in enumerate(dict.fromkeys(re.findall(rb"url\(#(p[0-9a-f]{10})\)", svg)), 1):
        svg = svg.replace(name, b"clip%d" % number)
    return svg


def _smaller(stream: io.BytesIO) -> bytes:
    """A PNG file without transparency, and without colours if it has none."""
    image, smaller = Image.open(stream).convert("RGB"), io.BytesIO()
    image = image if np.ptp(np.asarray(image), axis=2).any() else image.convert("L")
    image.save(smaller, "png", optimize=True)
    return smaller.getvalue()


def legend(axis: Axes, columns: int = 1) -> None:
    """The legend below the axes, where no data are, with lines as wide as they allow."""
    figure, grid = axis.get_figure(), axis.get_gridspec()
    assert isinstance(figure, Figure)
    assert grid is not None
    width = int(14.5 * figure.get_figwidth() / grid.ncols / columns) - 10
    handles, names = axis.get_legend_handles_labels()
    wrapped = ["\n".join(textwrap.wrap(name, max(16, width))) for name in names]
    axis.legend(handles, wrapped, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.16), **LEGEND)


def count_along(axis: Axes, what: str) -> None:
    """Whole numbers along the x axis, of epochs or iterations."""
    axis.set_xlabel(what)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_published(axis: Axes, published: Sequence[tuple[str, SeriesStyle]], farthest: float = math.inf) -> None:
    """Published numbers, as printed, as dotted levels across the axes, with marker and number at the right end.

    Comes after all else is plotted.

    Args:
        farthest: from the axes' limits, in their heights; a level beyond is an arrow at the number, and no level.
    """
    low, high = axis.get_ylim()
    reach = farthest * (high - low)
    lowest, highest = low - reach, high + reach
    ordered = sorted(published, key=lambda level: float(level[0]))
    values = np.array([float(text) for text, _ in ordered])
    near = [value for value in values if lowest <= value <= highest]
    for text, style in published:
        if float(text) in near:
            axis.axhline(float(text), color=style.color, linewidth=0.8, linestyle=(0, (1, 3)), zorder=1)
    low, high = min([low, *near]), max([high, *near])
    high += 0.06 * (high - low)
    axis.set_ylim(low, high)
    heights = np.clip((values - low) / (high - low), 0.03, 0.97)
    outside: dict[str, Any] = {"transform": axis.transAxes, "clip_on": False}
    for (text, style), height, moved in zip(ordered, heights, spaced(heights, 0.05), strict=True):
        value, arrow = float(text), ""
        if value in near:
            axis.plot([1, 1.02], [height, moved], color=style.color, linewidth=0.8, **outside)
        else:
            arrow = " ↑" if value > high else " ↓"
        axis.plot(1.03, moved, color=style.color, marker=style.marker, markersize=4, **outside)
        axis.text(1.06, moved, f"{text}{arrow}", va="center", fontsize=FONT_SIZE, **outside)


def spaced(values: Sequence[float], gap: float) -> Sequence[float]:
    """Ascending values, changed as little as possible (least squares) to be at least `gap` apart."""
    from scipy.optimize import isotonic_regression  # takes half a second to import

    shifts = gap * np.arange(len(values))
    return isotonic_regression(np.asarray(values) - shifts).x + shifts if len(values) else []

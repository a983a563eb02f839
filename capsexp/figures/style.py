"""What all figures share: a light and a dark theme, styles of series, SVG files that are the same in every drawing.

Blue is what is published, and no series; each series has a contrast of 3 : 1 at least, a marker and a line of its own,
so that a grey print loses nothing. The background is transparent; texts are texts.
"""

import io
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import matplotlib.style
from cycler import cycler
from matplotlib.figure import Figure

FONT_SIZE = 9  # points, the smallest text of plots
WIDE, NARROW = 8.65, 3.75  # inches: 830 and 360 px of a page
GREY = "#767676"  # can be read on white and on black


class Theme(NamedTuple):
    """Colours on a light or a dark page."""

    ink: str
    soft: str  # less important texts and marks
    rule: str  # lines behind the data
    published: str
    series: Sequence[str]


THEMES = {
    "light": Theme(
        *("#1c1d20", "#5a5d64", "#d8d6cd", "#0072b2"),
        ("#000000", "#D55E00", "#00805D", "#AA4499", "#7A5C00", "#767676"),
    ),
    "dark": Theme(
        *("#e8e7e3", "#a5a8b0", "#3a3d43", "#56b4e9"),
        ("#FFFFFF", "#F0913E", "#20B98C", "#E09CC4", "#D4B04C", "#9A9EA6"),
    ),
}


PUBLISHED = "C6"  # in plots, behind the colours of six series

#: Keywords of the first, second … series' line in all plots of a figure.
STYLES: list[dict[str, Any]] = [
    {"color": f"C{index}", "marker": marker, "markersize": 5, "linestyle": line, "linewidth": 1.5}
    for index, (marker, line) in enumerate(
        [("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1, 1, 1, 1, 1))), ("X", (0, (3, 1)))]
    )
]


@dataclass(frozen=True)
class Drawing:
    """A figure of matplotlib, drawn once for each theme, and what it was drawn without."""

    plot: Callable[..., Figure]  # for a narrow screen it is given True
    missing: Sequence[str] = field(default_factory=list)  # a line each, with the command that makes it
    narrow: bool = False  # whether there is a version for narrow screens

    def files(self) -> dict[str, bytes]:
        """The SVG files by suffix: _light.svg, _dark.svg and, for narrow screens, _narrow_light.svg …"""
        plots = {"_": self.plot} | ({"_narrow_": partial(self.plot, True)} if self.narrow else {})
        return {f"{width}{name}.svg": _svg(plot, THEMES[name]) for width, plot in plots.items() for name in THEMES}


def _svg(plot: Callable[[], Figure], theme: Theme) -> bytes:
    colours = {
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), theme.ink),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), theme.soft),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
        "axes.prop_cycle": cycler(color=[*theme.series, theme.published]),
        "grid.color": theme.rule,
    }
    with default_style(colours):
        stream = io.BytesIO()
        plot().savefig(stream, format="svg", dpi=120, metadata={"Date": None})
        return _numbered(stream.getvalue())


def default_style(more: dict[str, Any] | None = None) -> AbstractContextManager[None]:
    """Draws with these settings, whatever the user's matplotlib is set to: on white, with the light theme's series."""
    settings = {
        "font.size": FONT_SIZE,
        "font.sans-serif": ["DejaVu Sans", "Verdana"],
        "image.cmap": "gray",
        "svg.hashsalt": "capsexp",
        "svg.fonttype": "none",
        "axes.prop_cycle": cycler(color=THEMES["light"].series),
        "legend.frameon": False,
        "legend.handlelength": 4,
    }
    return matplotlib.style.context(["default", settings, more or {}])


def _numbered(svg: bytes) -> bytes:
    """An SVG file with numbered clip paths, and numbers with two digits behind the point.

    Matplotlib's ids are hashes of their coordinates, whose last digits differ from one layout to the next.
    """
    svg = re.sub(rb"(?<=\d\.\d\d)\d+", b"", svg)
    for number, name in enumerate(dict.fromkeys(re.findall(rb"url\(#(p[0-9a-f]{10})\)", svg)), 1):
        svg = svg.replace(name, b"clip%d" % number)
    return svg

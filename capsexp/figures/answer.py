"""The README's picture: what attention adds to the accuracy of a capsule network, published and measured, by data set.

A row per claim on accuracy of the same network with all of a source's attention and without. It comes in four files,
light and dark, wide and narrow.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import rendered
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.study import studies
from capsexp.study.setting import title
from capsexp.study.studies import published_number
from capsexp.tables.texts import conjoined, decimal, effect, shorter, training

TITLE = "Does attention help a capsule network?"
AXIS = "accuracy with attention minus without, percentage points"
LONG = "trained as long as the claim needs"
SHORT = "shorter training or other data: no test of the published number"
#: Ink, soft ink, rules, paper, and what is published.
COLOURS = {
    "light": ("#1c1d20", "#5a5d64", "#d8d6cd", "#ffffff", "#0072b2"),
    "dark": ("#e8e7e3", "#a5a8b0", "#3a3d43", "#0d1117", "#56b4e9"),
}
LIMIT = 5.0  # of the axis, in points; what lies beyond is a triangle at its edge
TICKS = range(-4, 5, 2)
ROW = 40  # px


@dataclass(frozen=True)
class Gain:
    """What attention adds on one data set."""

    data: str  # its title
    attention: Literal["dual", "CBAM"]
    one: MeasuredClaim
    published: float

    @property
    def value(self) -> float:
        """In points."""
        assert self.one.measured is not None
        return self.one.measured.value

    @property
    def runs(self) -> list[float]:
        """Of each run with attention, or of each pair of networks where the claim has several, in points."""
        terms = {term.weight > 0: term.values for term in self.one.terms}
        if len(self.one.claim.pairs) > 1 or len(terms) < 2:
            return list(self.one.measured.pairs) if self.one.measured and len(self.one.claim.pairs) > 1 else []
        without = sum(terms[False]) / len(terms[False])
        return [value - without for value in terms[True]]

    @property
    def training(self) -> str:
        """In short: 10/100 ep, lossy copy."""
        room = "no room: 100 % without" if self.one.verdict == "ceiling" else ""
        return ", ".join(filter(None, [shorter(training(self.one)), room]))


def gains(collected: Sequence[Results]) -> list[Gain]:
    """Of each source and data set the measured claim on most attention; first those trained long enough."""
    found: dict[tuple[str, str], tuple[tuple[int, bool], Gain]] = {}
    for results in collected:
        rows = {row.name: row for row in results.study.rows if row.run}
        for one in results.claims:
            claim, size = one.claim, published_number(one.claim.claimed)
            published = size.value if size else one.printed.value if one.printed else None
            compared = claim.measure in ("accuracy", "first_five") and claim.pairs and set(claim.compared) <= set(rows)
            if one.measured is None or one.reading or claim.ours or not compared or published is None:
                continue
            pairs = [[studies.config_of(rows[name].combinations()[0]) for name in pair] for pair in claim.pairs]
            flags = [[sum((a.cbam, a.conv, a.caps)) for a in (one.attention for one in pair)] for pair in pairs]
            same = all(without.model.name == having.model.name for without, having in pairs)
            if not same or any(without or not having for without, having in flags):
                continue
            kind: Literal["dual", "CBAM"] = "CBAM" if pairs[0][1].attention.cbam else "dual"
            gain = Gain(title(pairs[0][0].data.name), kind, one, published)
            key, order = (results.study.publication, pairs[0][0].data.name), (flags[0][1], size is not None)
            if key not in found or order > found[key][0]:
                found[key] = order, gain
    return sorted((gain for _, gain in found.values()), key=lambda gain: (bool(gain.one.so_far), -gain.published))


@dataclass(frozen=True)
class Answer:
    """The picture."""

    gains: list[Gain]

    def files(self) -> dict[str, bytes]:
        """By suffix: an SVG file per width and theme, and the alt text."""
        files = {
            f"{width}_{theme}.svg": rendered(_Drawing(self.gains, theme, narrow).figure, "svg")
            for width, narrow in (("", False), ("_narrow", True))
            for theme in COLOURS
        }
        return files | {".txt": f"{self.alt}\n".encode()}

    @property
    def alt(self) -> str:
        """All that the picture shows, as text."""
        return f"{TITLE} {' '.join(self.sentences)} {' '.join(map(_described, self.gains))}"

    @property
    def sentences(self) -> list[str]:
        """Where a gain is shown."""
        supported = [gain for gain in self.gains if gain.one.verdict == "supported"]
        shown = [gain.data for gain in supported if gain.one.holds]
        before = [gain.data for gain in supported if not gain.one.holds]
        parts = [f"On {conjoined(shown)} yes." if shown else ""]
        parts.append(f"On {conjoined(before)} yes before Holm's correction, not after it." if before else "")
        elsewhere = "Elsewhere no" if supported else "No"
        return [*filter(None, parts), f"{elsewhere} gain is shown."]


def answer(sources: Sources) -> tuple[Answer | None, list[Missing]]:
    """The picture of all studies; None where no claim on attention was measured."""
    found = gains(sources.collected)
    return (Answer(found) if found else None), []


def _described(gain: Gain) -> str:
    """For the alt text: published and measured, how trained."""
    assert gain.one.measured is not None
    measured = effect(gain.one.claim, gain.one.measured)
    published = decimal(gain.published, 2, signed=True)
    return f"{gain.data}, {gain.attention} attention: published {published}, measured {measured}; {gain.training}."


class _Drawing:
    """One file, in px from the upper left corner."""

    def __init__(self, found: Sequence[Gain], theme: str, narrow: bool) -> None:
        self.ink, self.soft, self.rule, self.paper, self.blue = COLOURS[theme]
        self.narrow = narrow
        self.width = 360 if narrow else 830
        self.left, self.right = (14, 346) if narrow else (190, 440)
        self.row = 76 if narrow else ROW
        self.figure = Figure(dpi=72, facecolor="none")
        self.axis: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.y = -10.0
        self._legend()
        self.y += 26
        self._heads()
        grid = self.y + 8
        for long in (True, False):
            part = [gain for gain in found if bool(gain.one.so_far) != long]
            if part:
                self.y += 32
                for line in textwrap.wrap(LONG if long else SHORT, 42 if narrow else 110):
                    self.text(4, line, self.ink if long else self.soft, weight="bold")
                    self.y += 16
                self.y -= 8
            for gain in part:
                self._row(gain, long)
        if not narrow:
            self._grid(grid, self.y + 14)
        self._axis()
        height = self.y + 8
        self.figure.set_size_inches(self.width / 72, height / 72)
        self.axis.set(xlim=(0, self.width), ylim=(height, 0))
        self.axis.axis("off")

    def x(self, points: float) -> float:
        """A place on the axis, within its edges."""
        return (self.left + self.right) / 2 + max(-1.0, min(1.0, points / LIMIT)) * (self.right - self.left) / 2

    def text(
        self, x: float, text: str, colour: str = "", size: float = 13, align: str = "left", weight: str = "normal"
    ) -> None:
        self.axis.text(x, self.y, text, color=colour or self.ink, fontsize=size, ha=align, va="baseline", weight=weight)

    def line(
        self, xs: tuple[float, float], ys: tuple[float, float], colour: str, width: float, order: float = 1
    ) -> None:
        self.axis.plot(xs, ys, color=colour, linewidth=width, solid_capstyle="butt", zorder=order)

    def mark(self, x: float, y: float, long: bool, marker: str = "o", soft: bool = False) -> None:
        edge = self.ink if long and not soft else self.soft
        self.axis.plot(
            x,
            y,
            marker,
            markersize=9,
            color=edge,
            markerfacecolor=edge if long else self.paper,
            markeredgewidth=2,
            zorder=3,
        )

    def _legend(self) -> None:
        """What the marks mean."""
        self.y += 28
        x = 18.0
        for name, wide in (
            ("published", 100),
            ("measured, 95 % interval", 195),
            ("trained shorter", 140),
            ("one run", 70),
        ):
            if x + wide > self.width:
                x, self.y = 18.0, self.y + 20
            middle = self.y - 4
            if name == "published":
                self.line((x, x), (middle - 8, middle + 7), self.blue, 5)
            elif name == "one run":
                self.axis.plot(x, middle, "o", markersize=4, color=self.soft)
            else:
                long = name.startswith("measured")
                self.line((x - 14, x + 14), (middle, middle), self.ink if long else self.soft, 3 if long else 1.5)
                self.mark(x, middle, long)
            self.text(x + 20, name, self.soft, 12)
            x += wide + 14

    def _row(self, gain: Gain, long: bool) -> None:
        """A data set: published and measured, at their places and as numbers."""
        decided = long and gain.one.verdict != "ceiling"
        ink, weight = (self.ink, "bold") if decided else (self.soft, "normal")
        published, measured = (decimal(value, 2, signed=True) for value in (gain.published, gain.value))
        self.y += 26
        name = gain.data
        if self.narrow:
            self.text(
                4, f"{name}, {gain.attention}", self.ink if long else self.soft, weight="bold" if long else "normal"
            )
            self.text(272, published, self.blue, align="right")
            self.text(346, measured, ink, align="right", weight=weight)
            plot = self.y + 20
            self._grid(plot - 12, plot + 16)
        else:
            self.text(4, name, self.ink if long else self.soft, 14, weight="bold" if long else "normal")
            self.text(178, gain.attention, self.soft, 12, align="right")
            self.text(505, published, self.blue, 14, align="right")
            self.text(568, measured, ink, 14, align="right", weight=weight)
            self.text(582, gain.training, self.soft, 11)
            plot = self.y - 5
        self.line((self.x(gain.published),) * 2, (plot - 12, plot + 10), self.blue, 6)
        interval = gain.one.measured.interval if gain.one.measured else None
        if interval:
            low, high = map(self.x, interval)
            self.line((low, high), (plot, plot), ink, 3 if decided else 1.5, 2)
        if abs(gain.value) > LIMIT:
            self.mark(self.x(gain.value), plot, long, ">" if gain.value > 0 else "<", soft=not decided)
        else:
            self.mark(self.x(gain.value), plot, long, soft=not decided)
        for value in gain.runs:
            if abs(value) <= LIMIT:
                self.axis.plot(self.x(value), plot + 13, "o", markersize=4, color=self.soft, markeredgewidth=0)
        if self.narrow:
            self.y = plot + 28
            self.text(4, gain.training, self.soft, 11)
        else:
            self.y += ROW - 26

    def _heads(self) -> None:
        """Of the columns of numbers."""
        self.text(272 if self.narrow else 505, "published", self.blue, 12, "right")
        self.text(346 if self.narrow else 568, "measured", self.ink, 12, "right")
        if not self.narrow:
            self.text(582, "trained here", self.soft, 12)

    def _grid(self, top: float, bottom: float) -> None:
        for tick in TICKS:
            self.line((self.x(tick),) * 2, (top, bottom), self.soft if tick == 0 else self.rule, 1.2, 0)

    def _axis(self) -> None:
        """The numbers along the axis, and what they are."""
        self.y += 30
        for tick in TICKS:
            self.text(self.x(tick), decimal(tick, 0, signed=True), self.soft, 12, "center")
        self.y += 18
        self.text((self.left + self.right) / 2, AXIS, self.soft, 11.5, "center")

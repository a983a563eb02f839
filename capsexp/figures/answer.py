"""The README's picture: what attention adds to the accuracy of a capsule network, published and measured, by data set.

A row per claim on accuracy of the same network with all of a source's attention and without. It comes in four files,
light and dark, wide and narrow.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capsexp.config.schema import Config
from capsexp.figures.sources import Missing, Sources, UndrawnError
from capsexp.results.claims import Measured, MeasuredClaim
from capsexp.results.collect import Results
from capsexp.study import studies
from capsexp.study.setting import title
from capsexp.study.studies import published_number
from capsexp.tables.texts import conjoined, decimal, effect, shorter, training

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
#: Marks of the legend, with the width of their texts in px.
LEGEND = {"published": 100, "measured, 95 % interval": 195, "trained shorter": 140, "one run": 70}


@dataclass(frozen=True)
class Gain:
    """What attention adds on one data set."""

    data: str  # its title
    attention: str  # dual, CBAM
    one: MeasuredClaim
    measured: Measured
    published: float

    @property
    def name(self) -> str:
        """The data set, and the attention where it isn't dual."""
        return self.data if self.attention == "dual" else f"{self.data} with {self.attention}"

    @property
    def is_corrected(self) -> bool:
        """Whether a gain is claimed, which "no decrease" isn't, and the claim holds after Holm's correction."""
        return self.one.holds and not self.one.claim.margin

    @property
    def is_above_0(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.measured.interval is not None and self.measured.interval[0] > 0

    @property
    def runs(self) -> list[float]:
        """Of each run with attention, or of each pair of networks where the claim has several, in points."""
        if len(self.one.claim.pairs) > 1:
            return [*self.measured.pairs]
        terms = {term.weight > 0: term.values for term in self.one.terms}  # none where no spread is known
        return [value - sum(terms[False]) / len(terms[False]) for value in terms.get(True, ())]

    @property
    def sized(self) -> str:
        """The name, with the gain: CIFAR-10 (+1.28 points, published +2.52)."""
        measured, published = (decimal(value, 2, signed=True) for value in (self.measured.value, self.published))
        return f"{self.name} ({measured} points, published {published})"

    @property
    def described(self) -> str:
        """Published and measured, and how trained, for the alt text."""
        published, measured = decimal(self.published, 2, signed=True), effect(self.one.claim, self.measured)
        return f"published {published}, measured {measured}; {self.training}"

    @property
    def training(self) -> str:
        """In short: 10/100 ep, lossy copy."""
        room = "no room: 100 % without" if self.one.verdict == "ceiling" else ""
        return ", ".join(filter(None, [shorter(training(self.one)), room]))


def gains(collected: Sequence[Results]) -> list[Gain]:
    """Of each source and data set the measured claim on most attention; first those trained long enough."""
    best: dict[tuple[str, str], tuple[tuple[int, bool], Gain]] = {}
    for results in collected:
        rows = {row.name: row for row in results.study.rows if row.run}
        for one in results.claims:
            claim, size = one.claim, published_number(one.claim.claimed)
            published = size.value if size else one.printed.value if one.printed else None
            compared = claim.measure in ("accuracy", "first_five") and claim.pairs and set(claim.compared) <= set(rows)
            if one.measured is None or one.reading or claim.ours or not compared or published is None:
                continue
            pairs = [[studies.config_of(rows[name].combinations()[0]) for name in pair] for pair in claim.pairs]
            same = all(without.model.name == having.model.name for without, having in pairs)
            if not same or any(_flags(without) or not _flags(having) for without, having in pairs):
                continue
            with_attention = pairs[0][1]
            data, kind = with_attention.data.name, "CBAM" if with_attention.attention.cbam else "dual"
            key, order = (results.study.publication, data), (_flags(with_attention), size is not None)
            if key not in best or order > best[key][0]:
                best[key] = order, Gain(title(data), kind, one, one.measured, published)
    return sorted((gain for _, gain in best.values()), key=lambda gain: (bool(gain.one.so_far), -gain.published))


def _flags(config: Config) -> int:
    """How many kinds of attention a network has."""
    return sum((config.attention.cbam, config.attention.conv, config.attention.caps))


@dataclass(frozen=True)
class Answer:
    """The picture."""

    gains: list[Gain]

    def files(self) -> dict[str, bytes]:
        """By suffix: an SVG file per width and theme, and the alt text."""
        from capsexp.figures.style import rendered  # matplotlib takes 30 MB: not for the report

        files = {
            f"{width}_{theme}.svg": rendered(_Card(self.gains, theme, narrow).figure, "svg")
            for width, narrow in (("", False), ("_narrow", True))
            for theme in COLOURS
        }
        return files | {".txt": f"{self.alt}\n".encode()}

    @property
    def alt(self) -> str:
        """All that the picture shows, as text."""
        rows = [f"{gain.data}, {gain.attention} attention: {gain.described}." for gain in self.gains]
        return " ".join([TITLE, *self.sentences, *rows])

    @property
    def sentences(self) -> list[str]:
        """Where a gain is shown, with its size, and where only its interval lies above 0."""
        above = [gain for gain in self.gains if gain.is_above_0]
        so_far = [gain.name for gain in above if gain.one.so_far]
        shown = [gain.sized for gain in above if not gain.one.so_far and gain.is_corrected]
        rest = [gain.name for gain in above if not gain.one.so_far and not gain.is_corrected]
        parts = [
            f"On {conjoined(shown)} yes." if shown else "",
            f"On {conjoined(rest)} only before Holm's correction." if rest else "",
            f"On {conjoined(so_far)} so far, before correction." if so_far else "",
            f"{'Elsewhere no' if above else 'No'} gain is shown.",
        ]
        return [*filter(None, parts)]


def answer(sources: Sources) -> tuple[Answer, list[Missing]]:
    """The picture of all studies; raises UndrawnError where no claim on attention was measured."""
    shown = gains(sources.collected)
    if not shown:
        raise UndrawnError
    return Answer(shown), []


class _Card:
    """One file, in px from the upper left corner; `y` is the base line of the last text."""

    def __init__(self, shown: Sequence[Gain], theme: str, narrow: bool) -> None:
        from matplotlib.figure import Figure

        self.ink, self.soft, self.rule, self.paper, self.blue = COLOURS[theme]
        self.narrow = narrow
        self.width = 360 if narrow else 830
        self.left, self.right = (14, 346) if narrow else (190, 440)  # of the axis
        self.columns = (272, 346) if narrow else (497, 568)  # right ends of the numbers
        self.figure = Figure(dpi=72, facecolor="none")
        self.axis: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.y = -10.0
        self._legend()
        self.y += 26
        self._numbers("published", "measured", self.ink, 12)
        if not narrow:
            self.text(582, "trained here", self.soft, 12)
        for long in (True, False):
            part = [gain for gain in shown if bool(gain.one.so_far) != long]
            if not part:
                continue
            self.y += 32
            for line in textwrap.wrap(LONG if long else SHORT, 42 if narrow else 110):
                self.text(4, line, self.ink if long else self.soft, weight="bold")
                self.y += 16
            self.y -= 8
            top = self.y
            for gain in part:
                self._row(gain, long)
            if not narrow:
                self._grid(top, self.y + 2)
        self.y += 30
        for tick in TICKS:
            self.text(self.x(tick), decimal(tick, 0, signed=True), self.soft, 12, "center")
        self.y += 18
        self.text((self.left + self.right) / 2, AXIS, self.soft, 11.5, "center")
        height = self.y + 8
        self.figure.set_size_inches(self.width / 72, height / 72)
        self.axis.set(xlim=(0, self.width), ylim=(height, 0))
        self.axis.axis("off")

    def x(self, points: float) -> float:
        """The x of a number of points, within the ends of the axis."""
        return (self.left + self.right) / 2 + max(-1.0, min(1.0, points / LIMIT)) * (self.right - self.left) / 2

    def text(
        self, x: float, text: str, colour: str, size: float = 13, align: str = "left", weight: str = "normal"
    ) -> None:
        self.axis.text(x, self.y, text, color=colour, fontsize=size, ha=align, va="baseline", weight=weight)

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float, order: float = 1) -> None:
        self.axis.plot(xs, ys, color=colour, linewidth=width, solid_capstyle="butt", zorder=order)

    def mark(self, x: float, y: float, long: bool, marker: str = "o", soft: bool = False) -> None:
        edge = self.ink if long and not soft else self.soft
        face: dict[str, Any] = {"markerfacecolor": edge if long else self.paper, "markeredgewidth": 2}
        self.axis.plot(x, y, marker, markersize=9, color=edge, zorder=3, **face)

    def _legend(self) -> None:
        """What the marks mean."""
        self.y += 28
        x = 18.0
        for name, wide in LEGEND.items():
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

    def _numbers(self, published: str, measured: str, ink: str, size: float, weight: str = "normal") -> None:
        self.text(self.columns[0], published, self.blue, size, "right")
        self.text(self.columns[1], measured, ink, size, "right", weight)

    def _row(self, gain: Gain, long: bool) -> None:
        """A data set: published and measured, as marks and as numbers."""
        decided = long and gain.one.verdict != "ceiling"
        ink, weight = (self.ink, "bold") if decided else (self.soft, "normal")
        name, name_weight = (self.ink, "bold") if long else (self.soft, "normal")
        numbers = (decimal(gain.published, 2, signed=True), decimal(gain.measured.value, 2, signed=True), ink)
        self.y += 26
        if self.narrow:
            self.text(4, f"{gain.data}, {gain.attention}", name, weight=name_weight)
            self._numbers(*numbers, 13, weight)
            plot = self.y + 20
            self._grid(plot - 12, plot + 16)
        else:
            self.text(4, gain.data, name, 14, weight=name_weight)
            self.text(178, gain.attention, self.soft, 12, "right")
            self._numbers(*numbers, 14, weight)
            self.text(582, gain.training, self.soft, 11)
            plot = self.y - 5
        self.line([self.x(gain.published)] * 2, (plot - 12, plot + 10), self.blue, 6)
        value, interval = gain.measured.value, gain.measured.interval
        if interval:
            self.line([*map(self.x, interval)], (plot, plot), ink, 3 if decided else 1.5, 2)
        beyond = ">" if value > LIMIT else "<" if value < -LIMIT else "o"
        self.mark(self.x(value), plot, long, beyond, soft=not decided)
        for value in gain.runs:
            if abs(value) <= LIMIT:
                self.axis.plot(self.x(value), plot + 13, "o", markersize=4, color=self.soft, markeredgewidth=0)
        if self.narrow:
            self.y = plot + 28
            self.text(4, gain.training, self.soft, 11)
        else:
            self.y += ROW - 26

    def _grid(self, top: float, bottom: float) -> None:
        for tick in TICKS:
            self.line([self.x(tick)] * 2, (top, bottom), self.soft if tick == 0 else self.rule, 1.2, 0)

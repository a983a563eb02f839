"""The strip plot: published beside measured, a row a network, a panel a data set; for wide and for narrow screens."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import Drawing, Theme
from capsexp.results.cells import is_whole
from capsexp.results.measures import MEASURES
from capsexp.results.study import MeasuredBlock, StudyResults
from capsexp.study.identity import title as title_of
from capsexp.tables.texts import decimal, printed

WIDE, NARROW, GAP = 830, 360, 28  # px: of the picture, and between its panels
NUMBER = 64  # px, a column of numbers
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"

#: The legend of a strip plot of seeds.
SEEDS = {"published": "published", "dot": "one seed", "mean": "mean of the seeds"}
INTERVAL = "95 % interval of a claim, from the other mean"
SHORT = "published, of a longer training than ours"


@dataclass(frozen=True)
class StripRow:
    """One row; without values only what is published is drawn."""

    label: str
    published: float | None
    values: Sequence[float] = ()  # a dot each
    center: float | None = None  # of the values
    texts: tuple[str, str] = ("", "")  # both numbers as printed: 82.95, ≥ 40.0
    interval: tuple[float, float] | None = None  # of a claim, from the mean of its other row


@dataclass(frozen=True)
class Strip:
    """A strip plot.

    Args:
        panels: by title; an empty one for a single panel.
        axis: what is drawn, with its unit.
        legend: by kind of mark (published, dot, mean) what it means.
        hollow: whether the values don't test the published numbers.
        remark: sentences below the panels.
    """

    panels: Mapping[str, Sequence[StripRow]]
    axis: str
    legend: Mapping[str, str] = field(default_factory=lambda: SEEDS)
    hollow: bool = False
    remark: str = ""

    def drawing(self, missing: Sequence[str] = ()) -> Drawing:
        """The picture in two themes and two widths."""
        return Drawing(lambda theme, narrow: _Picture(self, theme, narrow).svg(), missing, narrow=True)


def of_study(inputs: Inputs, study: str) -> Drawing:
    """The numbers of a study's rows in its first measure, beside what is printed, a panel a data set.

    They are those of the first setting in which some rows have runs; raises UndrawnError where none has. A study of
    costs has the seconds of its steps.
    """
    results = inputs.measured[study]
    measure = next((MEASURES[name] for name in results.study.measures if MEASURES[name].scale != "amount"), None)
    if measure is None:
        return _of_steps(results)
    rows = inputs.rows(study)
    trained = {line.row.data for line in rows.lines}
    panels: dict[str, list[StripRow]] = {}
    for line in rows.block.lines:
        if line.row.data in trained:
            cell, name, number = line.cells[measure.name], title_of(line.row.data), line.row.printed.get(measure.name)
            if number or cell.values:
                label, center = line.row.name.removesuffix(name).strip() or line.row.name, cell.mean
                text = "" if center is None else "≥ " * any(cell.bounds) + decimal(center, measure.digits)
                texts = printed(number, measure.name) if number else "", text
                interval = _interval(results, rows.block, line.row.name, measure.name)
                row = StripRow(label, number.value if number else None, cell.values, center, texts, interval)
                panels.setdefault(name, []).append(row)
    axis = measure.title[0].upper() + measure.title[1:]
    best, chosen = "Best test accuracy over the epochs, %", "Test accuracy, epoch chosen on held-out images, %"
    if measure.name == "accuracy":
        axis = chosen if rows.block.is_heldout else best
    hollow = not is_whole(results.study, rows.block.block, measure.name)
    return Strip(panels, axis, hollow=hollow, remark=f"Trained here: {rows.training}.").drawing(rows.missing)


def _interval(results: StudyResults, block: MeasuredBlock, row: str, measure: str) -> tuple[float, float] | None:
    """The ends of the 95 % interval of the first claim that sets a row against another one, from the other's mean."""
    means = {line.row.name: line.cells[measure].mean for line in block.lines}
    for one in results.claims:
        fits = one.block is block.block and one.claim.measure == measure and one.claim.estimate == "difference"
        ((a, b),) = one.claim.pairs if len(one.claim.pairs) == 1 else [("", "")]
        if fits and b == row and one.effect and one.effect.interval and (base := means.get(a)) is not None:
            low, high = (base + end for end in one.effect.interval)
            return MEASURES[measure].unscaled((low, high))
    return None


def _of_steps(results: StudyResults) -> Drawing:
    """The processor time of a claim's networks."""
    timed = next((one for one in results.claims if one.seconds), None)
    if timed is None:
        raise UndrawnError(f"no steps of {results.study.name} are measured: make bench-claims")
    of_rows = ((name, seconds, median(seconds)) for name, seconds in timed.seconds.items())
    rows = [StripRow(name, None, seconds, center, ("", decimal(center, 2))) for name, seconds, center in of_rows]
    legend = {"dot": "one round", "mean": "median of the rounds"}
    return Strip({"": rows}, "seconds of a batch", legend, remark=f"Here: {timed.reason}.").drawing()


def limits_of(rows: Sequence[StripRow]) -> tuple[float, float]:
    """The ends of an axis; it begins above values so low that the others could not be told apart."""
    numbers = (value for row in rows for value in (row.published, *row.values, *(row.interval or ())))
    known = sorted(value for value in numbers if value is not None) or [0.0]
    while len(known) > 2 and 0 < known[-1] - known[1] < (known[-1] - known[0]) / 4:
        del known[0]
    edge = 0.06 * (known[-1] - known[0]) or 0.05
    return known[0] - edge, known[-1] + edge


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Two round numbers within an axis, or up to `most`, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [factor * power for factor in (1, 2, 5, 10, 20)]
    numbers = [range(math.ceil(low / step), math.floor(high / step) + 1) for step in steps]
    at = next(at for at, fewer in enumerate(numbers[1:]) if (high - low) / steps[at] <= most or len(fewer) < 2)
    return [round(number * steps[at], 10) for number in numbers[at]]


class _Picture:
    """One file, in px from the upper left corner; `y` is where the next part begins."""

    def __init__(self, strip: Strip, theme: Theme, narrow: bool) -> None:
        self.strip, self.theme = strip, theme
        self.published, self.ink = (theme.soft, theme.soft) if strip.hollow else (theme.published, theme.ink)
        self.width, self.y, self.parts = NARROW if narrow else WIDE, 0.0, list[str]()
        self._legend()
        columns = 1 if narrow or len(strip.panels) == 1 else 2
        wide, panels = (self.width - GAP * (columns - 1)) / columns, [*strip.panels.items()]
        for first in range(0, len(panels), columns):
            top, ends = self.y, list[float]()
            for at, (title, rows) in enumerate(panels[first : first + columns]):
                self.y = top
                self._panel(title, rows, at * (wide + GAP), wide)
                ends.append(self.y)
            self.y = max(ends) + 20
        for line in textwrap.wrap(strip.remark, int(self.width / 6.4)):
            self.text(0, self.y, line, theme.soft, 12)
            self.y += 16

    def svg(self) -> bytes:
        """The file."""
        size = f'width="{self.width}" height="{self.y:.0f}" viewBox="0 0 {self.width} {self.y:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">'
        return "\n".join([head, *self.parts, "</svg>\n"]).encode()

    def add(self, name: str, content: str = "", /, **attributes: object) -> None:
        """Adds an element; px with one digit behind the point."""
        values = {key: f"{value:.1f}" if isinstance(value, float) else value for key, value in attributes.items()}
        text = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in values.items() if value != "")
        self.parts.append(f"<{name}{text}>{escape(content, quote=False)}</{name}>")

    def text(self, x: float, y: float, text: str, colour: str, size: int = 13, align: str = "") -> None:
        """A text with its base line at y; align: middle or end of the text is at x, else its beginning."""
        self.add("text", text, x=x, y=y, fill=colour, font_size=size, text_anchor=align)

    def line(self, x: float, y: float, right: float, bottom: float, colour: str, width: float) -> None:
        """A straight line."""
        self.add("line", x1=x, y1=y, x2=right, y2=bottom, stroke=colour, stroke_width=width)

    def _legend(self) -> None:
        """What the marks mean, that of numbers beyond an axis only where there are any."""
        x, self.y, legend = 0.0, 16.0, dict(self.strip.legend)
        every = [row for rows in self.strip.panels.values() for row in rows]
        self.has_published = any(row.published is not None for row in every)
        if not self.has_published:
            legend.pop("published", None)
        elif self.strip.hollow:
            legend["published"] = SHORT
        if any(row.interval for row in every):
            legend["interval"] = INTERVAL
        for rows in self.strip.panels.values():
            low, high = limits_of(rows)
            known = [value for row in rows for value in (row.published, *row.values) if value is not None]
            if any(not low <= value <= high for value in known):
                legend["beyond"] = "beyond the axis"
        for kind, meaning in legend.items():
            wide = 38 + 6.6 * len(meaning)
            if x and x + wide > self.width:
                x, self.y = 0.0, self.y + 20
            self._mark(kind, x + 9, self.y - 4)
            self.text(x + 24, self.y, meaning, self.theme.soft, 12)
            x += wide
        self.y += 30

    def _mark(self, kind: str, x: float, y: float) -> None:
        """A mark of the legend's kinds; hollow, and grey, of numbers that don't test each other."""
        soft, hollow = self.theme.soft, self.strip.hollow
        if kind == "published":
            self.line(x, y - 11, x, y + 11, self.published, 5 if hollow else 6)
        elif kind == "mean":
            self.line(x, y - 9, x, y + 9, self.ink, 2)
        elif kind == "interval":
            self.line(x - 9, y, x + 9, y, soft, 1.5)
        elif kind == "beyond":
            self._beyond(x - 4, y, -1, soft)
        elif hollow:
            self.add("circle", cx=x, cy=y, r=4.0, stroke=soft, stroke_width=1.5, fill=self.theme.paper)
        else:
            self.add("circle", cx=x, cy=y, r=4.5, fill=soft, opacity="0.7")

    def _panel(self, title: str, rows: Sequence[StripRow], left: float, wide: float) -> None:
        """A panel: title and heads of the columns, rows, axis."""
        theme, right = self.theme, left + wide
        self.ends, self.limits = (left + 8, right - 8), limits_of(rows)
        self.text(left, self.y, title, theme.ink, 14)
        if self.has_published:
            self.text(right - NUMBER, self.y, "published", self.published, 11, "end")
        self.text(right, self.y, "measured", theme.ink, 11, "end")
        self.y += 8
        shown = ticks(*self.limits)
        for row in rows:
            self._row(row, left, right, shown)
        for tick in shown:
            self.text(self.x(tick), self.y + 15, f"{tick:.10g}", theme.soft, 12, "middle")
        self.text(sum(self.ends) / 2, self.y + 33, self.strip.axis, theme.soft, 12, "middle")
        self.y += 42

    def x(self, value: float) -> float:
        """The x of a number, within the ends of the axis."""
        (low, high), (left, right) = self.limits, self.ends
        return left + max(0.0, min(1.0, (value - low) / (high - low))) * (right - left)

    def _row(self, row: StripRow, left: float, right: float, shown: Sequence[float]) -> None:
        """Label and numbers, below them the marks."""
        theme = self.theme
        label = textwrap.wrap(row.label, int((right - left - 2 * NUMBER) / 7.2)) or [""]
        base, y = self.y + 14, self.y + 14 * len(label) + 14
        self.y = y + 14
        for tick in shown:
            self.line(self.x(tick), y - 10, self.x(tick), y + 14, theme.rule, 1)
        for at, line in enumerate(label):
            self.text(left, base + 14 * at, line, theme.ink)
        if row.interval:
            self.line(self.x(row.interval[0]), y, self.x(row.interval[1]), y, theme.soft, 1.5)
        marks = [("published", row.published, self.published), *(("dot", value, theme.soft) for value in row.values)]
        if row.center is not None and self.limits[0] <= row.center:
            marks.append(("mean", row.center, self.ink))
        for kind, value, colour in marks:
            if value is not None:
                self._placed(value, y, colour, kind)
        for text, x, colour in zip(row.texts, (right - NUMBER, right), (self.published, theme.ink), strict=True):
            if text:
                self.text(x, base, text, colour, align="end")

    def _placed(self, value: float, y: float, colour: str, kind: str) -> None:
        """The mark at its place, or a triangle at the edge of the axis that it lies beyond."""
        x, (low, high) = self.x(value), self.limits
        if low <= value <= high:
            self._mark(kind, x, y)
        else:
            self._beyond(x, y, -1 if value < low else 1, colour)

    def _beyond(self, x: float, y: float, side: int, colour: str) -> None:
        """A triangle outside of x, to the left (−1) or to the right (1)."""
        self.add("path", d=f"M{x + 8 * side:.1f} {y:.1f}l{-9 * side} -5v10z", fill=colour)

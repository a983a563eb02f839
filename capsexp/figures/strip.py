"""The strip plot: published beside measured, a row a network, a panel a data set; for wide and for narrow screens."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import NARROW, PUBLISHED, WIDE, Drawing
from capsexp.results.cells import is_whole
from capsexp.results.measures import MEASURES
from capsexp.results.study import MeasuredBlock, StudyResults
from capsexp.study.identity import title as title_of
from capsexp.tables.texts import decimal, printed

#: The kinds of marks, and what they mean.
MEANINGS = {
    "published": "published",
    "dot": "one seed",
    "mean": "mean of the seeds",
    "interval": "95 % interval of a difference, from the other mean",
    "beyond": "beyond the axis",
}
SHORT = {"published": "published, of a longer training than ours"}


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
        meanings: of kinds of marks that mean something else here.
        hollow: whether the values don't test the published numbers.
        remark: sentences below the panels.
    """

    panels: Mapping[str, Sequence[StripRow]]
    axis: str
    meanings: Mapping[str, str] = field(default_factory=dict)
    hollow: bool = False
    remark: str = ""

    def plot(self, narrow: bool = False) -> Figure:
        """The panels, two beside each other or, where it is `narrow`, below; above them what the marks mean."""
        columns, panels = 1 if narrow or len(self.panels) == 1 else 2, [*self.panels.items()]
        heights = [max(len(rows) for _, rows in panels[at : at + columns]) for at in range(0, len(panels), columns)]
        figure, width = Figure(layout="constrained"), NARROW if narrow else WIDE
        figure.get_layout_engine().set(wspace=0.08, hspace=0.06)  # type: ignore[union-attr,call-arg]
        axes = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for axis, (title, rows) in zip(axes.flat, panels, strict=False):
            self._panel(axis, title, rows)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        drawn = {line.get_label() for axis in axes.flat for line in axis.lines}
        marks = [mark for mark in map(self._mark, MEANINGS) if mark.get_label() in drawn]
        remark, beside = textwrap.wrap(self.remark, int(15 * width)), 1 if narrow else min(len(marks), 4 - self.hollow)
        height = 0.22 * -(-len(marks) // beside) + sum(0.8 + 0.46 * rows for rows in heights) + 0.17 * len(remark)
        legend = {"ncols": beside, "handlelength": 1.6, "borderaxespad": 0.0, "labelcolor": _soft()}
        figure.legend(handles=marks, loc="outside upper left", **legend)
        figure.supxlabel("\n".join(remark), x=0, ha="left", fontsize=9, color=_soft())
        figure.set_size_inches(width, height)
        return figure

    def _panel(self, axis: Axes, title: str, rows: Sequence[StripRow]) -> None:
        """A line a row with its label and numbers, and below it the marks."""
        limits, of_axis = limits_of(rows), axis.get_yaxis_transform()
        axis.spines[:].set_visible(False)
        axis.set(xlim=limits, ylim=(len(rows) - 0.5, -0.45), yticks=[])
        axis.set_xlabel(self.axis, color=_soft())
        axis.set_title(title, loc="left", fontsize=10.5)
        axis.tick_params(length=0)
        whole = all(float(value).is_integer() for row in rows for value in row.values)  # epochs
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=whole))
        axis.xaxis.set_major_formatter("{x:g}")
        head = StripRow("", None, texts=("published" * any(row.published is not None for row in rows), "measured"))
        for place, row in zip([-0.62, *(at - 0.2 for at in range(len(rows)))], [head, *rows], strict=True):
            axis.text(0, place, row.label, transform=of_axis)
            colours = _soft() if self.hollow else PUBLISHED, rcParams["text.color"]
            for text, colour, right in zip(row.texts, colours, (-52, 0), strict=True):
                shifted = {"textcoords": "offset points", "ha": "right", "annotation_clip": False, "color": colour}
                axis.annotate(text, (1, place), (right, 0), xycoords=of_axis, **shifted)
        for y, row in zip(np.arange(len(rows)) + 0.15, rows, strict=True):
            axis.vlines(axis.get_xticks(), y - 0.25, y + 0.25, color=rcParams["grid.color"], linewidth=1, zorder=0)
            if row.interval:
                axis.add_line(self._mark("interval", row.interval, y))
            marks = [("published", row.published), *(("dot", value) for value in row.values), ("mean", row.center)]
            for kind, value in marks:
                if value is not None and limits[0] <= value <= limits[1]:
                    axis.add_line(self._mark(kind, [value], y))
                elif value is not None and kind != "mean":
                    axis.add_line(self._mark("beyond", [limits[value > limits[1]]], y, marker="<>"[value > limits[1]]))

    def _mark(self, kind: str, x: Sequence[float] = (), y: float = 0.0, **more: Any) -> Line2D:
        """A mark of the legend's kinds; hollow, and grey, of numbers that don't test each other."""
        published, filling = (_soft(), "none") if self.hollow else (PUBLISHED, _soft())
        styles: dict[str, dict[str, Any]] = {
            "published": {"marker": "|", "markersize": 16, "markeredgewidth": 4.5, "color": published},
            "dot": {"marker": "o", "markersize": 6, "markerfacecolor": filling, "alpha": 0.7},
            "mean": {"marker": "|", "markersize": 13, "markeredgewidth": 1.5, "color": rcParams["text.color"]},
            "interval": {"linestyle": "-", "linewidth": 1.2},
            "beyond": {"marker": "<", "markersize": 6},
        }
        label = {**MEANINGS, **(SHORT if self.hollow else {}), **self.meanings}[kind]
        usual = {"color": _soft(), "linestyle": "none", "clip_on": False, "zorder": 3, "label": label}
        return Line2D(x, [y] * len(x), **(usual | styles[kind] | more))


def _soft() -> Any:
    """The colour of less important texts and marks, of the present theme."""
    return rcParams["xtick.color"]


def of_study(inputs: Inputs, study: str) -> Drawing:
    """The numbers of a study's rows in its first measure, beside what is printed, a panel a data set.

    They are those of the setting of its answer; raises UndrawnError where no row has runs. A study of costs has the
    seconds of its steps.
    """
    results = inputs.measured[study]
    measure = next((MEASURES[name] for name in results.study.measures if MEASURES[name].scale != "amount"), None)
    if measure is None:
        return _of_steps(results)
    rows = inputs.rows(study)
    trained = {line.row.data for line in rows.lines}
    panels: dict[str, list[StripRow]] = {}
    others: dict[str, str] = {}  # of a row with an interval, the row whose mean it is set at
    for line in rows.block.lines:
        if line.row.data in trained:
            cell, name, number = line.cells[measure.name], title_of(line.row.data), line.row.printed.get(measure.name)
            if number or cell.values:
                label, center = line.row.name.removesuffix(name).strip() or line.row.name, cell.mean
                text = "" if center is None else "≥ " * any(cell.bounds) + decimal(center, measure.digits)
                texts = printed(number, measure.name) if number else "", text
                interval, other = _interval(results, rows.block, line.row.name, measure.name) or (None, "")
                others |= {label: other.removesuffix(name).strip()} if interval else {}
                row = StripRow(label, number.value if number else None, cell.values, center, texts, interval)
                panels.setdefault(name, []).append(row)
    axis = measure.title[0].upper() + measure.title[1:]
    best, chosen = "Best test accuracy over the epochs, %", "Test accuracy, epoch chosen on held-out images, %"
    if measure.name == "accuracy":
        axis = chosen if rows.block.is_heldout else best
    hollow = not is_whole(results.study, rows.block.block, measure.name)
    remark = f"Trained here: {rows.training}."
    if others:
        remark += f" Intervals: {', '.join(f'{row} against {other}' for row, other in others.items())}."
    meanings = {"mean": "geometric mean of the seeds"} if measure.scale == "epochs" else {}
    strip = Strip(panels, axis, meanings, hollow, remark)
    return Drawing(strip.plot, rows.missing, narrow=True)


def _interval(
    results: StudyResults, block: MeasuredBlock, row: str, measure: str
) -> tuple[tuple[float, float], str] | None:
    """The ends of the 95 % interval of a claim that sets a row against another one, from the other's mean; the other.

    The claim is the first that has a question, else the first.
    """
    means = {line.row.name: line.cells[measure].mean for line in block.lines}
    for one in sorted(results.claims, key=lambda one: not one.claim.question):
        fits = one.block is block.block and one.claim.measure == measure and one.claim.estimate == "difference"
        ((a, b),) = one.claim.pairs if len(one.claim.pairs) == 1 else [("", "")]
        if fits and b == row and one.effect and one.effect.interval and (base := means.get(a)) is not None:
            low, high = (base + end for end in one.effect.interval)
            return MEASURES[measure].unscaled((low, high)), a
    return None


def _of_steps(results: StudyResults) -> Drawing:
    """The processor time of a claim's networks."""
    timed = next((one for one in results.claims if one.seconds), None)
    if timed is None:
        raise UndrawnError(f"no steps of {results.study.name} are measured: make bench-claims")
    of_rows = ((name, seconds, median(seconds)) for name, seconds in timed.seconds.items())
    rows = [StripRow(name, None, seconds, center, ("", decimal(center, 2))) for name, seconds, center in of_rows]
    legend = {"dot": "one round", "mean": "median of the rounds"}
    strip = Strip({"": rows}, "seconds of a batch", legend, remark=f"Here: {timed.reason}.")
    return Drawing(strip.plot, narrow=True)


def limits_of(rows: Sequence[StripRow]) -> tuple[float, float]:
    """The ends of an axis; it begins above values so low that the others could not be told apart."""
    numbers = (value for row in rows for value in (row.published, *row.values, *(row.interval or ())))
    known = sorted(value for value in numbers if value is not None) or [0.0]
    while len(known) > 2 and 0 < known[-1] - known[1] < (known[-1] - known[0]) / 4:
        del known[0]
    edge = 0.06 * (known[-1] - known[0]) or 0.05
    return known[0] - edge, known[-1] + edge

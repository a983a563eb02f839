"""First epochs to the maximum of pairs of networks, with attention and without: printed beside measured."""

import textwrap
from collections.abc import Sequence
from statistics import geometric_mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capsexp.figures.inputs import Inputs
from capsexp.figures.style import FONT_SIZE, NARROW, PUBLISHED, Drawing
from capsexp.results.cells import MeasuredRow
from capsexp.tables.texts import decimal

MEASURE = "first_epoch"


def first_epochs(inputs: Inputs, study: str, title: str) -> Drawing:
    """A line for each label of a study's second column: an arrow a seed, from the first row with it to the second."""
    rows, column = inputs.rows(study), inputs.measured[study].study.columns[1]
    pairs: dict[str, list[MeasuredRow]] = {}
    for line in rows.block.lines:
        pairs.setdefault(line.row.labels[1], []).append(line)

    def plot(narrow: bool = False) -> Figure:
        height, texts = 0.9 + 0.45 * len(pairs), [f"{title}: ○ without → ● with it", f"measured: {rows.training}"]
        figure = Figure(figsize=(NARROW, 2 * height) if narrow else (9.6, height), layout="constrained")
        head, measured_as = (
            textwrap.fill(text, 48 if narrow else width) for text, width in zip(texts, (120, 64), strict=True)
        )
        figure.suptitle(head)
        printed, measured = figure.subplots(*((2, 1) if narrow else (1, 2)), sharex=True, sharey=True)
        printed.set_title("printed", color=PUBLISHED)
        measured.set_title(measured_as, fontsize=FONT_SIZE)
        for at, (without, added, *_) in enumerate(pairs.values()):
            numbers = [line.row.printed.get(MEASURE) for line in (without, added)]
            _arrows(printed, at, [[number.value] if number else [] for number in numbers], PUBLISHED)
            _arrows(measured, at, [line.cells[MEASURE].values for line in (without, added)], "C0")
        for axis in (printed, measured):
            axis.set(xlabel="first epoch with the maximum", xlim=(0, 300), ylim=(len(pairs) - 0.5, -0.5))
            axis.set_yticks(range(len(pairs)), [f"{column}: {label}" for label in pairs])
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="x")
        return figure

    return Drawing(plot, rows.missing, narrow=True)


def _arrows(axis: Axes, at: int, epochs: Sequence[Sequence[float]], colour: str) -> None:
    """Both networks' epochs, each seed a little lower, and how many more the second needs, by geometric means."""
    without, added = epochs
    for kind, values in (("none", without), (colour, added)):
        heights = [at + 0.2 * seed for seed in range(len(values))]
        axis.plot(values, heights, "o", color=colour, markerfacecolor=kind, markersize=6)
    for seed, (start, end) in enumerate(zip(without, added, strict=False)):
        arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 3, "shrinkB": 3}
        axis.annotate("", (end, at + 0.2 * seed), (start, at + 0.2 * seed), arrowprops=arrow)
    text = "no pair"
    if without and added:
        change = geometric_mean(added) / geometric_mean(without) - 1
        text = f"{decimal(100 * change, 0, signed=True)} %"
    axis.text(298, at, text, ha="right", va="center")

"""jiao, Table II as a figure: accuracy and first epoch of each network, published beside measured."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from capsexp.errors import plural
from capsexp.figures.curves import Drawing
from capsexp.figures.sources import Sources, Trainings
from capsexp.figures.style import FONT_SIZE, GREY, STYLES, WIDTH, PaperFigure
from capsexp.results.collect import Line
from capsexp.study.studies import published_number

PLAIN, CBAM = STYLES[0], STYLES[2]
MEASURES = {"accuracy": "maximum accuracy on the test set, %", "first_epoch": "first epoch with the maximum"}
NOTE = (
    "Hollow: published. Filled: measured, the mean over seeds with the 95 % prediction interval of one more run; small "
    "dots: its seeds. Where seeds differ far more than elsewhere (unstable) they stand alone. Arrow to the right: a "
    "lower bound, as the maximum is in the last epoch trained."
)


def table2(sources: Sources) -> Drawing:
    """A plot per measure, a line per network: maximum accuracy and, unless all are bounds, its first epoch."""
    lines, missing = sources.rows("jiao_table2")
    bounds = all(all(line.cell("first_epoch").bounds) for line in lines)
    measures = list(MEASURES)[: 1 if bounds else 2]
    title = "jiao, Table II: CapsNet with 1 to 5 routing iterations, without and with CBAM"
    figure = PaperFigure(title, (7 if bounds else WIDTH, 5), (1, len(measures)))
    trainings = Trainings(lines)
    for axis, measure in zip(figure.axes[0], measures, strict=True):
        limits = _limits(lines, measure)
        for at, line in enumerate(lines):
            _draw_row(axis, line, measure, at, limits[0])
        if measure == "first_epoch":  # compared as logarithms, too
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
        axis.set(xlim=limits, ylim=(len(lines) - 0.5, -0.5), xlabel=MEASURES[measure])
        axis.set_yticks(range(len(lines)), [])
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
    figure.axes[0][0].set_yticks(range(len(lines)), [trainings.mark(line.row.name, line.setting) for line in lines])
    figure.describe(*map(_described, lines))
    figure.note(NOTE, *trainings.notes())
    return figure, missing


def _draw_row(axis: Axes, line: Line, measure: str, at: int, low: float) -> None:
    """Published; mean, interval and seeds; of an unstable cell the seeds, those beyond the plot as numbers at its edge.

    Args:
        at: the row's y.
        low: where the x axis begins.
    """
    cell, style = line.cell(measure), CBAM if line.row.labels[2] == "yes" else PLAIN
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
    if printed := published_number(line.row.published.get(measure)):
        axis.plot(printed.value, at, style.marker, color=style.color, markerfacecolor="white", markersize=7)
    if any(cell.bounds):
        arrow = {"arrowstyle": "<-", "color": style.color}
        axis.annotate(f"≥ {cell.mean:.3g}", (cell.mean, at), (28, 0), arrowprops=arrow, **beside)
    elif cell.low is not None and cell.high is not None:
        axis.plot([cell.low, cell.high], [at, at], color=style.color, linewidth=1)
    if cell.mean is not None and not cell.unstable:
        axis.plot(cell.mean, at, style.marker, color=style.color, markersize=7)
    if cell.n > 1:
        shown = [value for value in cell.values if value >= low]
        axis.plot(shown, [at + 0.25] * len(shown), "o", color=style.color, markersize=3)
    if below := [f"{value:.2f}" for value in cell.values if value < low]:
        axis.annotate(f"← {', '.join(below)}", (low, at), (4, 0), fontsize=FONT_SIZE, color=GREY, **beside)


def _limits(lines: Sequence[Line], measure: str) -> tuple[float, float]:
    """Of the x axis: all but the seeds of unstable cells below their median; from the first epoch."""
    values: list[float | None] = []
    for line in lines:
        cell, printed = line.cell(measure), published_number(line.row.published.get(measure))
        values += [printed.value if printed else None, cell.mean, cell.low, cell.high, max(cell.values, default=None)]
        values += [] if cell.unstable else cell.values
    known = [value for value in values if value is not None]
    if measure == "first_epoch":
        return 0.8, 1.3 * max(known)
    edge = 0.06 * (max(known) - min(known)) or 0.1
    return min(known) - edge, max(known) + edge


def _described(line: Line) -> str:
    """For the alt text."""
    accuracy, first = line.cell("accuracy"), line.cell("first_epoch")
    measured = "no runs"
    if accuracy.unstable:
        measured = f"unstable, {', '.join(f'{value:.2f}' for value in accuracy.values)} %"
    elif accuracy.n:
        measured = f"{accuracy.mean:.2f} % ({plural(accuracy.n, 'seed')})"
    if first.n:
        measured += f" first in epoch {'≥ ' * any(first.bounds)}{first.mean:.3g}"
    printed, epoch = (line.row.published.get(measure, "") for measure in MEASURES)
    number = published_number(printed)
    published = f"published {number.value:.2f} % first in epoch {epoch}" if number else f"published: {printed}"
    return f"{line.row.name}: {measured}; {published}."

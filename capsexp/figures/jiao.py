"""jiao, Table II as a figure: accuracy and first epoch of each network, published beside measured."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from capsexp.errors import plural
from capsexp.figures.curves import Drawing, without
from capsexp.figures.sources import Sources, Trainings
from capsexp.figures.style import FONT_SIZE, GREY, STYLES, WIDTH, PaperFigure, SeriesStyle
from capsexp.results.collect import Line
from capsexp.study.studies import published_number

STUDY = "jiao_table2"
PLAIN, CBAM = STYLES[0], STYLES[2]
MEASURES = {"accuracy": "maximum accuracy on the test set, %", "first_epoch": "first epoch with the maximum"}
NOTE = (
    "Hollow: published. Filled: measured, the mean over seeds with the 95 % prediction interval of one more run; small "
    "dots: its seeds. Where seeds differ far more than elsewhere (unstable) they stand alone. Arrow to the right: a "
    "lower bound, as the maximum is in the last epoch trained."
)


def table2(sources: Sources) -> Drawing:
    """A plot per measure, a line per network: maximum accuracy and, unless all are bounds, its first epoch."""
    lines = sources.lines(STUDY)
    missing = sources.missing(lines, STUDY)
    if not any(line.runs for line in lines):
        return None, missing
    known = [line.cell("first_epoch") for line in lines if line.runs]
    measures = list(MEASURES)[: 1 if all(all(cell.bounds) for cell in known) else 2]
    title = "jiao, Table II: CapsNet with 1 to 5 routing iterations, without and with CBAM"
    figure = PaperFigure(title, (7 if len(measures) == 1 else WIDTH, 5), (1, len(measures)))
    trainings = Trainings(lines)
    for axis, measure in zip(figure.axes[0], measures, strict=True):
        _draw(axis, lines, measure)
        axis.set_xlabel(MEASURES[measure])
        axis.set_yticks(range(len(lines)), [])
    figure.axes[0][0].set_yticks(range(len(lines)), [trainings.mark(line.row.name, line.setting) for line in lines])
    figure.describe(*map(_described, lines))
    figure.note(NOTE, trainings.note, without(lines))
    return figure, missing


def _draw(axis: Axes, lines: Sequence[Line], measure: str) -> None:
    low, high = _limits(lines, measure)
    for place, line in enumerate(lines):
        style = CBAM if line.row.labels[2] == "yes" else PLAIN
        if printed := published_number(line.row.published.get(measure)):
            axis.plot(printed.value, place, style.marker, color=style.color, markerfacecolor="white", markersize=7)
        _draw_measured(axis, line, measure, place, style, (low, high))
    axis.set(xlim=(low, high), ylim=(len(lines) - 0.5, -0.5))
    axis.grid(axis="x", color="0.9")
    axis.set_axisbelow(True)


def _draw_measured(
    axis: Axes, line: Line, measure: str, place: int, style: SeriesStyle, limits: tuple[float, float]
) -> None:
    """Mean, interval and seeds; of an unstable cell the seeds, those beyond the plot as numbers at its edge."""
    cell, (low, high) = line.cell(measure), limits
    below = [value for value in cell.values if value < low]
    if any(cell.bounds):
        end = (cell.mean or 0) + 0.09 * (high - low)
        arrow = {"arrowstyle": "->", "color": style.color}
        drawn = [
            axis.annotate("", (end, place), (cell.mean, place), arrowprops=arrow),
            axis.annotate(f"≥ {cell.mean:.3g}", (end, place), (3, 0), textcoords="offset points", va="center"),
        ]
        for each in drawn:
            each.set_annotation_clip(False)  # drawn outside the axes, too
    elif cell.low is not None and cell.high is not None:
        axis.plot([cell.low, cell.high], [place, place], color=style.color, linewidth=1)
    if cell.mean is not None and not cell.unstable:
        axis.plot(cell.mean, place, style.marker, color=style.color, markersize=7)
    if cell.n > 1:
        shown = [value for value in cell.values if value >= low]
        axis.plot(shown, [place + 0.25] * len(shown), "o", color=style.color, markersize=3)
    if below:
        text = f"← {', '.join(f'{value:.2f}' for value in below)}"
        axis.annotate(
            text, (low, place), (4, 0), textcoords="offset points", va="center", fontsize=FONT_SIZE, color=GREY
        )


def _limits(lines: Sequence[Line], measure: str) -> tuple[float, float]:
    """Of the x axis: all but the seeds of unstable cells below their median; from 0 for epochs."""
    values = []
    for line in lines:
        cell, printed = line.cell(measure), published_number(line.row.published.get(measure))
        values += [printed.value] if printed else []
        values += [
            value for value in (cell.mean, cell.low, cell.high, cell.mean and max(cell.values)) if value is not None
        ]
        values += [] if cell.unstable else cell.values
    low, high = (0 if measure == "first_epoch" else min(values)), max(values)
    edge = 0.06 * (high - low) or 0.1
    return low - edge * (measure != "first_epoch"), high + edge


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

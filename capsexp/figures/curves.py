"""Accuracy by epoch: huang, Figs. 10 to 13; tsai, Figs. 4 and 5."""

from collections.abc import Sequence
from statistics import mean, stdev

from matplotlib.axes import Axes

from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import LOOKS, Look, Page, count_epochs, legend, level
from capsexp.results.collect import Line
from capsexp.results.page import Footnotes
from capsexp.study.studies import published_number

Drawn = tuple[Page | None, list[Missing]]

BAND = "Lines: mean over seeds (n), band: ± standard deviation; n = 1: one run, no band."
CUT = 20  # epochs: curves as long begin with a tenth that may lie below the plot, so that the rest is seen
LEVELS = "Dotted levels and the numbers at the right: the published maxima"


def huang_curves(number: int, data: str, option: str) -> "Curves":
    """Fig. 11, 12 or 13: the four attention cases on one data set, with Table 2's numbers."""
    title = f"huang, Fig. {number}: accuracy on the test set of {data} by epoch"
    return Curves(title, "huang_table2", {"data": data}, (f"data={option}",), f"{LEVELS} (Table 2).")


class Curves:
    """A figure of one plot: the rows of a study, or some of them, as curves over epochs, with published levels."""

    def __init__(self, title: str, study: str, labels: dict[str, str], words: tuple[str, ...], levels: str) -> None:
        self.title, self.study, self.labels, self.words, self.levels = title, study, labels, words, levels

    def __call__(self, sources: Sources) -> Drawn:
        """The figure, and which rows it lacks."""
        rows = sources.lines(self.study, **self.labels)
        lacking = [measured for measured in rows if not measured.runs]
        missing = sources.missing(lacking, self.study, *self.words)
        if len(lacking) == len(rows):
            return None, missing
        page, notes = Page(self.title, (7, 5)), sources.footnotes(self.study)
        (axis,) = page.axes[0]
        data = self.labels.get("data", "")
        draw_curves(axis, rows, notes, [measured.row.name.removesuffix(f" {data}") for measured in rows])
        level(axis, levels(rows))
        legend(axis, 2)
        page.note(band(rows), self.levels, *notes.texts(), without(lacking))
        return page, missing


def draw_curves(axis: Axes, rows: Sequence[Line], notes: Footnotes, names: Sequence[str] = ()) -> None:
    """Rows as curves, each with its look.

    Args:
        names: for the legend, in place of the rows' own.
    """
    for index, measured in enumerate(rows):
        name = names[index] if names else measured.row.name
        if printed(measured) and not measured.runs:  # so that its level has a name
            axis.plot([], [], label=f"{name} (no runs)", **LOOKS[index].curve)
        if measured.runs:
            label = notes.cell(f"{name} (n = {len(measured.runs)})", measured.cell("accuracy"))
            draw_curve(axis, curves(measured), LOOKS[index], label, index)
    late = [curve[len(curve) // 10 if len(curve) >= CUT else 0 :] for row in rows for curve in curves(row)]
    if late:
        low, high = min(map(min, late)), max(map(max, late))
        axis.set_ylim(bottom=low - 0.05 * (high - low) - 0.1)
    count_epochs(axis)
    axis.set_ylabel("accuracy on the test set, %")


def draw_curve(axis: Axes, curves: Sequence[Sequence[float]], look: Look, label: str, shift: int = 0) -> None:
    """One row: the mean over seeds, and where there are several their standard deviation.

    Args:
        shift: of the markers, so that those of several curves don't cover each other.
    """
    points = [list(point) for point in zip(*curves, strict=True)]
    epochs, middles = range(1, len(points) + 1), [mean(point) for point in points]
    step = max(1, len(points) // 8)
    axis.plot(epochs, middles, label=label, markevery=(shift * step // 5, step), **look.curve)
    if len(curves) > 1:
        spreads = [stdev(point) for point in points]
        low = [middle - spread for middle, spread in zip(middles, spreads, strict=True)]
        high = [middle + spread for middle, spread in zip(middles, spreads, strict=True)]
        axis.fill_between(epochs, low, high, color=look.color, alpha=0.2, linewidth=0)


def band(rows: Sequence[Line]) -> str:
    """What the lines mean, as a note."""
    long = any(len(curve) >= CUT for measured in rows for curve in curves(measured))
    return BAND + " The first tenth of the epochs may lie below the plot." * long


def curves(line: Line) -> list[list[float]]:
    """Test accuracy in percent, a list a seed, epoch by epoch; settings have one number of epochs."""
    return [run.curve for run in line.runs]


def printed(line: Line) -> str | None:
    """The published accuracy as printed, where it is a number."""
    text = line.row.published.get("accuracy", "")
    return text if published_number(text) else None


def levels(rows: Sequence[Line]) -> list[tuple[str, float, Look]]:
    """The rows' published accuracies."""
    found = [(printed(measured), LOOKS[index]) for index, measured in enumerate(rows)]
    return [(text, number(text), look) for text, look in found if text]


def number(printed: str) -> float:
    """A printed number; raises ValueError for what is none."""
    if (published := published_number(printed)) is None:
        raise ValueError(f"{printed}: not a number")
    return published.value


def without(rows: Sequence[Line]) -> str:
    """The rows that a figure lacks, as a note."""
    return f"No finished runs of {', '.join(dict.fromkeys(measured.row.name for measured in rows))}." if rows else ""

"""Accuracy by epoch, with the published numbers: the plot that figures of huang, ou and tsai share."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from capsexp.errors import plural
from capsexp.figures.sources import Missing, Trainings
from capsexp.figures.style import STYLES, PaperFigure, SeriesStyle, count_along, legend
from capsexp.results.collect import Line
from capsexp.study.studies import published_number

#: A figure, and what it was drawn without.
Drawing = tuple[PaperFigure, list[Missing]]

BAND = "Lines: mean over seeds (n), band: ± standard deviation; n = 1: one run, no band."
CUT = 20  # epochs: the first quarter of longer curves may lie below the plot, so that the rest can be told apart


def draw_accuracy(
    figure: PaperFigure, axis: Axes, lines: Sequence[Line], *notes: str, names: Sequence[str] = (), columns: int = 2
) -> None:
    """The curves of rows with a legend below, their sentences of the alt text and notes of the caption.

    Args:
        notes: in the caption between those on the curves and on their training.
        names: of the rows in the legend, in place of their own.
        columns: of the legend.
    """
    trainings = Trainings(lines)
    draw_curves(axis, lines, trainings, names)
    legend(axis, columns)
    for name, line in zip(names or [line.row.name for line in lines], lines, strict=True):
        parts = [f"published {text}" for text in (published_accuracy(line),) if text]
        if line.runs:
            first, last = (sum(run.curve[at] for run in line.runs) / len(line.runs) for at in (0, -1))
            epochs, seeds = len(line.runs[0].curve), plural(len(line.runs), "seed")
            parts.insert(0, f"{first:.1f} % after epoch 1, {last:.1f} % after epoch {epochs} ({seeds})")
        figure.describe(*[f"{name}: {'; '.join(parts)}."] * bool(parts))
    figure.note(band(lines), *notes, *trainings.notes())


def draw_curves(
    axis: Axes,
    lines: Sequence[Line],
    trainings: Trainings,
    names: Sequence[str] = (),
    styles: Sequence[SeriesStyle] = STYLES,
) -> None:
    """A curve per row: the mean over seeds and, for several, the standard deviation; rows without runs as legends."""
    late = []
    for index, line in enumerate(lines):
        name, style = names[index] if names else line.row.name, styles[index]
        if line.runs:
            label = trainings.mark(f"{name} (n = {len(line.runs)})", line.setting)
            curves = np.array([run.curve for run in line.runs])  # [seeds, epochs]: a setting has one number of epochs
            epochs, mean = range(1, curves.shape[1] + 1), curves.mean(axis=0)
            step = max(1, len(epochs) // 8)
            axis.plot(epochs, mean, label=label, markevery=(index * step // 5, step), **style.curve)
            if len(curves) > 1:
                sd = curves.std(axis=0, ddof=1)
                axis.fill_between(epochs, mean - sd, mean + sd, color=style.color, alpha=0.2, linewidth=0)
            late.append(curves[:, len(epochs) // 4 if len(epochs) >= CUT else 0 :])
        elif published_accuracy(line):
            axis.plot([], [], label=f"{name} (no runs)", **style.curve)
    if late:
        low, high = min(curves.min() for curves in late), max(curves.max() for curves in late)
        edge = 0.05 * (high - low) + 0.1
        axis.set_ylim(low - edge, high + edge)
    count_along(axis, "epoch")
    axis.set_ylabel("accuracy on the test set, %")


def band(lines: Sequence[Line]) -> str:
    """A note on what is drawn."""
    cut = any(len(run.curve) >= CUT for line in lines for run in line.runs)
    return BAND + " The first quarter of the epochs may lie below the plot." * cut


def published_accuracy(line: Line) -> str | None:
    """As printed; None where it is no number."""
    number = published_number(line.row.published.get("accuracy"))
    return number.text if number else None


def published_accuracies(lines: Sequence[Line]) -> list[tuple[str, SeriesStyle]]:
    """The rows' published accuracies, where they are numbers, with the rows' styles."""
    return [(text, STYLES[index]) for index, line in enumerate(lines) if (text := published_accuracy(line))]

"""The accuracy by epoch of what is compared, a curve a side."""

from capsexp.compare import Comparison
from capsexp.errors import InputError
from capsexp.figures.curves import draw_curves
from capsexp.figures.sources import Trainings
from capsexp.figures.style import STYLES, PaperFigure, default_style, legend


def draw(comparison: Comparison) -> dict[str, bytes]:
    """The figure by suffix; raises InputError for more curves than can be told apart."""
    lines = [line for line in comparison.results.lines if line.runs]
    if len(lines) > len(STYLES):
        raise InputError(f"{len(lines)} curves: {len(STYLES)} can be told apart; compare fewer runs")
    with default_style():
        figure = PaperFigure("Accuracy by epoch: mean over seeds (n) ± standard deviation", (8, 4.5))
        axis = figure.axes[0][0]
        draw_curves(axis, lines, Trainings(lines))
        legend(axis)
        return figure.files()

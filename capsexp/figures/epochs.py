"""huang, Fig. 10: epochs to the top on MNIST."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from capsexp.figures.curves import Drawn, band, draw_curves, number, without
from capsexp.figures.sources import Sources
from capsexp.figures.style import GREY, LOOKS, Page, legend
from capsexp.results.collect import Line
from capsexp.results.page import Footnotes

STUDY = "huang_fig10"
BARS = (
    "Bars: first epoch with the run's own maximum, mean over seeds ± standard deviation, a circle a seed; white: as "
    'published, to "100% accuracy".'
)


def to_the_top(sources: Sources) -> Drawn:
    """Accuracy by epoch, and the epochs until the maximum, beside the published ones."""
    rows = sources.lines(STUDY)
    lacking = [measured for measured in rows if not measured.runs]
    missing = sources.missing(lacking, STUDY)
    if len(lacking) == len(rows):
        return None, missing
    page, notes = (
        Page("huang, Fig. 10: accuracy on MNIST's test set, and epochs to the top", (10, 5), (1, 2)),
        sources.footnotes(STUDY),
    )
    left, right = page.axes[0]
    draw_curves(left, rows, notes)
    legend(left, 2)
    _draw_bars(right, rows, notes)
    page.note(band(rows), BARS, *notes.texts(), without(lacking))
    return page, missing


def _draw_bars(axis: Axes, rows: Sequence[Line], notes: Footnotes) -> None:
    """Two bars a row: ours and the published one."""
    for place, (measured, look) in enumerate(zip(rows, LOOKS, strict=False)):
        cell, printed = measured.cell("first_epoch"), measured.row.published["first_epoch"]
        if measured.runs:
            style: dict[str, Any] = {
                "color": look.color,
                "alpha": 0.6,
                "hatch": look.hatch,
                "yerr": cell.sd,
                "capsize": 4,
            }
            axis.bar(place - 0.2, cell.mean or 0, 0.36, **style)
            axis.plot([place - 0.2] * cell.n, cell.values, "o", color="white", markeredgecolor="black", markersize=5)
        axis.bar(place + 0.2, number(printed), 0.36, color="white", edgecolor=GREY, linestyle="--")
        axis.annotate(printed, (place + 0.2, number(printed)), ha="center", va="bottom", color=GREY)
    axis.set_xticks(range(len(rows)), [measured.row.name.replace("+", "\n+") for measured in rows])
    axis.set_ylabel("epochs to the top")

"""huang, Fig. 10: epochs to the top on MNIST."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from capsexp.figures.curves import Drawn, band, draw_curves, number, without
from capsexp.figures.sources import Measured, Sources
from capsexp.figures.style import GREY, LOOKS, Page, legend
from capsexp.results.sheets import Marks

STUDY = "huang_fig10"
BARS = (
    "Bars: first epoch with the run's own maximum, mean over seeds ± standard deviation, a circle a seed; white: as "
    'published, to "100% accuracy".'
)


def to_the_top(sources: Sources) -> Drawn:
    """Accuracy by epoch, and the epochs until the maximum, beside the published ones."""
    rows = sources.rows(STUDY)
    lacking = [measured for measured in rows if not measured.records]
    missing = sources.missing(lacking, STUDY)
    if len(lacking) == len(rows):
        return None, missing
    page, marks = (
        Page("huang, Fig. 10: accuracy on MNIST's test set, and epochs to the top", (10, 5), (1, 2)),
        sources.marks(STUDY),
    )
    left, right = page.axes[0]
    draw_curves(left, rows, marks)
    legend(left, 2)
    _draw_bars(right, rows, marks)
    page.note(band(rows), BARS, *marks.captions(), without(lacking))
    return page, missing


def _draw_bars(axis: Axes, rows: Sequence[Measured], marks: Marks) -> None:
    """Two bars a row: ours and the published one."""
    for place, (measured, look) in enumerate(zip(rows, LOOKS, strict=False)):
        line, printed = measured.line, measured.row.published["first_epoch"]
        if measured.records:
            ours = [record.first_epoch_to_max or 0 for record in measured.records]
            spread = line["first_epoch_sd"] if len(ours) > 1 else None
            middle = line["first_epoch_mean"]
            axis.bar(place - 0.2, middle, 0.36, yerr=spread, capsize=4, color=look.color, alpha=0.6, hatch=look.hatch)
            axis.plot([place - 0.2] * len(ours), ours, "o", color="white", markeredgecolor="black", markersize=5)
        axis.bar(place + 0.2, number(printed), 0.36, color="white", edgecolor=GREY, linestyle="--")
        axis.annotate(printed, (place + 0.2, number(printed)), ha="center", va="bottom", color=GREY)
    axis.set_xticks(range(len(rows)), [measured.row.name.replace("+", "\n+") for measured in rows])
    axis.set_ylabel("epochs to the top")

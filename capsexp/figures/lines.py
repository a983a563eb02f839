"""Plots of lines: accuracy by epoch, and numbers by routing iterations; the mean over seeds ± standard deviation."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capsexp.figures.inputs import Inputs
from capsexp.figures.style import NARROW, STYLES, Drawing
from capsexp.results.cells import MeasuredRow

LONG = 20  # epochs, of which the first quarter may lie below the plot, so that the rest can be told apart

#: x -> a value a seed.
Series = Mapping[int, Sequence[float]]


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    series: Mapping[str, Series]  # by name
    along: str = "epoch"
    of: str = "accuracy on the test set, %"


def curve(line: MeasuredRow) -> Series:
    """A row's accuracies by epoch."""
    return dict(enumerate(zip(*(run.curve for run in line.runs), strict=True), 1))


def accuracy_by_epoch(inputs: Inputs, study: str, title: str, label: str = "") -> Drawing:
    """The accuracy by epoch of a study's rows.

    Args:
        title: names the source's figure.
        label: of the rows that are drawn; all if none is given.
    """
    rows = inputs.rows(study, label)
    series = {line.row.name.removesuffix(label).strip(): curve(line) for line in rows.lines}
    return drawing(title, [Panel("", series)], rows.training, rows.missing)


def drawing(title: str, panels: Sequence[Panel], training: str, missing: Sequence[str]) -> Drawing:
    """Plots, at most three in a row, with a legend below, of all or of those with the same series.

    Plots of the same quantity have the same axis; without series there is none.
    """
    panels = [panel for panel in panels if panel.series]
    shared = len({(*panel.series,) for panel in panels}) == 1

    def plot(narrow: bool = False) -> Figure:
        columns = 1 if narrow else min(3, len(panels))
        rows, width = -(-len(panels) // columns), NARROW if narrow else 6.0 if columns == 1 else 3.2 * columns
        figure = Figure(figsize=(width, 1.2 + 2.8 * rows), layout="constrained")
        head = [line for text in (title, _caption(panels, training)) for line in textwrap.wrap(text, int(13 * width))]
        figure.suptitle("\n".join(head), fontsize=10)
        for at, panel in enumerate(panels, 1):
            axis = figure.add_subplot(rows, columns, at)
            _draw(axis, panel)
            axis.set_ylim(_limits([other for other in panels if other.of == panel.of]))
            followed = [*panel.series] in [[*other.series] for other in panels[at : at + 1]]
            if not shared and len(panel.series) > 1 and not followed:
                axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
        if shared:
            handles, names = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, names, ncols=min(columns + 1, len(names)), loc="outside lower center")
        return figure

    return Drawing(plot, missing, narrow=True)


def _caption(panels: Sequence[Panel], training: str) -> str:
    """What lines and bands are, and how the networks were trained."""
    seeds = [len(values) for panel in panels for series in panel.series.values() for values in series.values()]
    least, most = min(seeds), max(seeds)
    count = f"{least} to {most}" if least < most else str(most)
    return f"{f'mean ± standard deviation over {count} runs' if most > 1 else 'one run each'}; {training}"


def _draw(axis: Axes, panel: Panel) -> None:
    """The series of a panel, in the order of STYLES."""
    axis.set(title=panel.title, xlabel=panel.along, ylabel=textwrap.fill(panel.of, 28))
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for index, ((name, series), style) in enumerate(zip(panel.series.items(), STYLES, strict=False)):
        mean = np.array([np.mean(values) for values in series.values()])
        sd = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in series.values()])
        step = max(1, len(series) // 8)
        axis.plot([*series], mean, label=name, markevery=(index * step // 5, step), **style)
        if sd.any():
            axis.fill_between([*series], mean - sd, mean + sd, color=style["color"], alpha=0.15, linewidth=0)


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """The ends of the y axis of plots; of a long training its first quarter and single epochs may lie below."""
    shown, lows = list[float](), list[float]()
    for series in (series for panel in panels for series in panel.series.values()):
        first = len(series) // 4 if len(series) >= LONG else 0
        late = [value for values in [*series.values()][first:] for value in values]
        lows.append(float(np.quantile(late, 0.02)) if first else min(late))
        shown += late
    low, high = min(lows), max(shown)
    edge = 0.05 * (high - low) + 0.1
    return low - edge, high + edge

"""tsai, Fig. 4: routing iterations, ablations, memory and time. Fig. 5: overlaid digits."""

import math
from collections.abc import Collection, Sequence

from matplotlib.axes import Axes

from capsexp.errors import plural
from capsexp.figures.curves import Drawing, band, draw_accuracy, draw_curves, published_accuracies
from capsexp.figures.sources import Sources, Trainings, UndrawnError
from capsexp.figures.style import GREY, STYLES, WIDTH, PaperFigure, SeriesStyle, count_along, draw_published
from capsexp.results.collect import Line
from capsexp.study import studies

ROUTINGS, ABLATION, COST = "tsai_fig4", "tsai_fig4_ablation", "tsai_fig4_cost"
KINDS = {"dynamic": "Dynamic", "EM": "EM", "inverted": "Inverted"}  # of routing: label of Fig. 4 -> name in Table 1
VARIANTS = {"no LayerNorm": "A, no LayerNorm", "sequential": "B, sequential", "activations": "C, with activations"}

#: One to five iterations: digits as markers, apart from the markers of the routings.
ITERATIONS = [
    SeriesStyle(color, f"${number}$", line, "", 7)
    for number, (color, line) in enumerate(
        zip(("#999933", "#44AA99", "#882255", "#6699CC", "#332288"), ("-", "--", "-.", ":", (0, (3, 1))), strict=True),
        1,
    )
]
FARTHEST = 0.5  # heights of the axes that a published number may lie beyond the curves, to be a level

BEST = (
    "Numbers at the right, and dotted levels: the published best of one to five iterations (Table 1); with an arrow: "
    "beyond the plot."
)
POINTS = (
    "By iteration: mean over seeds ± standard deviation of the maximum over epochs, of memory and of time; n: seeds of "
    'each point that is drawn. The axes don\'t begin at 0. A with 5 iterations is published as "a uniform prediction", '
    "10 %."
)
OVERLAID = (
    "Dotted levels and the numbers at the right: as published in the figure's table. Bars: mean over seeds, ± standard "
    "deviation where there are several."
)
#: The labels of measures.
COSTS = {
    "memory": "peak memory of the device, MB",
    "host": "peak memory of the process (no GPU), MB",
    "inference": "inference, ms per batch of 128 images",
}


def iterations(sources: Sources) -> Drawing:
    """Fig. 4: a plot per routing by epoch; then accuracy, memory and time by number of iterations."""
    lines = {study: sources.lines(study) for study in (ROUTINGS, ABLATION, COST)}
    missing = [each for study, of_study in lines.items() for each in sources.missing(of_study, study)]
    shown = [line for of_study in lines.values() for line in of_study]
    if not any(line.runs for line in shown):
        raise UndrawnError(*missing)
    figure = PaperFigure("tsai, Fig. 4: routing iterations on CIFAR-10, simple backbone", (WIDTH, 10.5), (3, 2))
    trainings = Trainings(shown)
    (dynamic, em), (inverted, accuracy), (memory, time) = figure.axes
    best = _published_best()
    _draw_convergence((dynamic, em, inverted), lines[ROUTINGS], trainings, best.values())
    series = {f"{kind} routing": _labelled(lines[ROUTINGS], kind) for kind in KINDS}
    series |= {name: _labelled(lines[ABLATION], variant) for variant, name in VARIANTS.items()}
    for index, ((name, of_series), style) in enumerate(zip(series.items(), STYLES, strict=True)):
        points = _draw_points(accuracy, name, of_series, "accuracy", trainings, style, shift=0.06 * (index - 2.5))
        means = [f"{mean:.1f} % with {plural(round(at), 'iteration')}" for at, mean in points.items()]
        figure.describe(*[f"{name}: {', '.join(means)}."] * bool(means))
    figure.describe(*(f"Published best: {kind} {text}." for kind, text in best.items()))
    _label(accuracy, "maximum accuracy, %")
    draw_published(accuracy, list(zip(best.values(), STYLES, strict=False)), FARTHEST)
    for axis, measure in ((memory, _memory(lines[COST])), (time, "inference")):
        _draw_points(axis, "inverted routing", lines[COST], measure, trainings, STYLES[2])
        axis.margins(y=0.15)
        _label(axis, COSTS[measure])
    figure.legend(columns=4)
    figure.note(band(lines[ROUTINGS]), BEST, POINTS, _devices(lines[COST]), *trainings.notes(listed=True))
    return figure, missing


def overlaid(sources: Sources) -> Drawing:
    """Fig. 5: convergence, memory and time on DiverseMultiMNIST."""
    lines, missing = sources.rows("tsai_fig5")
    figure = PaperFigure("tsai, Fig. 5: overlaid digits (DiverseMultiMNIST), CapsNets and CNNs", (WIDTH, 5), (1, 3))
    curves, memory, time = figure.axes[0]
    names = [f"{line.row.name}, {line.row.published['parameters']}M" for line in lines]
    draw_accuracy(figure, curves, lines, OVERLAID, _devices(lines), names=names, columns=1)
    draw_published(curves, published_accuracies(lines))
    curves.set(xlabel="step (60,000 generated images)", ylabel="images with the exact set of digits, %")
    for axis, measure in ((memory, _memory(lines)), (time, "inference")):
        for at, (line, style) in enumerate(zip(lines, STYLES, strict=False)):
            cell = line.cell(measure)
            if cell.n:
                axis.barh(at, cell.mean or 0, 0.6, xerr=cell.sd, **style.bar)
        axis.set_yticks(range(len(lines)), [line.row.name.replace(" ", "\n") for line in lines])
        axis.invert_yaxis()
        axis.set_xlabel(COSTS[measure])
    return figure, missing


def _draw_convergence(axes: Sequence[Axes], lines: Sequence[Line], trainings: Trainings, best: Collection[str]) -> None:
    """A plot per routing, with its published best, with one scale for all."""
    counts = [plural(number, "iteration") for number in range(1, 6)]
    for axis, kind in zip(axes, KINDS, strict=True):
        axis.set_title(f"{kind} routing")
        draw_curves(axis, _labelled(lines, kind), trainings, counts, ITERATIONS)
    drawn = [axis for axis in axes if axis.lines]
    if limits := [limit for axis in drawn for limit in axis.get_ylim()]:
        low, high = min(limits), max(limits)
        reach = FARTHEST * (high - low)
        limits += [value for value in map(float, best) if low - reach <= value <= high + reach]
    for axis, text in zip(axes, best, strict=True):
        if limits:
            axis.set_ylim(min(limits), max(limits))
        draw_published(axis, [(text, SeriesStyle(GREY, "", "-", ""))], farthest=0)
        if axis not in drawn:
            axis.set_xticks([])
            axis.text(0.5, 0.25, "no runs", transform=axis.transAxes, ha="center", color=GREY)


def _published_best() -> dict[str, str]:
    """The published best accuracy of each routing, with the simple backbone on CIFAR-10."""
    rows = {row.name: row.published["accuracy"] for row in studies.load("tsai_table1").rows}
    return {kind: rows[f"{name} simple CIFAR-10"] for kind, name in KINDS.items()}


def _labelled(lines: Sequence[Line], label: str) -> list[Line]:
    """The rows of a routing or of a variant, by iterations."""
    return [line for line in lines if line.row.labels[1] == label]


def _draw_points(
    axis: Axes,
    name: str,
    lines: Sequence[Line],
    measure: str,
    trainings: Trainings,
    style: SeriesStyle,
    shift: float = 0,
) -> dict[float, float]:
    """Draws a measure by iterations. Only points of one setting are joined; each training has its name.

    Returns:
        the means by iterations, which are shifted in the plot.
    """
    cells = {int(line.row.labels[-1]) + shift: line.cell(measure) for line in lines}
    points = {x: cell for x, cell in cells.items() if cell.n}
    counts = [str(cell.n) for cell in points.values()]
    label = f"{name} (n = {', '.join(counts if len(set(counts)) > 1 else counts[:1])})"
    for setting in dict.fromkeys(cell.setting for cell in points.values()):
        same = {x: (cell.mean or 0, cell.sd or 0) for x, cell in points.items() if cell.setting == setting}
        means, sds = zip(*same.values(), strict=True)
        axis.errorbar([*same], means, sds, label=trainings.mark(label, setting), capsize=3, **style.curve)
    return {x: cell.mean or 0 for x, cell in points.items()}


def _label(axis: Axes, label: str) -> None:
    count_along(axis, "routing iterations")
    last = axis.dataLim.x1  # which points are shifted a little
    axis.set(xlim=(0.5, (round(last) if math.isfinite(last) else 5) + 0.5), ylabel=label)


def _memory(lines: Sequence[Line]) -> str:
    """The measure of memory: the device's, or the process's where no run had a GPU."""
    return "memory" if any(line.cell("memory").n for line in lines) else "host"


def _devices(lines: Sequence[Line]) -> str:
    """The devices on which memory and time were measured, as a sentence."""
    devices = dict.fromkeys(device for line in lines if (device := line.cell("memory").device))
    return f"Memory and time: on {', '.join(devices)}." if devices else ""

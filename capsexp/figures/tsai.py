"""tsai, Fig. 4: routing iterations, ablations, memory and time. Fig. 5: overlaid digits."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from capsexp.figures.curves import Drawn, band, draw_curves, levels, number, without
from capsexp.figures.sources import Sources
from capsexp.figures.style import GREY, LOOKS, Look, Page, count_epochs, legend, level
from capsexp.results.collect import Line
from capsexp.results.page import Footnotes
from capsexp.study import studies

ROUTINGS, ABLATION, COST = "tsai_fig4", "tsai_fig4_ablation", "tsai_fig4_cost"
KINDS = {"dynamic": "Dynamic", "EM": "EM", "inverted": "Inverted"}  # of routing: as Table 1's rows say it
VARIANTS = {"no LayerNorm": "A, no LayerNorm", "sequential": "B, sequential", "activations": "C, with activations"}

TOP = "Dotted levels and the numbers at the right: the published best of one to five iterations (Table 1)."
POINTS = (
    "By iteration: mean over seeds ± standard deviation of the maximum over epochs, of memory and of time; n: seeds of "
    'each point. Star: A with 5 iterations, published as "a uniform prediction".'
)


def iterations(sources: Sources) -> Drawn:
    """Fig. 4: above, a plot a routing; below, accuracy, memory and time by number of iterations."""
    found = {study: sources.lines(study) for study in (ROUTINGS, ABLATION, COST)}
    lacking = {study: [measured for measured in rows if not measured.runs] for study, rows in found.items()}
    missing = [line for study, rows in lacking.items() for line in sources.missing(rows, study)]
    if not any(measured.runs for rows in found.values() for measured in rows):
        return None, missing
    page = Page("tsai, Fig. 4: routing iterations on CIFAR-10, simple backbone", (12, 9.5), (2, 3))
    notes = sources.footnotes(ROUTINGS, ABLATION, COST)
    best = dict(zip(KINDS, LOOKS, strict=False))
    _draw_convergence(page.axes[0], found[ROUTINGS], notes)
    accuracy, memory, time = page.axes[1]
    series = [(f"{kind} routing", _labelled(found[ROUTINGS], kind)) for kind in KINDS]
    series += [(name, _labelled(found[ABLATION], variant)) for variant, name in VARIANTS.items()]
    for index, ((name, rows), look) in enumerate(zip(series, LOOKS, strict=True)):
        _draw_points(accuracy, name, rows, "accuracy", notes, look, shift=0.06 * (index - 2.5))
    accuracy.plot(5, 10, "*", color=LOOKS[3].color, markersize=11, label="published: uniform (A, 5)")
    _finish(accuracy, "maximum accuracy, %")
    level(accuracy, [(text, number(text), best[kind]) for kind, text in _printed().items()])
    _draw_cost(memory, time, found[COST], notes)
    page.note(
        band(found[ROUTINGS]),
        TOP,
        POINTS,
        *notes.texts(),
        without([row for rows in lacking.values() for row in rows]),
    )
    return page, missing


def overlaid(sources: Sources) -> Drawn:
    """Fig. 5: convergence, memory and time on DiverseMultiMNIST."""
    study = "tsai_fig5"
    rows = [measured for measured in sources.lines(study) if measured.row.run]
    lacking = [measured for measured in rows if not measured.runs]
    missing = sources.missing(lacking, study)
    if len(lacking) == len(rows):
        return None, missing
    page = Page("tsai, Fig. 5: overlaid digits (DiverseMultiMNIST), CapsNets and CNNs", (13, 5), (1, 3))
    notes = sources.footnotes(study)
    curves, memory, time = page.axes[0]
    draw_curves(
        curves, rows, notes, [f"{measured.row.name}, {measured.row.published['parameters']}M" for measured in rows]
    )
    count_epochs(curves, "step (60,000 generated images)")
    curves.set_ylabel("images with the exact set of digits, %")
    level(curves, levels(rows))
    legend(curves, 1)
    measure = _memory(rows)
    for axis, what, label in ((memory, measure, MEMORY[measure]), (time, "inference", TIME)):
        axis.set_title(_devices(rows), fontsize=9)
        _draw_bars(axis, rows, what)
        axis.set_ylabel(label)
    page.note(band(rows), "Dotted levels and the numbers at the right: as published in the figure's table.")
    page.note("Bars: mean over seeds, ± standard deviation where there are several.")
    page.note(*notes.texts(), without(lacking))
    return page, missing


MEMORY = {"memory": "peak memory of the device, MB", "host": "peak memory of the process (no GPU), MB"}
TIME = "inference, ms a batch of 128 images"


def _draw_convergence(axes: Sequence[Axes], rows: Sequence[Line], notes: Footnotes) -> None:
    """A plot a routing, all to one scale."""
    printed = _printed()
    for axis, kind in zip(axes, KINDS, strict=True):
        axis.set_title(f"{kind} routing")
        counts = [f"{count} iteration{'s' * (count > 1)}" for count in range(1, 6)]
        draw_curves(axis, _labelled(rows, kind), notes, counts)
    drawn = [axis for axis in axes if axis.lines]
    low = min([axis.get_ylim()[0] for axis in drawn] + [*map(number, printed.values())])
    high = max([axis.get_ylim()[1] for axis in drawn] + [*map(number, printed.values())])
    for axis, text in zip(axes, printed.values(), strict=True):
        axis.set_ylim(low, high)
        level(axis, [(text, number(text), Look(GREY, "_", "-", ""))])
        if axis in drawn:
            legend(axis, 2)
        else:
            axis.set_xticks([])
            axis.text(0.5, 0.25, "no runs", transform=axis.transAxes, ha="center", color=GREY)


def _printed() -> dict[str, str]:
    """The routings' published best accuracies, with the simple backbone on CIFAR-10."""
    rows = {row.name: row.published["accuracy"] for row in studies.load("tsai_table1").rows}
    return {kind: rows[f"{name} simple CIFAR-10"] for kind, name in KINDS.items()}


def _labelled(rows: Sequence[Line], label: str) -> list[Line]:
    """The rows of a routing or of a variant, by iterations."""
    return [measured for measured in rows if measured.row.labels[1] == label]


def _draw_points(
    axis: Axes, name: str, rows: Sequence[Line], measure: str, notes: Footnotes, look: Look, shift: float = 0
) -> None:
    """A measure by iterations. Points are joined where their settings agree; where they don't, each has its mark."""
    cells = [measured.cell(measure) for measured in rows]
    places = [int(measured.row.labels[-1]) + shift for measured in rows]
    points = [(x, cell) for x, cell in zip(places, cells, strict=True) if cell.n]
    counts = [str(cell.n) for cell in cells]
    settings = list(dict.fromkeys(cell.setting for _, cell in points))
    numbers = f"n = {counts[0] if len(set(counts)) == 1 else ', '.join(counts)}" if points else "no runs"
    label = notes.mark(f"{name} ({numbers})", *settings)
    for setting in settings or [None]:
        same = [(x, cell) for x, cell in points if cell.setting == setting]
        style: dict[str, Any] = {**look.curve, "label": label, "capsize": 3}
        values = [cell.mean or 0 for _, cell in same]
        axis.errorbar([x for x, _ in same], values, yerr=[cell.sd or 0 for _, cell in same], **style)
        label = "_"
        if len(settings) > 1:
            for x, cell in same:
                mark = notes.mark(" ", cell.setting)
                axis.annotate(
                    mark, (x, cell.mean or 0), (5, 4), textcoords="offset points", fontsize=7, color=look.color
                )


def _draw_cost(memory: Axes, time: Axes, rows: Sequence[Line], notes: Footnotes) -> None:
    measure = _memory(rows)
    _draw_points(memory, "inverted routing", rows, measure, notes, LOOKS[2])
    _draw_points(time, "inverted routing", rows, "inference", notes, LOOKS[2])
    for axis, label in ((memory, MEMORY[measure]), (time, TIME)):
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        _finish(axis, label)
        axis.set_title(_devices(rows), fontsize=9)


def _finish(axis: Axes, label: str) -> None:
    count_epochs(axis, "routing iterations")
    axis.set(xlim=(0.5, 5.5), ylabel=label)
    legend(axis)


def _draw_bars(axis: Axes, rows: Sequence[Line], measure: str) -> None:
    for place, (measured, look) in enumerate(zip(rows, LOOKS, strict=False)):
        cell = measured.cell(measure)
        if cell.n:
            axis.bar(place, cell.mean or 0, 0.6, yerr=cell.sd, color=look.color, alpha=0.6, hatch=look.hatch)
    axis.set_xticks(range(len(rows)), [measured.row.name.replace(" ", "\n") for measured in rows], fontsize=8)


def _memory(rows: Sequence[Line]) -> str:
    """The device's memory, or the process's where no run had a GPU."""
    return "memory" if any(measured.cell("memory").n for measured in rows) else "host"


def _devices(rows: Sequence[Line]) -> str:
    """On what memory and time were measured."""
    devices = dict.fromkeys(device for measured in rows if (device := measured.cell("memory").device))
    return f"Measured on {', '.join(devices)}" if devices else "No runs"

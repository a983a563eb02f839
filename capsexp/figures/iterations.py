"""tsai, Fig. 4: one to five routing iterations, by epoch and at the end; ablations. tsai_fig4_cost has the costs."""

from collections.abc import Iterable

from capsexp.figures.inputs import Inputs, Rows, UndrawnError
from capsexp.figures.lines import Panel, Series, curve, drawing
from capsexp.figures.style import Drawing
from capsexp.results.cells import MeasuredRow

ROUTINGS, ABLATION = "tsai_fig4", "tsai_fig4_ablation"
PROCEDURES = ("inverted", "dynamic", "EM")
VARIANTS = {"no LayerNorm": "A, no LayerNorm", "sequential": "B, sequential", "activations": "C, with activations"}


def routing_iterations(inputs: Inputs, title: str) -> Drawing:
    """A plot per routing by epoch; then accuracy, of ablations too, by iterations."""
    found, missing = dict[str, Rows](), list[str]()
    for study in (ROUTINGS, ABLATION):
        try:
            found[study] = inputs.rows(study)
            missing += found[study].missing
        except UndrawnError as error:
            missing += error.args
    if not found:
        raise UndrawnError(*missing)
    routings, ablation = ([*found[study].lines] if study in found else [] for study in (ROUTINGS, ABLATION))
    by_routing = {kind: [line for line in routings if line.row.labels[1] == kind] for kind in PROCEDURES}
    series = {f"{kind} routing": _by_iterations(lines) for kind, lines in by_routing.items()}
    ablated = {"inverted routing": series["inverted routing"]}
    for variant, name in VARIANTS.items():
        ablated[name] = _by_iterations(line for line in ablation if line.row.labels[1] == variant)
    panels = [
        Panel(f"{kind} routing", {f"{line.row.labels[-1]} it.": curve(line) for line in lines})
        for kind, lines in by_routing.items()
    ]
    for head, of, shown in (
        ("accuracy", "maximum accuracy, %", series),
        ("ablations", "maximum accuracy of inverted routing, %", ablated),
    ):
        panels.append(Panel(head, {name: one for name, one in shown.items() if one}, "routing iterations", of))
    trained = dict.fromkeys(rows.training for rows in found.values())
    return drawing(title, panels, "; ".join(trained), missing)


def _by_iterations(lines: Iterable[MeasuredRow]) -> Series:
    """The accuracies of each row by its number of iterations."""
    cells = {int(line.row.labels[-1]): line.cells["accuracy"] for line in lines}
    return {number: cell.values for number, cell in cells.items() if cell.n}

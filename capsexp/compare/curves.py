"""The accuracy by epoch of what is compared, a curve a side."""

from capsexp.compare import Comparison
from capsexp.errors import InputError
from capsexp.figures.lines import Panel, curve, drawing
from capsexp.figures.style import STYLES


def draw(comparison: Comparison) -> bytes:
    """An SVG file; raises InputError for more curves than can be told apart."""
    lines = [line for line in comparison.results.lines if line.runs]
    if len(lines) > len(STYLES):
        raise InputError(f"{len(lines)} curves: {len(STYLES)} can be told apart; compare fewer runs")
    panel = Panel("", {line.row.name: curve(line) for line in lines})
    trained = "; ".join(dict.fromkeys(line.training for line in lines))
    return drawing("Accuracy by epoch", [panel], trained, ()).files()["_light.svg"]

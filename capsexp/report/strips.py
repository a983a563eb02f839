"""A dot per seed below each mean, as small SVG pictures."""

from collections.abc import Sequence

from markupsafe import Markup

from capsexp.results.cells import Cell
from capsexp.results.collect import Line, Results
from capsexp.tables.pages import Table

#: The columns of a study's tables whose means are of several seeds: measure and protocol.
MEANS = {
    "maximum": ("accuracy", "paper"),
    "last epoch": ("last", "paper"),
    "held-out": ("accuracy", "heldout"),
    "first epoch": ("first_epoch", "paper"),
    "within 0.1 point": ("within", "paper"),
    "epochs 1–5": ("first_five", "paper"),
    "s / epoch": ("seconds", "paper"),
}
WIDE = 64  # px


def seeds(results: Results, table: Table) -> list[list[Markup]]:
    """For each text of a table the dots of its seeds, or nothing. In a column all have the same scale."""
    lines = _lines(results, table)
    columns = []
    for name in table.columns:
        cells = [line.cell(*MEANS[name]) if line and name in MEANS else None for line in lines]
        several = [cell for cell in cells if cell and cell.n > 1 and cell.mean is not None]
        half = max((_deviation(cell) for cell in several if not cell.unstable), default=0.0)
        columns.append([_dots(cell, half) if cell in several and cell else Markup() for cell in cells])
    return [list(row) for row in zip(*columns, strict=True)]


def _lines(results: Results, table: Table) -> Sequence[Line | None]:
    """The line of each row of a table; None for a row that is none of the study's."""
    if table.title == "Also measured":
        return results.other_lines
    lines = {line.row.name: line for line in results.lines}
    return [lines.get(row[0]) for row in table.rows]


def _deviation(cell: Cell) -> float:
    return max(abs(value - (cell.mean or 0.0)) for value in cell.values)


def _dots(cell: Cell, half: float) -> Markup:
    """A dot a seed about the mean, a small line; those beyond the scale stand at its edge."""
    half = half or 1.0
    dots = Markup().join(
        Markup('<circle cx="{:.1f}" cy="5" r="2.5"/>').format(
            WIDE / 2 + (WIDE / 2 - 3) * min(1.0, max(-1.0, (value - (cell.mean or 0.0)) / half))
        )
        for value in cell.values
    )
    hint = ", ".join(f"seed {seed}: {value:.6g}" for seed, value in zip(cell.seeds, cell.values, strict=True))
    return Markup(
        '<svg class="seeds" viewBox="0 0 {} 10" role="img"><title>{}</title><path d="M{} 0v10M0 5h{}"/>{}</svg>'
    ).format(WIDE, hint, WIDE // 2, WIDE, dots)

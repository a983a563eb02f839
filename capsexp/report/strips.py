"""A dot per seed below each mean, as small SVG pictures."""

from markupsafe import Markup

from capsexp.results.cells import Cell
from capsexp.tables.pages import Table

WIDE = 64  # px
MOST = 40  # seeds; the dots of more are a bar


def seeds(table: Table) -> list[list[Markup]]:
    """For each text of a table of a study's rows the dots of its seeds, or nothing. A column has one scale."""
    columns = []
    for cells in zip(*table.cells, strict=True):
        several = [cell for cell in cells if cell and 1 < cell.n <= MOST]
        half = max((_deviation(cell) for cell in several if not cell.unstable), default=0.0)
        columns.append([_dots(cell, half) if cell in several else Markup() for cell in cells])
    labels = [Markup()] * (len(table.columns) - len(columns))
    return [[*labels, *row] for row in zip(*columns, strict=True)]


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

"""Small SVG pictures beside numbers: a dot a seed below a mean, and a source's published numbers above ours."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from capsexp.figures.forest import meaning
from capsexp.results.cells import Cell
from capsexp.results.collect import Line, Results
from capsexp.study.studies import published_number
from capsexp.tables.pages import Table
from capsexp.tables.texts import decimal

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


def published(cells: Sequence[Cell]) -> Markup:
    """Published accuracies on a line, ours on the line below; what belongs together is connected."""
    pairs = [
        (number.value, cell.mean, cell)
        for cell in cells
        if cell.measure == "accuracy" and cell.mean is not None and (number := published_number(cell.published))
    ]
    if not pairs:
        return Markup()
    low = math.floor(min(min(pair[:2]) for pair in pairs))
    high = math.ceil(max(max(pair[:2]) for pair in pairs))
    marks = []
    for value, mean, cell in pairs:
        above, below = (8 + 304 * (one - low) / max(high - low, 1) for one in (value, mean))
        marks.append(
            Markup(
                '<g class="{}"><title>{}: {} → {}</title><path d="M{:.1f} 22L{:.1f} 50"/>'
                '<path class="tick" d="M{:.1f} 15v10"/><circle class="{}" cx="{:.1f}" cy="50" r="4"/></g>'
            ).format(
                *(meaning(cell.verdict or ""), cell.row, cell.published, decimal(mean, 2), above, below, above),
                *("hollow" if cell.so_far else "", below),
            )
        )
    return Markup(
        '<svg class="strip" viewBox="0 0 320 74" role="img" aria-label="Published accuracies above, ours below">'
        '<text x="8" y="10">published</text><text x="8" y="70">{} %</text><text x="160" y="70" class="middle">'
        'measured</text><text x="312" y="70" class="end">{} %</text><path class="rail" d="M8 20h304M8 50h304"/>{}</svg>'
    ).format(low, high, Markup().join(marks))


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

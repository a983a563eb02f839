"""A table of texts."""

from dataclasses import dataclass, field, replace
from itertools import compress


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns, and the sentences about them."""

    title: str
    columns: list[str]
    alignment: str  # l or r for each column
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)  # the names of those behind each row

    @property
    def filled(self) -> "Table":
        """The table without columns that have no text."""
        kept = [any(column) for column in zip(*self.rows, strict=True)]
        columns, *rows = ([*compress(row, kept)] for row in [self.columns, *self.rows])
        return replace(self, columns=columns, alignment="".join(compress(self.alignment, kept)), rows=rows)

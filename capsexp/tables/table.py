"""A table of texts."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns, and the sentences about them."""

    title: str
    columns: list[str]
    alignment: str  # l or r for each column
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    @property
    def filled(self) -> "Table":
        """The table without columns that have no text."""
        kept = [at for at in range(len(self.columns)) if any(row[at] for row in self.rows)]
        return Table(
            self.title,
            [self.columns[at] for at in kept],
            "".join(self.alignment[at] for at in kept),
            [[row[at] for at in kept] for row in self.rows],
            self.notes,
        )

"""Pages of Markdown on a terminal. Rich cuts words of a table that is too wide for it; here none is lost."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.measure import Measurement, measure_renderables
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def print_page(text: str) -> None:
    """A page of tables: drawn on a terminal, as it is elsewhere."""
    console = Console()
    if console.is_terminal:
        console.print(_Page(text.partition("<details>")[0]))
    else:
        print(text)


class _Table(TableElement):
    """As wide as the terminal at most: cells are wrapped between words; where no word fits, a row is a list."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header  # every table of Markdown has a head and a body
        assert self.header.row
        assert self.body
        header = [cell.content for cell in self.header.row.cells]
        rows = [[cell.content for cell in row.cells] for row in self.body.rows]
        for heading in header:
            heading.stylize("markdown.table.header")
        measured = [measure_renderables(console, options, column) for column in zip(header, *rows, strict=True)]
        for gap in (2, 1):
            widths = _shared(measured, options.max_width - gap * (len(header) - 1))
            if widths is not None:
                table = Table(box=SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
                for heading, width in zip(header, widths, strict=True):
                    table.add_column(heading, width=width)
                for row in rows:
                    table.add_row(*row)
                yield Padding(table, (0, 0, 1, 0))
                return
        yield from _lists(header, rows)


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _Table}


def _shared(columns: Sequence[Measurement], room: int) -> list[int] | None:
    """How wide each column is: its longest word at least, its longest line at most. None where the words don't fit."""
    spare = room - sum(column.minimum for column in columns)
    if spare < 0:
        return None
    wanted = sum(column.span for column in columns)
    if wanted <= spare:
        return [column.maximum for column in columns]
    return [column.minimum + column.span * spare // wanted for column in columns]


def _lists(header: Sequence[Text], rows: Sequence[Sequence[Text]]) -> Iterator[Padding | Text]:
    """A row after the other: what its first cell says, then the others' headings and cells, a line each."""
    for row in rows:
        yield _left(row[0])
        for heading, cell in zip(header[1:], row[1:], strict=True):
            if cell:
                yield Padding(Text.assemble(_left(heading), ": ", _left(cell)), (0, 0, 0, 2))
        yield Text()


def _left(text: Text) -> Text:
    text = text.copy()
    text.justify = "left"
    return text

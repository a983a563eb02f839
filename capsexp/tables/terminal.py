"""Tables and texts on a terminal. Rich cuts the words of a table that is too wide for it; here none is cut."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from capsexp.tables.table import Table
from capsexp.tables.texts import one_line


def print_table(table: Table) -> None:
    """Draws a table and what stands below it, as wide as the terminal; elsewhere as wide as it is."""
    console = _console()
    title = [Text(one_line(table.title), style="bold")] if table.title else []
    notes = [Text(" ".join(map(one_line, table.notes)))] if table.notes else []
    for part in [*title, *_rows(table, console.width), *notes]:
        console.print(part, highlight=False)


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Prints texts in their styles, broken between words on a terminal."""
    console = _console()
    for text, style in lines:
        console.print(Text(text, style=style), highlight=False)


def print_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Prints command lines as they are, to be copied; beside each what it is for, or below where there is no room."""
    console = _console()
    room = console.width - max(len(what) for _, what in commands) - 4
    wide = max((len(command) for command, what in commands if what and len(command) <= min(room, 80)), default=0)
    for command, what in commands:
        lines = [f"{command.ljust(wide)}  {what}"] if len(command) <= wide else [command, f"    {what}"]
        for line in lines:
            console.print(Text(f"  {line}".rstrip()), highlight=False, soft_wrap=True)


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
    return console


def _rows(table: Table, width: int) -> Iterator[RenderableType]:
    """A table as wide as the terminal at most, with cells wrapped between words; a list a row where no word fits."""
    heads, *rows = [[one_line(cell) for cell in row] for row in [table.columns, *table.rows]]
    columns = list(zip(heads, *rows, strict=True))
    least = [max(len(word) for text in column for word in ["", *text.split()]) for column in columns]
    extra = [max(map(len, column)) - word for column, word in zip(columns, least, strict=True)]
    gap = 2 if sum(least) + 2 * (len(columns) - 1) <= width else 1
    spare = width - gap * (len(columns) - 1) - sum(least)
    if spare >= 0:
        grid = Grid(box=SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
        for name, letter, word, more in zip(heads, table.alignment, least, extra, strict=True):
            wide = word + (more if sum(extra) <= spare else more * spare // sum(extra))
            grid.add_column(Text(name), justify="left" if letter == "l" else "right", width=wide)
        for row in rows:
            grid.add_row(*map(Text, row))
        yield grid
    else:
        for first, *others in rows:
            cells = [f"{name}: {text}" for name, text in zip(heads[1:], others, strict=True) if text]
            yield Group(Text(first), *(Padding(Text(cell), (0, 0, 0, 2)) for cell in cells))

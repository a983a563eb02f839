"""A page as Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from capsexp.results.pages import Page, Table, one_line

GENERATED = "<!-- made by scripts/aggregate.py from results/runs and conf/study; not by hand -->"


def may_replace(path: Path) -> bool:
    """Whether a file is missing or generated."""
    return not path.exists() or path.read_bytes().startswith(GENERATED.encode())


def document(page: Page) -> str:
    """The whole page."""
    parts = [GENERATED, f"# {page.title}", one_line(f"{page.source.rstrip('.')}. {page.protocol}")]
    for found in page.tables:
        parts += [f"## {found.title}", table(found), *below(found)]
    if page.deviations:
        parts += ["## Known deviations", bullets(page.deviations)]
    parts += ["## Runs", f"{page.runs} Records: [results/runs](../runs)."]
    parts += ["<details><summary>To repeat</summary>", "\n".join(["```", *page.commands, "```"]), "</details>"]
    return "\n\n".join(parts) + "\n"


def table(found: Table) -> str:
    """A table of GitHub's Markdown."""
    rules = ["---" if letter == "l" else "--:" for letter in found.alignment]
    return "\n".join("| " + " | ".join(map(escaped, cells)) + " |" for cells in [found.columns, rules, *found.rows])


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {one_line(text)}" for text in texts)


def below(found: Table) -> Sequence[str]:
    """A table's notes and remarks."""
    return [part for part in (" ".join(map(one_line, found.notes)), bullets(found.remarks)) if part]


def escaped(cell: str) -> str:
    """A text as a cell's, without markup; a comment can't end a block of the README."""
    for character in "|*":
        cell = cell.replace(character, "\\" + character)
    return one_line(cell.replace("<", "&lt;"))

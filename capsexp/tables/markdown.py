"""A page as Markdown: its texts are escaped, whether they are from studies or from records."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from capsexp.tables.pages import Page, Table
from capsexp.tables.texts import one_line

GENERATED = "<!-- made by scripts/aggregate.py from results/runs and conf/study; not by hand -->"

#: Characters that are markup anywhere in a line.
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;"} | {letter: f"\\{letter}" for letter in "\\`*[|~$"})

#: Underscores that aren't within a word, and what begins a list, a heading or a quotation.
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_BEGINNING = re.compile(r"^(\d*)(>|[#+.)-](?=[\s#+-]|$))")


class Marked(str):
    """A text that is Markdown already."""


def may_replace(path: Path) -> bool:
    """Whether a file is missing or generated."""
    return not path.exists() or path.read_bytes().startswith(GENERATED.encode())


def document(page: Page) -> str:
    """The whole page."""
    parts = [GENERATED, f"# {escaped(page.title)}", *([f"**{page.caution}**"] if page.caution else [])]
    parts.append(escaped(f"{page.source.rstrip('.')}. {page.protocol}"))
    if page.short:
        parts += [table(page.short), *below(page.short)]
    for titled in filter(None, [page.claims, *page.tables]):
        parts += [f"## {escaped(titled.title)}", table(titled), *below(titled)]
    if page.deviations:
        parts += ["## Known deviations", bullets(page.deviations)]
    parts += ["## Runs", f"{escaped(page.runs)} Records: [runs](../runs)."]
    parts += ["<details><summary>To repeat</summary>", _fenced("\n".join(page.commands)), "</details>"]
    return "\n\n".join(parts) + "\n"


def table(shown: Table) -> str:
    """A table of GitHub's Markdown."""
    rules: list[str] = [Marked("---" if letter == "l" else "--:") for letter in shown.alignment]
    return "\n".join("| " + " | ".join(map(escaped, cells)) + " |" for cells in [shown.columns, rules, *shown.rows])


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {escaped(text)}" for text in texts)


def below(shown: Table) -> Sequence[str]:
    """A table's notes and remarks."""
    return [part for part in (escaped(" ".join(note.text for note in shown.notes)), bullets(shown.remarks)) if part]


def escaped(text: str) -> str:
    """A text on one line and without markup, of a table's cell too; a comment can't end a block of the README."""
    if isinstance(text, Marked):
        return text
    return _BEGINNING.sub(r"\1\\\2", _UNDERSCORE.sub(r"\_", one_line(text).translate(_MARKUP)))


def _fenced(code: str) -> str:
    """A block of code behind a fence longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}\n{code}\n{fence}"

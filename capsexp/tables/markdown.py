"""A page as Markdown: its texts are escaped, whether they are from studies or from records."""

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from capsexp.config.searchpath import CONF
from capsexp.results.study import StudyResults
from capsexp.tables import pages
from capsexp.tables.table import Table
from capsexp.tables.texts import one_line

GENERATED = "<!-- made by scripts/aggregate.py from results/runs and conf/study; not by hand -->"

#: Characters that are markup anywhere in a line.
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;"} | {letter: f"\\{letter}" for letter in "\\`*[|~$"})

#: Underscores that aren't within a word, and what begins a list, a heading or a quotation.
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_BEGINNING = re.compile(r"^(\d*)(>|[#+.)-](?=[\s#+-]|$))")

#: A space within a number with its unit, spread or interval, and behind a verdict's mark.
_INSEPARABLE = re.compile(r"(?<=\d) (?=[±%])|(?<=[±✓✗○]) |(?<=margin) |(?<=\d) (?=to [+−]?\d)|(?<=\d to) (?=[+−]?\d)")


class Marked(str):
    """A text that is Markdown already."""


def may_replace(path: Path) -> bool:
    """Whether a file is missing or generated."""
    return not path.exists() or (path.is_file() and path.read_bytes().startswith(GENERATED.encode()))


def document(results: StudyResults, figures: Mapping[str, bool] | None = None) -> str:
    """A study's page.

    Args:
        figures: of its pictures, those that there are, and whether they have versions for narrow screens.
    """
    study, shown = results.study, pages.pictures(results)
    pictures = [_picture(f"../figures/{name}", narrow, shown[name]) for name, narrow in (figures or {}).items()]
    first, *more = pages.answer(results) or [""]
    answer = [" ".join(filter(None, [f"**{escaped(first)}**" if first else "", *map(escaped, more)]))]
    parts = [GENERATED, f"# {escaped(pages.title(results))}", escaped(pages.about(results)), *answer, *pictures[:1]]
    for block in (block for block in pages.block_tables(results) if block.rows):
        head, _, trained = block.title.partition(", ")  # the training is a sentence below its heading
        heading = [f"## {escaped(f'{head[:1].upper()}{head[1:]}')}", escaped(f"{trained}.") if trained else ""]
        shown_block = [*heading, escaped(" ".join(block.notes)), table(block)]
        parts += shown_block if results.runs else _folded("What is printed", table(block))
    claims, others = pages.claim_tables(results)
    if claims.rows:
        parts += ["## Claims", f"How a verdict is reached: [{pages.VERDICTS}](../../{pages.VERDICTS}).", table(claims)]
    if others.rows:
        parts += _folded(others.title, table(others))
    if pictures[1:]:
        parts += _folded("More pictures", *pictures[1:])
    deviations = "\n".join(f"- {escaped(text)}" for text in pages.deviations(study))
    parts += _folded("Protocol and deviations", escaped(study.protocol), deviations)
    costs = pages.costs(results)
    if costs.rows and not pages.is_of_costs(study):
        parts += _folded("Parameters, time and memory", escaped(" ".join(costs.notes)), table(costs))
    file = f"{study.name}.yaml"  # a link to it, but for a study of one's own
    file = f"[{file}](../../conf/study/{file})" if (CONF / "study" / file).exists() else file
    where = f"Rows: {file}. All numbers: [{study.name}.csv]({study.name}.csv). Behind a row's name: its records."
    commands = _fenced("\n".join(pages.commands(results)))
    parts += _folded("Commands", *map(escaped, pages.best_of(results)), where, commands)
    return "\n\n".join(filter(None, parts)) + "\n"


def _folded(title: str, *parts: str) -> list[str]:
    return [f"<details><summary>{escaped(title)}</summary>", *parts, "</details>"]


def _picture(path: str, narrow: bool, alt: str) -> str:
    """A picture, dark on a dark page; `alt` in place of it. Its files are PATH_light.svg, PATH_dark.svg …"""
    sources = {"(prefers-color-scheme: dark)": "_dark"}
    if narrow:
        small = "(max-width: 640px)"
        sources = {f"{small} and (prefers-color-scheme: dark)": "_narrow_dark", small: "_narrow_light"} | sources
    lines = [f'<source media="{media}" srcset="{path}{suffix}.svg">' for media, suffix in sources.items()]
    image = f'<img src="{path}_light.svg" width="100%" alt="{html.escape(alt)}">'
    return "\n".join(["<picture>", *lines, image, "</picture>"])


def table(shown: Table) -> str:
    """A table of GitHub's Markdown. No line breaks within 94.85 ± 0.35, or within −33.5 % and (−70.0 to +47.1).

    Behind the name of a row stand links to the records of its runs.
    """
    rules: list[str] = [Marked("---" if letter == "l" else "--:") for letter in shown.alignment]
    linked = [Marked(escaped(row[0]) + _records(runs)) for row, runs in zip(shown.rows, shown.runs, strict=False)]
    rows = [[name, *row[1:]] for name, row in zip(linked, shown.rows, strict=True)] if linked else shown.rows
    texts = ([escaped(cell) for cell in cells] for cells in [shown.columns, rules, *rows])
    lines = ("".join(f"|{text} " if text else "|" for text in cells) + "|" for cells in texts)
    return "\n".join(_INSEPARABLE.sub("\N{NO-BREAK SPACE}", line) for line in lines)


def _records(runs: Sequence[str]) -> str:
    """Numbered links to the records of these runs, raised as a footnote's are."""
    links = (link(str(number), f"../runs/{quote(name)}.json") for number, name in enumerate(runs, 1))
    return f"<sup>{'·'.join(links)}</sup>" if runs else ""


def escaped(text: str) -> str:
    """A text on one line and without markup, of a table's cell too; a comment can't end a block of the README."""
    if isinstance(text, Marked):
        return text
    return _BEGINNING.sub(r"\1\\\2", _UNDERSCORE.sub(r"\_", one_line(text).translate(_MARKUP)))


def link(text: str, target: str) -> Marked:
    """A link, which a bracket in its text can't end."""
    return Marked(f"[{escaped(text).replace(']', chr(92) + ']')}]({target})")


def _fenced(code: str) -> str:
    """A block of code behind a fence longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}\n{code}\n{fence}"

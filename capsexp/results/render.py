"""The tables of a study as a page of Markdown and as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from capsexp.results import contents, latex, sheets
from capsexp.results.commands import commands
from capsexp.results.contents import ClaimText
from capsexp.results.sheets import Sheet
from capsexp.results.tables import Table

GENERATED = "<!-- made by scripts/aggregate.py from results/runs and results/published; not by hand -->"


@dataclass(frozen=True)
class Page:
    """A study's three files."""

    markdown: str
    csv: str
    tex: str


def page(table: Table) -> Page:
    """The whole of a study."""
    study, whole = table.study, contents.contents(table)
    parts = [GENERATED, f"# {whole.title}", one_line(f"{study.source.rstrip('.')}. {study.protocol}")]
    for sheet in whole.sheets:
        parts += [f"## {sheet.title}", markdown(sheet), *_below(sheet.captions, sheet.marks)]
    if whole.claims:
        lines = [f"- {claim_line(claim)}" for claim in whole.claims]
        parts += ["## Claims", "\n".join(lines), *_below([contents.CLAIMS], whole.claim_marks)]
    if study.deviations:
        parts += ["## Known deviations", "\n".join(f"- {one_line(text)}" for text in study.deviations)]
    parts += ["## Runs", f"{sheets.spent(table)} Records: [results/runs](../runs)."]
    parts += ["<details><summary>To repeat</summary>", "```\n" + "\n".join(commands(table)) + "\n```", "</details>"]
    tex = [whole.accuracy, *([whole.epochs] if whole.epochs else [])]
    return Page("\n\n".join(parts) + "\n", csv(table), latex.document(whole.title, study.name, tex))


def markdown(sheet: Sheet) -> str:
    """A sheet as a table of GitHub's Markdown."""
    rules = ["---" if letter == sheets.LEFT else "--:" for letter in sheet.alignment]
    return "\n".join("| " + " | ".join(map(_escaped, cells)) + " |" for cells in [sheet.columns, rules, *sheet.rows])


def csv(table: Table) -> str:
    """A line a row and setting, with all numbers as they are; lists are separated by blanks."""
    lines = []
    for line in table.cells.to_dict("records"):
        own = {"study": table.study.name} | dict(zip(table.study.columns, line["labels"], strict=True))
        rest = {key: value for key, value in line.items() if key not in ("labels", "name", "row", "swept")}
        lines.append(own | {str(key): _plain(value) for key, value in rest.items()})
    return pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n")


def claim_line(claim: ClaimText) -> str:
    """What was claimed, what was measured, what follows."""
    why = f" ({claim.why})" if claim.why else ""
    if not claim.measured:
        return f"{claim.says}: claimed {claim.claimed}: {claim.verdict}{why}"
    return f"{claim.says}: claimed {claim.claimed}, measured {claim.measured}: **{claim.verdict}**{why}{claim.where}"


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def _below(captions: Sequence[str], marks: Sequence[str]) -> list[str]:
    """A paragraph and a list, if there is anything to say."""
    parts = [" ".join(map(one_line, captions)), "\n".join(f"- {one_line(mark)}" for mark in marks)]
    return [part for part in parts if part]


def _escaped(cell: str) -> str:
    for character in "|*<":
        cell = cell.replace(character, "\\" + character)
    return one_line(cell)


def _plain(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value if value is None else _number(value)


def _number(value: object) -> object:
    return value if isinstance(value, int | float | str) else str(value)

"""What was found, in short: the README's block.

A line a claim that has enough seeds for a verdict; then, folded, source by source, short tables of published → measured
and the claims with fewer; a line a study, with how much of it was run.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from capsexp.results import contents, sheets
from capsexp.results.contents import ClaimText
from capsexp.results.render import markdown
from capsexp.results.sheets import LEFT, RIGHT, Marks, Sheet
from capsexp.results.statistics import ENOUGH
from capsexp.results.tables import Line, Table
from capsexp.study.studies import published_number

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

#: What the short tables show, with the decimal places of its means.
SHOWN = {"accuracy": 2, "first_epoch": 1}
NAMES = {"accuracy": "maximum %", "first_epoch": "first epoch"}
CAPTION = (
    "Published → measured. Accuracy: percent of the test images, the maximum over the epochs, as the papers take it; "
    "first epoch: that reached it. Mean ± standard deviation over seeds (their number)."
)


def block(tables: Sequence[Table], strangers: int) -> str:
    """The whole block. `strangers`: records that belong to no study."""
    marks = Marks(*tables)
    said = contents.distinct_claims(tables, lambda setting: marks.suffix(marks.of(setting)))
    parts = [_spent(tables, strangers), _verdicts(tables, said)]
    decisive = claims(said, few=False)
    parts += [f"Claims with {ENOUGH} seeds or more:", markdown(decisive)] if decisive.rows else []
    parts += [
        _folded(name, of_source, said, marks)
        for name, of_source in contents.by_source(tables)
        if any(not table.found.empty for table in of_source)
    ]
    overview = contents.overview(tables)
    columns = ["study", *overview.columns]
    rows = [[_link(table), *row] for table, row in zip(tables, overview.rows, strict=True)]
    whole = markdown(replace(overview, columns=columns, alignment=LEFT + overview.alignment, rows=rows))
    parts.append(_fold(f"<b>What was run</b>, and what was not: {len(tables)} studies", [whole, *overview.captions]))
    if lines := marks.captions():
        parts += [CAPTION, contents.CLAIMS, "  \n".join(lines)]
    return "\n\n".join(parts)


def grid(table: Table, marks: Marks) -> Sheet | None:
    """A study's accuracies and first epochs, one row of the source's a cell.

    The labels of `Study.across` head the columns, and the rest of the rows' names the lines; without it all rows stand
    on one line; what is empty is left out. None for a study without runs, and for one whose source prints no such
    number, be it lost in our copy.
    """
    study, lines = table.study, sheets.lines_of(table, main=True)
    shown = [measure for measure in SHOWN if measure in study.measures and _is_printed(table, measure)]
    if table.best.empty or not shown:
        return None
    index = None if study.across is None else study.columns.index(study.across)
    places = {line["name"]: place(line, index) for line in lines}
    cells: dict[str, dict[str, str]] = {}
    for measure in shown:
        for line in lines:
            down, label = places[line["name"]]
            named = [down, NAMES[measure]] if len(shown) > 1 or not down else [down]
            if text := _cell(line, measure, marks):
                cells.setdefault(", ".join(filter(None, named)), {})[label] = text
    filled = {label for found in cells.values() for label in found}
    across = [label for label in dict.fromkeys(label for _, label in places.values()) if label in filled]
    rows = [[down, *(found.get(label, "") for label in across)] for down, found in cells.items()]
    return Sheet(study.title, ["", *across], LEFT + RIGHT * len(across), rows, [], [])


def claims(said: Iterable[tuple[Table, ClaimText]], few: bool) -> Sheet:
    """A line a claim that has runs, of `few` seeds or of enough for a verdict."""
    rows = [
        [_link(table), contents.short(claim), claim.claimed, claim.measured + claim.where, claim.verdict]
        for table, claim in said
        if claim.seeds and few == (claim.seeds < ENOUGH)
    ]
    return Sheet("", ["study", "claim", "claimed", "measured", "verdict"], "lllll", rows, [contents.CLAIMS], [])


def place(line: Line, across: int | None) -> tuple[str, str]:
    """The line and the column of a row of the source's."""
    name = str(line["name"])
    if across is None:
        return "", name
    label = str(line["labels"][across])
    return " ".join(name.replace(label, "", 1).split()), label


def _cell(line: Line, measure: str, marks: Marks) -> str:
    printed = line[f"{measure}_published"] or ""
    number, places = published_number(printed), SHOWN[measure]
    published = printed if number and len(printed.partition(".")[2]) <= places else ""
    if number and not published:  # 99.70999908, which went through single precision
        published = sheets.decimal(number.value, places)
    places = 0 if measure == "first_epoch" and line[f"{measure}_n"] == 1 else places
    measured = marks.on(sheets.spread(line, measure, places), line)
    return " ".join(filter(None, [published, measured and f"→ {measured}"]))


def _is_printed(table: Table, measure: str) -> bool:
    texts = {row.published.get(measure) for row in table.study.rows} - {None, "not reported", "not specified"}
    return bool(texts)


def _folded(name: str, tables: Sequence[Table], said: Iterable[tuple[Table, ClaimText]], marks: Marks) -> str:
    """One source: the short tables of its studies, and the claims with few seeds."""
    parts = []
    for table in tables:
        if (sheet := grid(table, marks)) is not None:
            parts += [f"**{contents.source(table)}**: {table.study.title}. {sheets.spent(table)}", markdown(sheet)]
    names = {table.study.name for table in tables}
    tentative = claims(((table, claim) for table, claim in said if table.study.name in names), few=True)
    parts += [f"Claims with less than {ENOUGH} seeds:", markdown(tentative)] if tentative.rows else []
    runs = pd.concat([table.found for table in tables]).drop_duplicates("key")
    return _fold(f"<b>{name}</b>: {sheets.spent_on(runs)}", parts)


def _fold(summary: str, parts: Sequence[str]) -> str:
    return "\n\n".join([f"<details><summary>{summary}</summary>", *parts, "</details>"])


def _spent(tables: Sequence[Table], strangers: int) -> str:
    """How many runs there are, and what they took."""
    runs = pd.concat([table.found for table in tables]).drop_duplicates("key")
    if runs.empty:
        return "Nothing has been run yet."
    sentences = [sheets.spent_on(runs)]
    if (whole := sum(setting.whole for setting in runs.setting)) < len(runs):
        sentences += [
            f"{whole} of them had the paper's whole training; the others are marked with what they had, and leave a "
            "number undecided."
        ]
    sentences += ["Their records are in [results/runs](results/runs)."]
    sentences += [f"Beside them, records that belong to no study: {strangers}."] if strangers else []
    return " ".join(sentences)


def _verdicts(tables: Sequence[Table], said: Sequence[tuple[Table, ClaimText]]) -> str:
    """How many of which."""
    claims = Counter(claim.verdict for _, claim in said if claim.measured)
    return (
        f"Published accuracies and epochs with runs: {contents.listed(contents.verdicts(*tables))}. Claims with runs: "
        f"{contents.listed(claims)}; without: {len(said) - claims.total()}."
    )


def _link(table: Table) -> str:
    return f"[{table.study.name}](results/tables/{table.study.name}.md)"

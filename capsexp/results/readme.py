"""The README's block: what was found, in short.

A line a claim that has enough seeds for a verdict; then, folded, source by source, short tables of published → measured
and the claims with fewer; a line a study, with how much of it was run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from capsexp.errors import InputError
from capsexp.results import pages, summary
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Line, Results
from capsexp.results.markdown import table
from capsexp.results.page import DIGITS, Footnotes, Table, decimal, mean_and_spread
from capsexp.results.statistics import ENOUGH
from capsexp.study.studies import Row, Study, published_number

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

#: The measures of the short tables.
NAMES = {"accuracy": "maximum %", "first_epoch": "first epoch"}
CAPTION = (
    "Published → measured, mean ± standard deviation over seeds (number of seeds). Maximum: the highest test accuracy "
    "over the epochs, as in the papers; first epoch: the first that reaches it."
)


def with_block(readme: Path, block: str) -> str:
    """The README with this block between its marks; raises InputError where they are missing."""
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{readme}: must have a line {BEGIN} and, below it, a line {END}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def block(studies: Sequence[Results], unassigned: int) -> str:
    """The whole block. `unassigned`: records that belong to no study."""
    footnotes = Footnotes(setting for results in studies for setting in results.runs.setting)
    claims = summary.distinct_claims(studies)
    rows = [(results, claim, _claim_row(results, claim, footnotes)) for results, claim in claims if claim.result]
    decisive = [row for _, claim, row in rows if claim.result and claim.result.n >= ENOUGH]
    parts = [_spent(studies, unassigned), _verdicts(studies, [claim for _, claim in claims])]
    parts += [f"Claims with {ENOUGH} seeds or more:", _claim_table(decisive)] if decisive else []
    for name, of_source in summary.by_source(studies).items():
        few = [row for results, _, row in rows if results in of_source and row not in decisive]
        if any(not results.runs.empty for results in of_source):
            parts.append(_folded(name, of_source, few, footnotes))
    overview = summary.overview(studies)
    linked = [[_link(results), *row] for results, row in zip(studies, overview.rows, strict=True)]
    whole = replace(overview, columns=["study", *overview.columns], alignment=f"l{overview.alignment}", rows=linked)
    title = f"<b>What was run</b>, and what was not: {len(studies)} studies"
    parts.append(_fold(title, [table(whole), *overview.notes]))
    if texts := footnotes.texts():
        parts += [CAPTION, pages.CLAIM_NOTE, "  \n".join(texts)]
    return "\n\n".join(parts)


def short_table(results: Results, footnotes: Footnotes) -> Table | None:
    """A study's accuracies and first epochs, one row of the source's a cell.

    The labels of `Study.across` head the columns, and the rest of the rows' names the lines; without it all rows stand
    on one line; what is empty is left out. None for a study without runs, and for one whose source prints no such
    number, even if it is missing in our copy.
    """
    study = results.study
    shown = [measure for measure in NAMES if measure in study.measures and _is_printed(study, measure)]
    if results.best.empty or not shown:
        return None
    lines = [(*position(study, line.row), line) for line in results.lines]
    cells: dict[str, dict[str, str]] = {}
    for measure in shown:
        for down, across, line in lines:
            name = ", ".join(filter(None, [down, NAMES[measure] if len(shown) > 1 or not down else ""]))
            if text := _cell(line, measure, footnotes):
                cells.setdefault(name, {})[across] = text
    filled = {across for of_line in cells.values() for across in of_line}
    columns = [across for across in dict.fromkeys(across for _, across, _ in lines) if across in filled]
    rows = [[name, *(of_line.get(across, "") for across in columns)] for name, of_line in cells.items()]
    return Table(study.title, ["", *columns], "l" + "r" * len(columns), rows)


def position(study: Study, row: Row) -> tuple[str, str]:
    """The line and the column of a row in its study's short table."""
    if study.across is None:
        return "", row.name
    label = row.labels[study.columns.index(study.across)]
    return " ".join(row.name.replace(label, "", 1).split()), label


def _cell(line: Line, measure: str, footnotes: Footnotes) -> str:
    cell = line.cell(measure)
    number = published_number(cell.published or "")
    published = number.text if number else ""
    if number and len(published.partition(".")[2]) > DIGITS[measure]:  # 99.70999908, after single precision
        published = decimal(number.value, DIGITS[measure])
    measured = footnotes.cell(mean_and_spread(cell), cell)
    return " ".join(filter(None, [published, measured and f"→ {measured}"]))


def _is_printed(study: Study, measure: str) -> bool:
    return bool({row.published.get(measure) for row in study.rows} - {None, "not reported", "not specified"})


def _claim_row(results: Results, measured: MeasuredClaim, footnotes: Footnotes) -> list[str]:
    claimed, number = pages.claim_texts(measured)
    number = footnotes.mark(number, measured.setting)
    return [_link(results), summary.short_claim(measured), claimed, number, measured.verdict]


def _claim_table(rows: list[list[str]]) -> str:
    return table(Table("", ["study", "claim", "claimed", "measured", "verdict"], "lllll", rows))


def _folded(name: str, studies: Sequence[Results], claims: list[list[str]], footnotes: Footnotes) -> str:
    """One source: the short tables of its studies, and the claims with few seeds."""
    parts = []
    for results in studies:
        if (short := short_table(results, footnotes)) is not None:
            title = f"**{pages.source(results)}**: {results.study.title}. {pages.spent(results.runs)}"
            parts += [title, table(short)]
    parts += [f"Claims with fewer than {ENOUGH} seeds:", _claim_table(claims)] if claims else []
    runs = pd.concat([results.runs for results in studies])
    return _fold(f"<b>{name}</b>: {pages.spent(runs)}", parts)


def _fold(title: str, parts: Sequence[str]) -> str:
    return "\n\n".join([f"<details><summary>{title}</summary>", *parts, "</details>"])


def _spent(studies: Sequence[Results], unassigned: int) -> str:
    """How many runs there are, and what they took."""
    runs = pd.concat([results.runs for results in studies]).drop_duplicates("key")
    if runs.empty:
        return "Nothing has been run yet."
    sentences = [pages.spent(runs)]
    if (whole := sum(setting.whole for setting in runs.setting)) < len(runs):
        sentences.append(
            f"{whole} of them had the paper's whole training; numbers of the others have a footnote, and are undecided."
        )
    sentences += ["Their records are in [results/runs](results/runs)."]
    sentences += [f"Records of no study: {unassigned}."] if unassigned else []
    return " ".join(sentences)


def _verdicts(studies: Sequence[Results], claims: Sequence[MeasuredClaim]) -> str:
    """How many of which."""
    measured = Counter(one.verdict for one in claims if one.result)
    return (
        f"Published accuracies and epochs with runs: {summary.listed(summary.verdicts(studies))}. Claims with runs: "
        f"{summary.listed(measured)}; without: {len(claims) - measured.total()}."
    )


def _link(results: Results) -> str:
    return f"[{results.study.name}](results/tables/{results.study.name}.md)"

"""The tables of a study as a page of Markdown and as CSV, and the README's block about all of them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from capsexp import latex, sheets
from capsexp.claims import Judged, judge
from capsexp.commands import commands
from capsexp.settings import Setting
from capsexp.sheets import Marks, Sheet, decimal
from capsexp.studies import Claim, published_number
from capsexp.substitution import essential
from capsexp.tables import JUDGED, Table

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
GENERATED = "<!-- made by scripts/aggregate.py from results/runs and results/published; not by hand -->"
UNITS = {"accuracy": " points", "first_five": " points", "first_epoch": " epochs", "memory": " MB", "inference": " ms"}
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}


Mark = Callable[[str, Setting], str]  # a text, with where it was measured


@dataclass(frozen=True)
class Page:
    """A study's three files."""

    markdown: str
    csv: str
    tex: str


def page(table: Table) -> Page:
    """The whole of a study."""
    study, marks = table.study, Marks(table)
    accuracy, also = sheets.accuracy(table, marks), sheets.also(table, marks)
    epochs = sheets.epochs(table, marks)
    cost = sheets.cost(table, marks, sheets.lines_of(table, main=True))
    shown = [sheet for sheet in (accuracy, also, epochs, cost) if sheet is not None and sheet.rows]
    parts = [GENERATED, f"# {_title(table)}", one_line(f"{study.source.rstrip('.')}. {study.protocol}")]
    parts += [
        part for sheet in shown for part in (f"## {sheet.title}", markdown(sheet), *_below(sheet.captions, sheet.marks))
    ]
    parts += _claims(table, marks)
    if study.deviations:
        parts += ["## Known deviations", "\n".join(f"- {one_line(text)}" for text in study.deviations)]
    parts += ["## Runs", f"{sheets.spent(table)} Records: [results/runs](../runs)."]
    parts += ["<details><summary>To repeat</summary>", "```\n" + "\n".join(commands(table)) + "\n```", "</details>"]
    title, tex = _title(table), [accuracy, *([epochs] if epochs else [])]
    return Page("\n\n".join(parts) + "\n", csv(table), latex.document(title, study.name, tex))


def markdown(sheet: Sheet) -> str:
    """A sheet as a table of GitHub's Markdown."""
    rules = ["---" if letter == sheets.LEFT else "--:" for letter in sheet.alignment]
    return "\n".join("| " + " | ".join(map(_escaped, cells)) + " |" for cells in [sheet.columns, rules, *sheet.rows])


def csv(table: Table) -> str:
    """A line a row and setting, with all numbers as they are; lists are separated by blanks."""
    lines = []
    for line in table.cells.to_dict("records"):
        own = {"study": table.study.name} | dict(zip(table.study.columns, line["labels"], strict=True))
        rest = {key: value for key, value in line.items() if key not in ("labels", "name", "row")}
        lines.append(own | {str(key): _plain(value) for key, value in rest.items()})
    return pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n")


def claim_line(one: Judged, mark: Mark) -> str:
    """What was claimed, what was measured, what follows; `mark` says in which setting."""
    claim, unit = one.claim, " %" if one.claim.estimate == "relative" else _unit(one.claim)
    number = published_number(claim.claimed)
    claimed = DIRECTIONS.get(claim.claimed, claim.claimed.replace("-", "−") + unit * (number is not None))
    return f"{one_line(claim.says)}: claimed {claimed}{_measured(one, unit, mark)}"


def block(tables: Sequence[Table], strangers: int) -> str:
    """The README's: a line a study, a line a claim that was measured, then the accuracies."""
    parts = [markdown(_overview(tables))]
    parts += [
        "Counted are published accuracies and epochs of rows with runs. Reproduced: inside the 95 % prediction "
        "interval for one more run of ours, over three or more seeds with the paper's whole training; higher, lower: "
        "the published number is above it, below it."
    ]
    if claims := [line for table in tables for line in _measured_claims(table)]:
        parts += ["**Claims that have runs**", "\n".join(f"- {line}" for line in claims)]
    for table in tables:
        if table.best.empty:
            continue
        sheet = sheets.brief(table, Marks(table))
        heading = f"**{_link(table, _source(table))}**: {table.study.title}. {sheets.spent(table)}"
        parts += [heading, markdown(sheet), *_below(sheet.captions, sheet.marks)]
    left = f" {strangers} of them belong to no study." if strangers else ""
    parts += [
        "Accuracies: percent of the test images, mean ± standard deviation over seeds (their number). Each number's "
        f"records are in [results/runs](results/runs).{left}"
    ]
    return "\n\n".join(parts)


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def _title(table: Table) -> str:
    typed = " ".join(essential(table.typed))
    return table.study.title + (f", on {typed} instead" if table.replaced else f", only {typed}" if typed else "")


def _below(captions: Sequence[str], marks: Sequence[str]) -> list[str]:
    """A paragraph and a list, if there is anything to say."""
    parts = [" ".join(map(one_line, captions)), "\n".join(f"- {one_line(mark)}" for mark in marks)]
    return [part for part in parts if part]


def _claims(table: Table, marks: Marks) -> list[str]:
    lines = [f"- {claim_line(one, lambda text, setting: marks.put(text, marks.of(setting)))}" for one in judge(table)]
    note = (
        "Paired over seeds: mean ± half of the 95 % confidence interval, n seeds. Confirmed: the interval excludes 0 "
        "on the claimed side, and a claimed size lies in the prediction interval."
    )
    return ["## Claims", "\n".join(lines), *_below([note], marks.captions())] if lines else []


def _measured(one: Judged, unit: str, mark: Mark) -> str:
    if one.result is None or one.setting is None:
        return f": not run{_missing(one)}" if one.missing else ": no seed that all of its rows have in one setting"
    places = 1 if one.claim.estimate == "relative" or one.claim.measure not in ("accuracy", "first_five") else 2
    half = one.result.half_width
    spread = "" if half is None else f" ± {decimal(half, places)}"
    level = f"95 %, n = {one.result.n}" if half is not None else f"n = {one.result.n}"
    number = f"{decimal(one.result.mean, places, signed=True)}{spread}{unit} ({level})"
    verdict = f"**{one.result.verdict}**" + f" ({one.doubt})" * bool(one.doubt)
    return f", measured {number}: {mark(verdict, one.setting)}"


def _missing(one: Judged) -> str:
    if len(one.missing) == one.rows:
        return ""
    named = ", ".join(one.missing[:3])
    more = f" and {len(one.missing) - 3} more" if len(one.missing) > 3 else ""
    return f" ({named}{more})"


def _unit(claim: Claim) -> str:
    return UNITS.get(claim.measure, "") + (" a row" if claim.estimate == "slope" else "")


def _measured_claims(table: Table) -> list[str]:
    marks = Marks(table)

    def spelt(text: str, setting: Setting) -> str:
        return f"{text}, {meaning}" if (meaning := marks.of(setting)) else text

    return [f"{_source(table)}: {claim_line(one, spelt)}" for one in judge(table) if one.result]


def _overview(tables: Sequence[Table]) -> Sheet:
    columns = ["source", "study", "rows run", "seeds", "training", "reproduced", "higher", "lower", "undecided"]
    return Sheet("", columns, "llrrlrrrr", [_overview_row(table) for table in tables], [], [])


def _overview_row(table: Table) -> list[str]:
    main = table.cells[table.cells.main.astype(bool)]
    run = main[main.setting.notna()].to_dict("records")
    seeds = sorted({len(line["paper_seeds"]) or len(line["heldout_seeds"]) for line in run})
    whole = sum(line["setting"].whole for line in run)
    training = [f"whole in {whole}" if whole else "", f"reduced in {len(run) - whole}" if len(run) > whole else ""]
    verdicts = Counter(line[f"{measure}_verdict"] for line in run for measure in JUDGED)
    names = ("reproduced", "published higher", "published lower", "undecided")
    return [
        _link(table, _source(table)),
        table.study.title,
        f"{len(run)} of {sum(row.run is not None for row in table.study.rows)}",
        " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]]))) if seeds else "",
        ", ".join(part for part in training if part),
        *(str(verdicts[name] or "") for name in names),
    ]


def _source(table: Table) -> str:
    """Which table or figure of which source, without what else is said of it."""
    found = re.match(r'("[^"]*"|Fig\.|[^".;(])*', one_line(table.study.source))
    return found[0].strip() if found else ""


def _link(table: Table, text: str) -> str:
    return f"[{text}](results/tables/{table.study.name}.md)"


def _escaped(cell: str) -> str:
    for character in "|*<":
        cell = cell.replace(character, "\\" + character)
    return one_line(cell)


def _plain(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value if value is None else _number(value)


def _number(value: object) -> object:
    return value if isinstance(value, int | float | str) else str(value)

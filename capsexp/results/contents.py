"""What a study's page says, as texts, whatever it is printed as: Markdown (results.render), HTML (capsexp.report)."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from capsexp.results import sheets
from capsexp.results.claims import Judged, judge
from capsexp.results.sheets import Marks, Sheet, decimal
from capsexp.results.statistics import ClaimVerdict, Verdict
from capsexp.results.tables import JUDGED, Table
from capsexp.study.selection import essential
from capsexp.study.setting import Setting
from capsexp.study.studies import Claim, published_number

UNITS = {"accuracy": " points", "first_five": " points", "first_epoch": " epochs", "memory": " MB", "inference": " ms"}
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}
CLAIMS = (
    "Paired over seeds: mean ± half of the 95 % confidence interval, n seeds. Confirmed: the interval excludes 0 on "
    "the claimed side, and a claimed size lies in the prediction interval."
)
COUNTED = (
    "Verdicts: on published accuracies and epochs of rows with runs. Reproduced: inside the 95 % prediction interval "
    "for one more run of ours, over three or more seeds with the paper's whole training; published higher, lower: "
    "above it, below it."
)


@dataclass(frozen=True)
class ClaimText:
    """A claim, and what the runs say of it."""

    says: str
    claimed: str
    measured: str  # nothing, where no runs tell
    seeds: int  # that all of its rows have
    verdict: str
    why: str  # the verdict is no other
    where: str  # with what separates it from the verdict: the setting, or its mark


@dataclass(frozen=True)
class Contents:
    """The whole of a study."""

    table: Table
    title: str
    accuracy: Sheet
    epochs: Sheet | None
    sheets: list[Sheet]  # all that have rows, those two among them
    claims: list[ClaimText]
    claim_marks: list[str]


def contents(table: Table) -> Contents:
    """A study's sheets and claims; the same setting has the same mark on all of them."""
    marks = Marks(table)
    accuracy, also = sheets.accuracy(table, marks), sheets.also(table, marks)
    epochs = sheets.epochs(table, marks)
    cost = sheets.cost(table, marks, sheets.lines_of(table, main=True))
    shown = [sheet for sheet in (accuracy, also, epochs, cost) if sheet is not None and sheet.rows]
    claims = claim_texts(table, lambda setting: marks.suffix(marks.of(setting)))
    return Contents(table, title(table), accuracy, epochs, shown, claims, marks.captions())


def title(table: Table) -> str:
    """The study's, with what was typed in place of the rows' own choices."""
    typed = " ".join(essential(table.typed))
    return table.study.title + (f", on {typed} instead" if table.replaced else f", only {typed}" if typed else "")


def source(table: Table) -> str:
    """Which table or figure of which source, without what else is said of it."""
    found = re.match(r'("[^"]*"|Fig\.|[^".;(])*', " ".join(table.study.source.split()))
    return found[0].strip() if found else ""


def claim_texts(table: Table, where: Callable[[Setting], str]) -> list[ClaimText]:
    """A study's claims; `where` names a setting."""
    return [_claim_text(one, where) for one in judge(table)]


def distinct_claims(tables: Sequence[Table], where: Callable[[Setting], str] = str) -> list[tuple[Table, ClaimText]]:
    """All claims, each with its study; what two studies of a source take from the same runs is there once."""
    found: dict[tuple[str, ...], tuple[Table, ClaimText]] = {}
    for name, of_source in by_source(tables):
        for table in of_source:
            for claim in claim_texts(table, where):
                key = (name, short(claim), claim.claimed, claim.measured + claim.where, claim.verdict)
                found.setdefault(key, (table, claim))
    return list(found.values())


def short(claim: ClaimText) -> str:
    """What a claim says, without where its source says so."""
    return re.sub(r" \((?:[^()]|\([^()]*\))*\)$", "", claim.says)


def by_source(tables: Sequence[Table]) -> list[tuple[str, list[Table]]]:
    """The studies of each source."""
    found: dict[str, list[Table]] = {}
    for table in tables:
        found.setdefault(_publication(table), []).append(table)
    return list(found.items())


def _publication(table: Table) -> str:
    """The source, without which of its tables."""
    return source(table).partition(",")[0]


def overview(tables: Sequence[Table]) -> Sheet:
    """A line a study: how much of it was run, and what came out."""
    columns = ["source", "what", "rows run", "seeds", "training", "verdicts"]
    return Sheet("", columns, "llrrll", [_overview_row(table) for table in tables], [COUNTED], [])


def verdicts(*tables: Table) -> "Counter[str]":
    """How often each verdict stands in the studies' main tables of accuracies and epochs.

    A number that two tables of a source print of the same runs counts once.
    """
    found: dict[tuple[object, ...], str] = {}
    for table in tables:
        for line in sheets.lines_of(table, main=True):
            runs = frozenset(table.best.key[table.best.row == line["row"]])
            for measure in JUDGED:
                if line["setting"] is not None and (verdict := line[f"{measure}_verdict"]):
                    found.setdefault((_publication(table), runs, measure, line[f"{measure}_published"]), verdict)
    return Counter(found.values())


def listed(counts: "Counter[str]") -> str:
    """2 reproduced, 1 published lower: verdicts in their order, then anything else."""
    first = sorted([*get_args(Verdict), *get_args(ClaimVerdict)], key=lambda name: name == "undecided")
    names = sorted(counts, key=lambda name: first.index(name) if name in first else len(first))
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name]) or "none"


def _claim_text(one: Judged, where: Callable[[Setting], str]) -> ClaimText:
    claim, unit = one.claim, " %" if one.claim.estimate == "relative" else _unit(one.claim)
    number = published_number(claim.claimed)
    claimed = DIRECTIONS.get(claim.claimed, claim.claimed.replace("-", "−") + unit * (number is not None))
    says = " ".join(claim.text.split())
    if one.result is None or one.setting is None:
        verdict = "not run" if one.missing else "no seed that its rows have in one setting"
        return ClaimText(says, claimed, "", 0, verdict, _missing(one), "")
    measured = _measured(one, unit)
    return ClaimText(says, claimed, measured, one.result.n, one.result.verdict, one.doubt, where(one.setting))


def _measured(one: Judged, unit: str) -> str:
    assert one.result is not None
    places = 1 if one.claim.estimate == "relative" or one.claim.measure not in ("accuracy", "first_five") else 2
    half = one.result.half_width
    spread = "" if half is None else f" ± {decimal(half, places)}"
    level = f"95 %, n = {one.result.n}" if half is not None else f"n = {one.result.n}"
    level += f"; {one.part}" if one.part else ""
    return f"{decimal(one.result.mean, places, signed=True)}{spread}{unit} ({level})"


def _missing(one: Judged) -> str:
    if len(one.missing) == one.rows:
        return ""
    named = ", ".join(one.missing[:3])
    more = f" and {len(one.missing) - 3} more" if len(one.missing) > 3 else ""
    return f"{named}{more}"


def _unit(claim: Claim) -> str:
    return UNITS.get(claim.measure, "") + (" a row" if claim.estimate == "slope" else "")


def _overview_row(table: Table) -> list[str]:
    main = table.cells[table.cells.main.astype(bool)]
    run = main[main.setting.notna()].to_dict("records")
    seeds = sorted({len(line["paper_seeds"]) or len(line["heldout_seeds"]) for line in run})
    whole = sum(line["setting"].whole for line in run)
    training = [f"whole in {whole}" if whole else "", f"reduced in {len(run) - whole}" if len(run) > whole else ""]
    return [
        source(table),
        table.study.title,
        f"{len(run)} of {sum(row.run is not None for row in table.study.rows)}",
        " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]]))) if seeds else "",
        ", ".join(part for part in training if part),
        listed(counted) if (counted := verdicts(table)) else "",
    ]

"""A study's page: its question, the answer, the table in each setting, the claims; then how it was done."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from capsexp.config import searchpath
from capsexp.config.compose import portable
from capsexp.errors import plural
from capsexp.results.claims import SHOWN, MeasuredClaim
from capsexp.results.measures import MEASURES
from capsexp.results.study import Line, MeasuredBlock, StudyResults
from capsexp.study.selection import LAPTOP, PAPER, key
from capsexp.study.studies import Study
from capsexp.tables import texts
from capsexp.tables.table import Table

ANOTHER = "Another training than the source's: what these runs show, and no verdict on the published numbers."
VERDICTS = "Verdicts: docs/verdicts.md."

#: The measures of the main table, each printed beside measured, and how its columns are headed.
MAIN = {
    "accuracy": "best %",
    "first_epoch": "first epoch",
    "first_five": "epochs 1–5 %",
    "reconstruction": "squared error",
}


@dataclass(frozen=True)
class Page:
    """A study's page, as texts without markup."""

    name: str
    title: str
    about: str  # the source, and how it was trained
    answer: list[str]  # in at most two sentences, the first in bold
    blocks: list[Table]  # one a setting, the paper's first
    claims: Table  # those with an answer
    other_claims: Table
    protocol: list[str]
    deviations: list[str]
    costs: Table
    selection: list[str]  # how the best of several combinations was selected
    commands: list[str]
    figures: list[str] = field(default_factory=list)


def page(results: StudyResults) -> Page:
    """A study's page."""
    study, claims = results.study, results.claims
    decided = [one for one in claims if is_decided(one) or (results.typed and one.effect)]
    others = [one for one in claims if one not in decided]
    return Page(
        study.name,
        title(results),
        f"{cited(study)}. {texts.spent(results.runs) or 'No runs yet'}.",
        [ANOTHER] if results.typed else answer(results),
        block_tables(results),
        claims_table("Claims", decided),
        claims_table(f"{plural(len(others), 'claim')} without an answer", others),
        [f"{texts.one_line(study.protocol)}", *([texts.one_line(study.remark)] if study.remark else [])],
        [*study.deviations, *(f"{row.name}: {texts.one_line(row.note)}" for row in study.rows if row.note)],
        costs(results),
        best_of(results),
        commands(results),
        [study.name, *study.figures],
    )


def title(results: StudyResults) -> str:
    """The study's question, with what was typed."""
    typed = results.blocks[0].block.setting.title if results.typed else ""
    parts = [results.study.title, typed, results.selection.only and f"only {results.selection.only}"]
    return " – ".join(filter(None, parts))


def cited(study: Study) -> str:
    """Huang & Zhou, Scientific Reports 2020, Table 2."""
    return f"{texts.CITED.get(study.source, study.source)}, {study.table}"


def is_decided(one: MeasuredClaim) -> bool:
    """Whether a claim has an answer."""
    return one.decided in (*SHOWN, "ceiling")


def answer(results: StudyResults) -> list[str]:
    """What is known: yes, in part, no or not known, and of which claims.

    What is counted answers nothing alone, nor does time, except where the table is of costs.
    """
    claims = [one for one in results.claims if one.claim.counted] or results.claims
    return answered(claims, bool(results.runs), "inference" in results.study.measures)


def answered(claims: Sequence[MeasuredClaim], trained: bool, costs: bool = False) -> list[str]:
    """The answer to claims; `trained`: whether anything was; `costs`: whether time answers them."""
    tested = [one for one in claims if one.effect and (one.runs or (costs and not _counted(one)))]
    yes = [one for one in tested if one.decided in ("supported", "no difference, shown")]
    no = [one for one in tested if one.decided == "contradicted"]
    beside = [one for one in claims if one.effect and one not in tested and one.decided in SHOWN]
    open_claims = len(tested) - len(yes) - len(no)
    if not claims:
        return []
    word = "Not known" if not (yes or no) else "No" if not yes else "In part" if no or open_claims else "Yes"
    so_far = ", so far" if all(one.so_far for one in [*yes, *no]) and (yes or no) else ""
    counts = [f"{len(yes)} supported" if yes else "", f"{len(no)} contradicted" if no else ""]
    counts += [f"{open_claims} open" if open_claims else ""]
    known = f"of {plural(len(tested), 'tested claim')} {texts.conjoined([*filter(None, counts)])}" if tested else ""
    unknown = "no claim is tested" if trained else "nothing was trained"
    first = f"{word}{so_far}: {known or unknown}."
    named = _joined([f"{_short(one)} ({_sized(one)})" for one in [*yes[:3], *no[:2], *beside[:2]]])
    return [first, f"{named[:1].upper()}{named[1:]}."] if named else [first]


def _joined(claims: Sequence[str]) -> str:
    """Claims after each other; what stands before a colon once for all that follow."""
    groups = (group for _, (*group,) in groupby(claims, lambda text: text.partition(": ")[0]))
    return "; ".join(", ".join([group[0], *(text.partition(": ")[2] for text in group[1:])]) for group in groups)


def _counted(one: MeasuredClaim) -> bool:
    return MEASURES[one.claim.measure].counted


def _short(one: MeasuredClaim) -> str:
    parts = ["contradicted" if one.decided == "contradicted" else ""]
    parts += ["by counting" if _counted(one) else "", texts.one_line(one.claim.text)]
    return ": ".join(filter(None, parts))


def _sized(one: MeasuredClaim) -> str:
    found = texts.effect(one.claim, one.effect and one.effect.alone)
    return ", ".join(filter(None, [found, texts.share(one)]))


def block_tables(results: StudyResults) -> list[Table]:
    """A table for each setting with runs, what its columns mean above the first; without runs what is printed."""
    tables = [block_table(results, block) for block in results.blocks if block.runs]
    if not tables:
        return [replace(block_table(results, results.blocks[0]), notes=["No runs yet. –: not printed."])]
    legend = ["Best %: the highest test accuracy over the epochs; mean ± standard deviation over seeds."]
    legend += ["Squared error: of reconstructed test images, after the last epoch."] * (
        "reconstruction" in results.study.measures
    )
    legend += ["–: not printed."] * any("–" in row for table in tables for row in table.rows)
    tables[0] = replace(tables[0], notes=[" ".join([*legend, VERDICTS]), *tables[0].notes])
    return tables


def block_table(results: StudyResults, block: MeasuredBlock) -> Table:
    """The rows in one setting: each measure printed and measured; how they were trained is the title."""
    study = results.study
    shown = [name for name in MAIN if name in study.measures] or ["accuracy"]
    seeds = {cell.n for line in block.lines if (cell := line.cell("accuracy")) and cell.n}
    one_count = len(seeds) == 1
    labels = [at for at in range(len(study.columns)) if at == 0 or not _repeats(study, at)]
    columns, alignment = [study.columns[at] for at in labels], "l" * len(labels)
    rows = [[line.row.labels[at] for at in labels] for line in block.lines]
    for name in shown:
        printed = {f"{MAIN[name]}, printed": [_printed(line, name) for line in block.lines]}
        added = printed if any(name in row.printed for row in study.rows) else {}
        added[f"{MAIN[name]}, here"] = [_measured(line, name, not one_count) for line in block.lines]
        added["verdict"] = [(cell and cell.verdict) or "" for line in block.lines for cell in [line.cell(name)]]
        if name == "accuracy":
            first = block is results.blocks[0] or not results.blocks[0].runs
            added["last epoch %"] = [_mean(line, "last") if first else "" for line in block.lines]
            added["held-out %"] = [texts.measured(line.cell("accuracy", "heldout")) for line in block.lines]
        columns += added
        alignment += "".join("l" if head == "verdict" else "r" for head in added)
        rows = [[*row, *more] for row, more in zip(rows, zip(*added.values(), strict=True), strict=True)]
    notes = [f"{plural(seeds.pop(), 'seed')} a row." if one_count else "In brackets the number of seeds."]
    return Table(_setting(block), columns, alignment, rows, notes).filled


def _setting(block: MeasuredBlock) -> str:
    name = {PAPER: "the paper's training, ", LAPTOP: "shorter, "}.get(block.block.name, "")
    return name + ", ".join([texts.one_line(block.block.setting.title), *block.files])


def _repeats(study: Study, column: int) -> bool:
    """Whether the labels of a column stand in the names of the rows."""
    return all(row.labels[column] in row.name for row in study.rows)


def _printed(line: Line, measure: str) -> str:
    number = line.row.printed.get(measure)
    return texts.printed(number, measure) if number else "–" if measure in line.row.published else ""


def _mean(line: Line, measure: str) -> str:
    cell = line.cell(measure)
    return "" if cell is None or cell.mean is None else texts.decimal(cell.mean, MEASURES[measure].digits)


def _measured(line: Line, measure: str, count: bool) -> str:
    cell = line.cell(measure)
    if cell is None or (measure != "accuracy" and measure not in line.row.published):
        return ""
    failed = texts.part_of("failed", cell.failed, cell.runs) if measure == "accuracy" else ""
    unlearned = texts.part_of("didn't learn", cell.unlearned, cell.runs) if measure == "accuracy" else ""
    return ", ".join(filter(None, [texts.measured(cell, count), failed, unlearned]))


def claims_table(title: str, claims: Sequence[MeasuredClaim]) -> Table:
    """A claim a line: its verdict, what is printed, what was measured; supported ones first."""
    order = ["supported", "no difference, shown", "contradicted", "ceiling", "open", "no verdict"]
    ranked = sorted(claims, key=lambda one: order.index(one.decided) if one.decided in order else len(order))
    rows = [[*texts.claim_texts(one)] for one in ranked]
    return Table(title, ["verdict", "claim", "claimed", "measured", "remark"], "llrrl", rows).filled


def costs(results: StudyResults) -> Table:
    """Parameters, times and memory, where the source prints or claims something of them."""
    study = results.study
    shown = {*study.measures, *(claim.measure for claim in study.claims)} - {*MAIN}
    if not shown:
        return Table("", [], "", [])
    times: list[str] = [name for name in ("seconds", "memory", "inference") if name in shown]
    times += ["host"] if "memory" in shown else []
    rows: dict[str, list[str]] = {}
    for block in results.blocks:
        for line in block.lines:
            counted = line.cell("parameters")
            new = [
                line.row.name,
                _printed(line, "parameters"),
                texts.measured(counted),
                (counted and counted.verdict) or "",
                *(texts.measured(line.cell(name), False) for name in times),
            ]
            before = rows.get(line.row.name, new)
            rows[line.row.name] = [a or b for a, b in zip(before, new, strict=True)]
    heads = ["row", "parameters, printed", "parameters", "verdict"]
    heads += [MEASURES[name].title for name in times]
    notes = ["Times and memory: mean ± standard deviation, of machines that differ and had other work."] * bool(times)
    kept = [row for row in rows.values() if any(row[1:])]
    return Table("Costs", heads, "lrrl" + "r" * len(times), kept, notes).filled


def best_of(results: StudyResults) -> list[str]:
    """How the best of several combinations was selected."""
    selected: dict[str, list[str]] = {}
    for block in results.blocks:
        for group in block.groups:
            if group.best_of and group.row.name not in selected.setdefault(group.best_of, []):
                selected[group.best_of].append(group.row.name)
    return [f"{texts.conjoined(names)}: {how}" for how, names in selected.items()]


def commands(results: StudyResults) -> list[str]:
    """The commands that repeat the runs: of all rows in each setting, and of the first row alone."""
    study = results.study
    own = ["capsexp", *searchpath.as_portable_option()]
    typed = portable(results.typed_words)
    lines = [shlex.join([*own, "reproduce", study.name, *typed])]
    if study.laptop and not results.typed:
        lines.append(f"{shlex.join([*own, 'reproduce', study.name])} --budget=laptop")
    row = next((row for row in study.rows if row.run), None)
    if row is None:
        return lines
    words = {key(word): word for word in [*study.paper.words.split(), *row.words, *typed, "seed=0,1,2"]}
    return [*lines, shlex.join([*own, "-m", *words.values()])]

"""A study's page: its question, the answer, the table in each setting, the claims; then how it was done."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median

from capsexp.config import searchpath
from capsexp.config.checks import typed_key
from capsexp.config.compose import portable
from capsexp.errors import plural
from capsexp.results.cells import LEVEL, LONG
from capsexp.results.claims import DECIDED, HOLDS, MeasuredClaim
from capsexp.results.measures import MEASURES
from capsexp.results.questions import conjoined
from capsexp.results.study import MeasuredBlock, MeasuredRow, StudyResults
from capsexp.study.selection import LAPTOP, PAPER
from capsexp.study.studies import Study
from capsexp.tables import texts
from capsexp.tables.table import Table

ANOTHER = "Another training than the source's: what these runs show, and no verdict on the published numbers."
VERDICTS = "Verdicts: docs/verdicts.md."

#: The measures of the main table, each printed beside measured, and how its columns are headed.
MAIN = {
    "accuracy": "best %",
    "first_epoch": "first epoch",
    "level_epoch": "epochs to the common level",
    "first_five": "epochs 1–5 %",
    "reconstruction": "squared error",
}


#: Shown of long trainings, whatever the source prints.
EPOCHS = ("first_epoch", "level_epoch")

#: The measures of the steps of claims on time, and how their columns are headed.
STEPS = {"seconds": "s a training step", "inference": "s a batch, inference"}


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
    figures: dict[str, str] = field(default_factory=dict)  # by name, what they show


def page(results: StudyResults) -> Page:
    """A study's page."""
    study, claims = results.study, results.claims
    decided = [one for one in claims if is_decided(one) or (results.typed and one.effect)]
    others = [one for one in claims if one not in decided]
    return Page(
        study.name,
        title(results),
        f"{cited(study)}. {texts.spent(results.runs) or 'No runs yet'}.",
        [ANOTHER] if results.typed else page_answer(results),
        block_tables(results),
        claims_table("Claims", decided),
        claims_table(f"{plural(len(others), 'claim')} without an answer", others),
        [f"{texts.one_line(study.protocol)}", *([texts.one_line(study.remark)] if study.remark else [])],
        [*study.deviations, *(f"{row.name}: {texts.one_line(row.note)}" for row in study.rows if row.note)],
        Table("", [], "", []) if _is_of_costs(study) else costs(results),
        best_of(results),
        commands(results),
        study.pictures,
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
    return one.decided in (*DECIDED, "ceiling")


def page_answer(results: StudyResults) -> list[str]:
    """Up to three parts: yes, in part, no or not known, with the claims; claims by counting; how many claims there are.

    What is counted answers nothing alone, nor does time, except where the table is of costs.
    """
    counted = [one for one in results.claims if one.claim.counted]
    claims = counted or results.claims
    costs = "inference" in results.study.measures
    tested = [one for one in claims if one.effect and (one.runs or (costs and not _counted(one)))]
    yes = [one for one in tested if one.decided in HOLDS]
    no = [one for one in tested if one.is_decided and one not in yes]
    unsure = sorted((one for one in tested if one not in [*yes, *no]), key=lambda one: not one.claim.question)
    beside = [one for one in claims if one.effect and one not in tested and one.is_decided]
    if not claims:
        return []
    word = "Not known" if not (yes or no) else "No" if not yes else "In part" if no or unsure else "Yes"
    so_far = ", so far" if all(one.so_far for one in [*yes, *no]) and (yes or no) else ""
    named = [*yes[:3], *no[:2], *unsure[:1]]
    unknown = "the runs test no claim" if results.runs else "no runs in these settings yet"
    first = f"{word}{so_far}: {_joined(_said(one, not so_far) for one in named) or unknown}."
    more = _joined(map(_said, beside[:2]))
    total = texts.summary(claims, "" if counted else ", none counted")
    number = f"{total}." if len(claims) > 1 and any(one.effect for one in claims) else ""
    return [*filter(None, [first, f"{more[:1].upper()}{more[1:]}." if more else "", number])]


def _joined(claims: Iterable[str]) -> str:
    """Claims after each other; what stands before a colon once for all that follow."""
    groups = (
        group for _, (*group,) in groupby(claims, lambda text: text if text[0] == "“" else text.partition(": ")[0])
    )
    return "; ".join(", ".join([group[0], *(text.partition(": ")[2] for text in group[1:])]) for group in groups)


def _counted(one: MeasuredClaim) -> bool:
    return MEASURES[one.claim.measure].counted


def _said(one: MeasuredClaim, so_far: bool = True) -> str:
    """What is known of a claim, with the measured number; `so_far`: a verdict that is so far says it."""
    text, shown = texts.one_line(one.claim.text), one.is_decided
    found = texts.effect(one.claim, one.effect, interval=not shown)
    claimed = f"claimed {texts.claimed(one.claim)}" if one.claim.size else ""
    later = so_far and shown and one.so_far
    why = texts.one_line(one.reason) if one.effect and not one.effect.interval and not shown else ""
    known = ", ".join(filter(None, [found, claimed, texts.share(one), why, texts.unlearned(one)]))
    if one.decided == "none above":
        return f"“{text}”: {texts.none_above(one)}{' so far' if later else ''}, {known}"
    if one.decided == "contradicted" or not shown:
        return f"“{text}” is {one.decided}{' so far' if later else ''}, {known}"
    return f"{'by counting, ' if _counted(one) else ''}{text} ({known}{', so far' if later else ''})"


def block_tables(results: StudyResults) -> list[Table]:
    """A table for each setting with runs, what its columns mean above the first; without runs what is printed."""
    if _is_of_costs(results.study):
        return [costs(results)]
    tables = [block_table(results, block) for block in results.blocks if block.runs]
    if not tables:
        return [replace(block_table(results, results.blocks[0]), notes=["No runs yet. –: not printed."])]
    chosen = "Test %: the accuracy after the epoch chosen on held-out images"
    best = chosen if results.blocks[0].is_heldout else "Best %: the highest test accuracy over the epochs"
    legend = [f"{best}; mean ± standard deviation over seeds."]
    legend += ["Squared error: of reconstructed test images, after the last epoch."] * (
        "reconstruction" in results.study.measures
    )
    long = any("level" in head for table in tables for head in table.columns)
    level = f"The common level is {LEVEL:g} point below the lowest maximum of the data set's runs in such a training."
    legend += ["First epoch: to the maximum, ≥: it was the last one.", level] * long
    legend += ["–: not printed."] * any("–" in row for table in tables for row in table.rows)
    tables[0] = replace(tables[0], notes=[" ".join([*legend, VERDICTS]), *tables[0].notes])
    return tables


def block_table(results: StudyResults, block: MeasuredBlock) -> Table:
    """The rows in one setting: each measure printed and measured; how they were trained is the title."""
    study = results.study
    if _is_of_costs(study):
        return costs(results)
    seeds = {cell.n for line in block.lines if (cell := line.cells["accuracy"]).n}
    one_count, notes = len(seeds) == 1, list[str]()
    labels = [at for at in range(len(study.columns)) if at == 0 or not _repeats(study, at)]
    columns, alignment = [study.columns[at] for at in labels], "l" * len(labels)
    rows = [[line.row.labels[at] for at in labels] for line in block.lines]
    is_long = any(len(run.curve) >= LONG for run in block.runs)
    for name in [name for name in MAIN if name in study.measures or (is_long and name in EPOCHS)]:
        head = "test %" if block.is_heldout and name == "accuracy" else MAIN[name]
        printed = {f"{head}, printed": [_printed(line, name) for line in block.lines]}
        added = printed if any(name in row.printed for row in study.rows) else {}
        added[f"{head}, here"] = [_measured(line, name, not one_count) for line in block.lines]
        added["verdict"] = [line.cells[name].verdict or "" for line in block.lines]
        if name == "accuracy":
            last, best = ([_mean(line, name) for line in block.lines] for name in ("last", "accuracy"))
            first = block is results.blocks[0] or not results.blocks[0].runs
            added["last epoch %"] = last if first and last != best else [""] * len(last)
            notes = ["In each row the last epoch is as good as the best."] * (last == best and any(last))
        columns += added
        alignment += "".join("l" if head == "verdict" else "r" for head in added)
        rows = [[*row, *more] for row, more in zip(rows, zip(*added.values(), strict=True), strict=True)]
    number = f"{plural(seeds.pop(), 'seed')} a row." if one_count else "In brackets the number of seeds."
    return Table(_setting(block), columns, alignment, rows, [number, *notes]).filled


def _is_of_costs(study: Study) -> bool:
    """Whether nothing of the main table is among its measures."""
    return not {*MAIN} & {*study.measures}


def _setting(block: MeasuredBlock) -> str:
    name = {PAPER: "the paper's training, ", LAPTOP: "shorter, "}.get(block.block.name, "")
    return name + ", ".join([texts.one_line(block.block.setting.title), *block.files])


def _repeats(study: Study, column: int) -> bool:
    """Whether the labels of a column stand in the names of the rows."""
    return all(row.labels[column] in row.name for row in study.rows)


def _printed(line: MeasuredRow, measure: str) -> str:
    number = line.row.printed.get(measure)
    return texts.printed(number, measure) if number else "–" if measure in line.row.published else ""


def _mean(line: MeasuredRow, measure: str) -> str:
    cell = line.cells[measure]
    return texts.average(cell) if cell.n else ""


def _measured(line: MeasuredRow, measure: str, count: bool) -> str:
    cell = line.cells[measure]
    if measure not in ("accuracy", *EPOCHS) and measure not in line.row.published:
        return ""
    failed = texts.part_of("failed", cell.failed, cell.runs) if measure == "accuracy" else ""
    tried = "of those tried, " * bool(cell.best_of)  # the number is of the best combination alone
    unlearned = texts.part_of(f"{tried}didn't learn", cell.unlearned, cell.runs) if measure == "accuracy" else ""
    return ", ".join(filter(None, [texts.measured(cell, count), failed, unlearned]))


def claims_table(title: str, claims: Sequence[MeasuredClaim]) -> Table:
    """A claim a line: its verdict, what is printed, what was measured; supported ones first."""
    order = [*DECIDED, "ceiling", "open", "no verdict"]
    ranked = sorted(claims, key=lambda one: order.index(one.decided) if one.decided in order else len(order))
    rows = [[*texts.claim_texts(one)] for one in ranked]
    return Table(title, ["verdict", "claim", "claimed", "measured", "remark"], "llrrl", rows).filled


def costs(results: StudyResults) -> Table:
    """Parameters, times and memory, where the source prints or claims something of them.

    Times are of the steps of `results.steps` where a claim on time has them, else of the runs.
    """
    study = results.study
    shown = {*study.measures, *(claim.measure for claim in study.claims)} - {*MAIN}
    timed = [one for one in results.claims if one.seconds]
    steps: dict[tuple[str, str], str] = {
        (one.claim.measure, row): texts.decimal(median(seconds), 2)
        for one in timed
        for row, seconds in one.seconds.items()
    }
    of_runs: list[str] = [
        name for name in ("seconds", "memory", "inference") if name in shown - {name for name, _ in steps}
    ]
    of_runs += ["host"] if "memory" in shown else []
    rows: dict[str, list[str]] = {}
    for line in [line for block in results.blocks for line in block.lines] if shown else ():
        name, counted = line.row.name, line.cells["parameters"]
        narrowed = [run.parameters for run in line.runs[:1] if run.trained.is_narrowed]
        new = [
            name,
            _printed(line, "parameters"),
            texts.measured(counted),
            counted.verdict or "",
            texts.decimal(narrowed[0] or 0, 0) if narrowed and "parameters" in shown else "",
            *(steps.get((measure, name), "") for measure in STEPS),
            *(texts.measured(line.cells[measure], False) for measure in of_runs),
        ]
        rows[name] = [a or b for a, b in zip(rows.get(name, new), new, strict=True)]
    heads = ["row", "parameters, printed", "parameters", "verdict", "as trained here", *STEPS.values()]
    heads += [MEASURES[name].title for name in of_runs]
    notes = [f"Time: median {one.reason}." for one in timed[:1]]
    kept = [row for row in rows.values() if any(row[1:])]
    if any(cell for row in kept for cell in row[len(heads) - len(of_runs) :]):
        notes.append("Of the runs: mean ± standard deviation, of machines that differ and had other work.")
    return Table("Costs", heads, "lrrl" + "r" * (len(heads) - 4), kept, notes).filled


def best_of(results: StudyResults) -> list[str]:
    """How the best of several combinations was selected."""
    selected: dict[str, list[str]] = {}
    for block in results.blocks:
        for group in block.groups:
            if group.best_of and group.row.name not in selected.setdefault(group.best_of, []):
                selected[group.best_of].append(group.row.name)
    return [f"{conjoined(names)}: {how}" for how, names in selected.items()]


def commands(results: StudyResults) -> list[str]:
    """The commands that repeat the runs: of all rows in each setting, and of the first row alone."""
    study = results.study
    own = ["capsexp", *searchpath.as_portable_option()]
    typed, setting = portable(results.typed_words), results.selection.setting
    lines = [shlex.join([*own, "reproduce", study.name, *[f"--budget={setting}"] * (setting != PAPER), *typed])]
    if study.laptop and not results.typed:
        lines.append(shlex.join([*own, "reproduce", study.name, "--budget=laptop"]))
    row = next((row for row in study.rows if row.run), None)
    if row is None:
        return lines
    words = {typed_key(word): word for word in [*row.words_in(study.settings[setting]), *typed, "seed=0,1,2"]}
    return [*lines, shlex.join([*own, "-m", *words.values()])]

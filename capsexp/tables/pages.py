"""A study's page: its question, the answer, the table in each setting, the claims; then how it was done."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from capsexp.config import searchpath
from capsexp.config.checks import typed_key
from capsexp.config.compose import portable
from capsexp.errors import plural
from capsexp.results.cells import LONG, MeasuredRow
from capsexp.results.claims import DECIDED, HOLDS, MeasuredClaim
from capsexp.results.measures import MEASURES
from capsexp.results.questions import conjoined
from capsexp.results.study import MeasuredBlock, StudyResults
from capsexp.study.selection import LAPTOP, PAPER
from capsexp.study.studies import Study
from capsexp.tables import texts
from capsexp.tables.table import Table

ANOTHER = "Another training than the source's: what these runs show, and no verdict on the published numbers."
VERDICTS = "docs/verdicts.md"

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


def about(results: StudyResults) -> str:
    """The source, and how long the runs took."""
    return f"{cited(results.study)}. {texts.spent(results.runs) or 'No runs yet'}."


def claim_tables(results: StudyResults) -> list[Table]:
    """The claims that have an answer, then the others."""
    decided = [one for one in results.claims if is_decided(one) or (results.typed and one.effect)]
    others = [one for one in results.claims if one not in decided]
    titles = "Claims", f"{plural(len(others), 'claim')} without an answer"
    return [claims_table(title, some) for title, some in zip(titles, (decided, others), strict=True)]


def deviations(study: Study) -> list[str]:
    """In what our runs differ from the source's, and notes on rows."""
    return [*study.deviations, *(f"{row.name}: {texts.one_line(row.note)}" for row in study.rows if row.note)]


def pictures(results: StudyResults) -> dict[str, str]:
    """By name what each picture shows, in place of it: of a strip plot its numbers."""
    study = results.study
    return study.pictures | ({} if study.name in study.figures else {study.name: _numbers(results) or study.title})


def _numbers(results: StudyResults) -> str:
    """Best %: CNN 82.36, CapsNet 83.46 (printed 82.95), …"""
    if is_of_costs(results.study):
        steps = {STEPS[one.claim.measure]: one.seconds for one in results.claims if one.seconds}
        head, seconds = next(iter(steps.items()), ("", {}))
        numbers = [f"{row} {texts.decimal(median(of_row), 2)}" for row, of_row in seconds.items()]
    else:
        name = next(name for name in results.study.measures if name in MAIN)
        head, lines = MAIN[name], [line for line in results.shown.lines if line.cells[name].n]
        printed = [f" (printed {_printed(line, name)})" * (name in line.row.printed) for line in lines]
        numbers = [f"{line.row.name} {texts.average(line.cells[name])}" for line in lines]
        numbers = [*map("".join, zip(numbers, printed, strict=True))]
    return f"{head[:1].upper()}{head[1:]}: {', '.join(numbers)}" if numbers else ""


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


def answer(results: StudyResults, most: int = 25) -> list[str]:
    """Yes, no, in part or not known, with the claims that the study's question asks; then how many claims there are.

    What is counted answers nothing alone, nor does time, except where the table is of costs.

    Args:
        most: words of the first part, as far as one claim has no more.
    """
    if results.typed:
        return [ANOTHER]
    every, own = results.claims, results.study.own_claims
    asked = [one for one in every if (one.claim in own if own else one.claim.question)]
    claims = asked or [one for one in every if one.claim.counted and one.claim.compared] or every
    costs = "inference" in results.study.measures
    tested = [one for one in claims if one.effect and (one.runs or (costs and not MEASURES[one.claim.measure].counted))]
    tested += [one for one in claims if not one.effect and one.verdict == "open"]  # with runs that can't be compared
    yes = [one for one in tested if one.decided in HOLDS]
    no = [one for one in tested if one.is_decided and one not in yes]
    unsure = [one for one in tested if one not in [*yes, *no]]
    if not claims:
        return []
    if results.runs and results.study.figures and all(one.claim.untested for one in every):
        return ["The picture shows it; no number tests it."]
    word = "Not known" if not (yes or no) else "No" if not yes else "In part" if no or unsure else "Yes"
    so_far = ", so far" if all(one.so_far for one in [*yes, *no]) and (yes or no) else ""
    trained = {line.row.name for block in results.blocks for line in block.lines if line.runs}
    rows = f"{len(trained)} of {plural(len(results.study.rows), 'row')} trained, which no claim compares"
    first = f"{word}: {rows if trained else 'no runs in these settings yet'}."
    named: list[MeasuredClaim] = []
    for one in [*yes[:1], *no[:1], *unsure[:1], *yes[1:], *no[1:], *unsure[1:]]:  # one of each before a second
        some = [other for other in tested if other in (*named, one)]
        left = len(no) if yes and not any(other in no for other in some) else 0
        more = f"; {left} other{'s do' if left > 1 else ' does'}n't hold" if left else ""  # where none of them fits
        text = f"{word}{so_far}: {_joined(some, not so_far)}{more}."
        if not named or len(text.split()) <= most:
            named, first = some, text
    number = [" ".join(texts.summary([one for one in every if one.claim.counted]))] if len(every) > 1 else []
    return [first, *filter(None, number)]


def _joined(claims: Sequence[MeasuredClaim], so_far: bool) -> str:
    """Claims after each other; a statement on several data sets stands once. `so_far`: verdicts so far say it."""
    parts, before = list[str](), ("", "")
    for one in claims:
        text = texts.one_line(one.claim.text)
        statement, on, data = text.rpartition(" on ")
        if one.is_decided:
            later = "so far" if so_far and one.so_far else ""
            known = [texts.effect(one.claim, one.effect, interval=False), texts.share(one), later]
            how = f"({', '.join(filter(None, known))})"
        else:
            how = texts.effect(one.claim, one.effect) or texts.one_line(one.reason)
        same, before = before == (statement, one.decided), (statement, one.decided)
        if on and same:
            parts[-1] += f", on {data} {how}"
        elif one.decided in HOLDS:
            parts.append(f"{text} {how}")
        else:
            wrong = " doesn't hold" if one.is_decided else " is open:"
            wrong = f": {texts.none_above(one)}" if one.decided == "none above" else wrong
            parts.append(f"“{text}”{wrong} {how}")
    return "; ".join(parts)


def caution(results: StudyResults) -> list[str]:
    """Which of a study's own rows are the best of fewer combinations than the rows of the study that it extends."""
    lines = [line for block in results.blocks for line in block.lines if line.options and results.study.extends]
    own = {line.row.name: line.options for line in lines if line.row.name in results.study.own_rows}
    most = max((line.options for line in lines if line.row.name not in own), default=0)
    fewer = [name for name, options in own.items() if options < most]
    best = f"rows of {results.study.extends} are the best of {most} combinations"
    return [f"Not alike: {best}, {conjoined(fewer)} of {max(own[name] for name in fewer)}."] if fewer else []


def block_tables(results: StudyResults) -> list[Table]:
    """A table for each setting with runs, what its columns mean above the first; without runs what is printed."""
    if is_of_costs(results.study):
        return [costs(results)]
    tables = [block_table(results, block) for block in results.blocks if block.runs]
    if not tables:
        return [replace(block_table(results, results.blocks[0]), notes=["No runs yet. –: not printed."])]
    remark = [texts.one_line(results.study.remark)] if results.study.remark else []
    chosen = "Test %: the accuracy after the epoch chosen on held-out images"
    best = chosen if results.blocks[0].is_heldout else "Best %: the highest test accuracy over the epochs"
    legend = [f"{best}; mean ± standard deviation over seeds."]
    legend += ["Squared error: of reconstructed test images, after the last epoch."] * (
        "reconstruction" in results.study.measures
    )
    long = any("level" in head for table in tables for head in table.columns)
    legend += ["First epoch: to the maximum, ≥: it was the last one."] * long
    cells = [cell for table in tables for row in table.rows for cell in zip(table.columns, row, strict=True)]
    legend += ["–: not printed."] * any(head.endswith("printed") and text == "–" for head, text in cells)
    notes = [*caution(results), *remark, " ".join(legend), *tables[0].notes]
    tables[0] = replace(tables[0], notes=notes)
    return tables


def block_table(results: StudyResults, block: MeasuredBlock) -> Table:
    """The rows in one setting: each measure printed and measured; how they were trained is the title."""
    study = results.study
    if is_of_costs(study):
        return costs(results)
    seeds = Counter(cell.n for line in block.lines if (cell := line.cells["accuracy"]).n)
    usual, notes = seeds.most_common(1)[0][0] if seeds else 0, list[str]()
    first = block is next((one for one in results.blocks if one.runs), block)
    trained = [line for line in block.lines if any(_measured(line, name, 0) for name in MAIN)] or block.lines
    columns = [
        (head, "l", [line.row.labels[at] for line in trained])
        for at, head in enumerate(study.columns)
        if at == 0 or any(row.labels[at] not in row.name for row in study.rows)
    ]
    is_long = any(len(run.curve) >= LONG for run in block.runs)
    for name in [name for name in MAIN if name in study.measures or (is_long and name in EPOCHS)]:
        head = "test %" if block.is_heldout and name == "accuracy" else MAIN[name]
        if any(name in row.printed for row in study.rows):
            columns.append((f"{head}, printed", "r", [_printed(line, name) for line in trained]))
        columns.append((f"{head}, here", "r", [_measured(line, name, usual) for line in trained]))
        columns.append(("verdict", "l", [line.cells[name].verdict or "" for line in trained]))
        if name == "accuracy":
            last, best = ([texts.average(line.cells[name]) for line in trained] for name in ("last", "accuracy"))
            if first and last != best:
                columns.append(("last epoch %", "r", last))
            notes = ["In each row the last epoch is as good as the best."] * (last == best and any(last))
    other = "; others in brackets" * (len(seeds) > 1)
    notes.insert(0, f"{plural(usual, 'seed')} a row{other}." if seeds else "")
    if first and seeds:
        somewhere = {line.row.name for one in results.blocks for line in one.lines if line.all_runs}
        others = conjoined(row.name for row in study.rows if row.name not in somewhere)
        notes += [f"Not trained here: {others}."] * bool(others)
    heads, alignment, texts_of = zip(*columns, strict=True)
    rows, runs = [*map(list, zip(*texts_of, strict=True))], [[run.name for run in line.all_runs] for line in trained]
    return Table(_setting(block), [*heads], "".join(alignment), rows, notes, runs).filled


def is_of_costs(study: Study) -> bool:
    """Whether nothing of the main table is among its measures."""
    return not {*MAIN} & {*study.measures}


def _setting(block: MeasuredBlock) -> str:
    name = {PAPER: "the paper's training, ", LAPTOP: "a shorter training, "}.get(block.block.name, "")
    return name + ", ".join([texts.one_line(block.block.setting.title), *block.files])


def _printed(line: MeasuredRow, measure: str) -> str:
    number = line.row.printed.get(measure)
    return texts.printed(number, measure) if number else "–"


def _measured(line: MeasuredRow, measure: str, usual: int) -> str:
    """The number with what befell its runs; in brackets the number of seeds, if it isn't the usual one."""
    cell = line.cells[measure]
    long = any(len(run.curve) >= LONG for run in line.runs)
    if measure not in ("accuracy", *EPOCHS * long) and measure not in line.row.published:
        return ""
    tried = "runs of all combinations " * bool(cell.best_of)  # the number is of the best one alone
    befell = {"failed": cell.failed, f"{tried}didn't learn": cell.unlearned} if measure == "accuracy" else {}
    parts = [f"{number} of {cell.runs} {what}" for what, number in befell.items() if number]
    return ", ".join(filter(None, [texts.measured(cell, cell.n != usual), *parts]))


def claims_table(title: str, claims: Sequence[MeasuredClaim]) -> Table:
    """A claim a line: its verdict, what is printed, what was measured; supported ones first."""
    order = [*DECIDED, "ceiling", "open", "no verdict"]
    ranked = sorted(claims, key=lambda one: order.index(one.decided) if one.decided in order else len(order))
    rows = [[*texts.claim_texts(one)] for one in ranked]
    measured = "measured, points" if any(" points" in row[3] for row in rows) else "measured"
    rows = [[*row[:3], row[3].replace(" points", "", 1), *row[4:]] for row in rows]
    return Table(title, ["verdict", "claim", "claimed", measured, "remark"], "llrrl", rows).filled


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
    blocks = [results.shown, *results.blocks] if shown else []
    first = next((one for one in blocks if any(line.cells[name].n for line in one.lines for name in of_runs)), None)
    for line, is_first in [(line, one is first) for one in blocks[1:] for line in one.lines]:
        name, counted = line.row.name, line.cells["parameters"]
        narrowed = [run.parameters for run in line.runs[:1] if run.trained.is_narrowed]
        new = [
            name,
            _printed(line, "parameters") if "parameters" in study.measures else "",
            texts.measured(counted),
            counted.verdict or "",
            texts.decimal(narrowed[0] or 0, 0) if narrowed and "parameters" in shown else "",
            *(steps.get((measure, name), "") for measure in STEPS),
            *(texts.measured(line.cells[measure], False) * is_first for measure in of_runs),
        ]
        rows[name] = [a or b for a, b in zip(rows.get(name, new), new, strict=True)]
    heads = ["row", "parameters, printed", "parameters", "verdict", "as trained here", *STEPS.values()]
    heads += [MEASURES[name].title for name in of_runs]
    notes = [f"Time: median {one.reason}." for one in timed[:1]]
    kept = [row for row in rows.values() if any(row[2:])]
    if any(cell for row in kept for cell in row[len(heads) - len(of_runs) :]):
        notes.append("Of the runs: mean ± standard deviation, of machines that differ and had other work.")
    return Table("Costs", heads, "lrrl" + "r" * (len(heads) - 4), kept, notes).filled


def best_of(results: StudyResults) -> list[str]:
    """How the best of several combinations was selected."""
    selected: dict[str, list[str]] = {}
    for block in results.blocks:
        for line in block.lines:
            if line.best_of and line.row.name not in selected.setdefault(line.best_of, []):
                selected[line.best_of].append(line.row.name)
    return [f"{conjoined(names)}: {how}" for how, names in selected.items()]


def commands(results: StudyResults) -> list[str]:
    """The commands that repeat the runs: of all rows in each setting, and of the first row alone."""
    study = results.study
    own = ["capsexp", *searchpath.as_option(searchpath.portable_path)]
    typed, setting = portable(results.typed_words), results.selection.setting
    options = [f"--{word}" if word.startswith("budget=") else word for word in typed]
    lines = [shlex.join([*own, "reproduce", study.name, *[f"--budget={setting}"] * (setting != PAPER), *options])]
    if study.laptop and not results.typed:
        lines.append(shlex.join([*own, "reproduce", study.name, "--budget=laptop", *options]))
    row = next((row for row in study.rows if row.run), None)
    if row is None:
        return lines
    words = {typed_key(word): word for word in [*row.words_in(study.settings[setting]), *typed, "seed=0,1,2"]}
    return [*lines, shlex.join([*own, "-m", *words.values()])]

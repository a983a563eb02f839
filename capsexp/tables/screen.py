"""A study's page on the screen, and the last screen of `capsexp reproduce` and `capsexp -m`: what the runs gave, what
they show, what to type next.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from capsexp.config.compose import command_here, portable
from capsexp.errors import plural
from capsexp.results.claims import MeasuredClaim
from capsexp.results.measures import title_of
from capsexp.results.study import MeasuredBlock, StudyResults
from capsexp.run.plan import BEST
from capsexp.run.tensorboard import event_folders
from capsexp.study.studies import DEMO, Row
from capsexp.tables import pages, texts
from capsexp.tables.table import Table
from capsexp.tables.terminal import print_commands, print_lines, print_table

_CLAIMS = 4  # on the screen

OWN = ("", "capsexp")  # the source of a sweep, and of the demo

_TOOLS = ("capsexp", "tensorboard")


def print_page(results: StudyResults) -> None:
    """Prints a page's answer, its tables and its decided claims; elsewhere than on a terminal as wide as they are."""
    title, about = texts.one_line(pages.title(results)), texts.one_line(pages.about(results))
    print_lines([(title, "bold"), (about, ""), (texts.one_line(" ".join(pages.answer(results))), "bold")])
    claims, others = pages.claim_tables(results)
    for table in [*pages.block_tables(results), claims]:
        if table.rows:
            print_lines([("", "")])
            print_table(table)
    left = f"{others.title}: in the page, {results.study.name}.md"
    print_lines([(left, "")] * bool(others.rows))
    print_lines([(f"How a verdict is reached: {pages.VERDICTS}", "")] * bool(claims.rows))


def print_screen(results: StudyResults, setting: str, runs: str, written: Path | None, logs: str) -> None:
    """Prints a study's rows as the source has them, what the claims come to, and what to type next.

    A sweep, and the demo, are studies without a source.

    Args:
        setting: of the runs: the name of a block.
        runs: how many have finished, and in which time.
        written: the file with the whole page.
        logs: the folder of checkpoints.
    """
    study, sourced = results.study, results.study.source not in OWN
    block = next((one for one in results.blocks if one.block.name == setting), results.blocks[0])
    trained = texts.one_line(block.block.setting.title)
    cited, how = f"{pages.cited(study)}. " if sourced else "", f"; trained: {trained}" if trained else ""
    only = f", only {results.selection.only}" if results.selection.only else ""
    print_lines([(f"{study.title}{only}", "bold"), (f"{cited}{runs}{how}.", "")])
    for table in row_tables(results, block):
        print_table(table)
    tested, own = [one for one in results.claims if one.effect and one.runs], study.own_claims
    tested.sort(key=lambda one: (one.claim not in own, not one.claim.counted))
    lines: list[tuple[str, str]] = []
    if any(run.trained.is_trial for run in results.runs):
        lines = [("Trials of a few steps: these numbers show that the runs work, and nothing else.", "bold")]
    elif results.typed or not sourced:
        listed = tested[:_CLAIMS] if sourced else tested  # a sweep has no page with the others
        if shown := [[texts.one_line(one.claim.text), *_difference(one, block)] for one in listed]:
            print_table(Table("", ["difference", "measured", "these runs show"], "lll", shown))
        if sourced:
            lines = [(f"They don't test the source, which trains {texts.one_line(study.paper.title)}.", "bold")]
    else:
        told = [one for one in tested if pages.is_decided(one) or one.claim in own][:_CLAIMS] or tested[:_CLAIMS]
        lines = [(_claimed(one), "") for one in told]
        if more := len(results.claims) - len(told):
            lines.append((f"{plural(more, 'more claim')} on the page.", ""))
    lines += [(texts.one_line(study.remark), "")] * bool(study.remark and not sourced)
    lines += [(line, "") for line in pages.caution(results)]
    if written:
        lines.append((f"All numbers: {written}", ""))
    print_lines(lines)
    if block.runs and (commands := _next(results, block, logs)):
        print_lines([("", ""), ("Next", "bold")])
        print_commands(commands)


def _difference(one: MeasuredClaim, block: MeasuredBlock) -> list[str]:
    """The effect of a claim with its interval, and in words: better after 3 epochs, no difference seen."""
    assert one.effect
    measured, interval = texts.effect(one.claim, one.effect), one.effect.interval
    if not interval:
        return [measured, one.reason]
    nothing = 1.0 if one.claim.estimate == "factor" else 0.0
    if interval[0] <= nothing <= interval[1]:
        return [measured, "no difference seen"]
    words = ("worse", "better") if one.claim.measure == "accuracy" else ("lower", "higher")
    epochs = {len(run.curve) for run in block.runs if run.curve}
    return [measured, words[interval[0] > nothing] + f" after {plural(max(epochs), 'epoch')}" * (len(epochs) == 1)]


def _next(results: StudyResults, block: MeasuredBlock, logs: str) -> list[tuple[str, str]]:
    """What to type after the runs, and what for; the programs as this shell finds them."""
    study, here = results.study, Path(sys.executable).parent
    capsexp, tensorboard = (tool if shutil.which(tool) else os.path.relpath(here / tool) for tool in _TOOLS)
    there = {line.row.name: block.block.runs[line.row.name][0] for line in block.lines if line.runs}
    results_folder = next((run.config.paths.results for run in there.values()), "results")
    commands: list[tuple[Sequence[str], str]] = []
    alike = {line.row.name: {(run.amount, *run.trained[2:], run.protocol) for run in line.runs} for line in block.lines}
    alike = {row: kinds for row, kinds in alike.items() if kinds}
    every = [pair for claim in study.own_claims or study.claims for pair in claim.pairs if {*pair} <= alike.keys()]
    pairs = [pair for pair in every if alike[pair[0]] & alike[pair[1]]]
    for pair in pairs[:1] if study.name != DEMO else []:
        typed = results.typed or study.source in OWN
        sides = [shlex.join(portable(there[row].overrides)) if typed else f"{study.name}:{row}" for row in pair]
        place = [f"--results={results_folder}"] * (results_folder != "results")
        commands.append((("compare", *sides, *place), "two of them, with costs"))
    networks = [run for run in block.runs if (Path(logs) / run.name / BEST).exists()]
    if networks:
        best = max(networks, key=lambda run: (run.routing != "none", run.measures.get("accuracy", 0.0)))
        look, what = ("inspect", "7"), "what this network sees in an image"
        if any(run.config.data.path for run in there.values()):  # of the user's own
            look, what = ("predict", "IMAGES"), "the classes of new images"
        commands.append(((look[0], str(Path(logs) / best.name), look[1]), what))
    if study.source:
        name, what = ("jiao_table2", "a published table") if study.name == DEMO else (study.name, "the whole table")
        commands.append((("reproduce", name, "--dry-run"), f"{what}: runs and days here"))
    photos = "data=folder data.path=photos model=da_capsnet optim.batch_size=16 budget.epochs=30"
    commands += [(photos.split(), "your own images")] * (study.name == DEMO)
    lines = [(command_here(*words, program=capsexp), what) for words, what in commands]
    if names := [folder.name for run in block.runs for folder in event_folders(Path(logs), run.key)]:
        lines += [(f"{tensorboard} --logdir {logs}/tensorboard", "the curves, at"), (f"    {_address(names)}", "")]
    return lines


def _address(names: Sequence[str]) -> str:
    """Where TensorBoard shows accuracies unsmoothed, a colour for runs whose names differ in seed and key alone."""
    parts = zip(*(re.split(r"s\d+_", name.rpartition("_")[0], maxsplit=1) for name in names), strict=True)
    before, after = (len({*part}) > 1 for part in parts)
    colours = f"&runColorGroup=regex:{'^(.*)' * before}s[0-9][0-9]*_{'(.*)_' * after}" * (before or after)
    return f"http://localhost:6006/?smoothing=0{colours}&tagFilter=accuracy#timeseries"


def print_studies(measured: Sequence[StudyResults], runs: str, output: Path) -> None:
    """Prints an answer a study, and where their pages are."""
    print_lines([(f"{runs}.", ""), ("", "")])
    print_table(Table("", ["study", "answer"], "ll", [[one.study.name, pages.answer(one)[0]] for one in measured]))
    print_lines([(f"Their pages: {output}", "")])


def row_tables(results: StudyResults, block: MeasuredBlock) -> list[Table]:
    """The rows in one setting, a table a measure; the labels of the column `across` stand along the top.

    Without such a column it is the page's table.
    """
    study, typed = results.study, results.typed
    if study.across is None or results.selection.only:
        table = replace(pages.block_table(results, block), title="")  # which is said above
        if study.source not in OWN:
            return [table]
        heads = [head.removesuffix(", here") for head in table.columns]  # where nothing is printed
        sizes = {line.row.name: f"{line.runs[0].parameters or 0:,}" for line in block.lines if line.runs}
        with_sizes = [[name, sizes.get(name, ""), *others] for name, *others in table.rows]
        columns, notes = [heads[0], "parameters", *heads[1:]], ["Mean ± standard deviation over seeds.", *table.notes]
        return [replace(table, columns=columns, alignment=f"lr{table.alignment[1:]}", rows=with_sizes, notes=notes)]
    at = study.columns.index(study.across)
    heads = list(dict.fromkeys(line.row.labels[at] for line in block.lines))
    tables = list[Table]()
    for measure in [name for name in pages.MAIN if name in study.measures]:
        rows: dict[str, dict[str, str]] = {}
        trained = {_series(line.row, at) for line in block.lines if line.cells[measure].n}
        for line in block.lines:
            printed = None if typed else line.row.printed.get(measure)
            parts = [texts.average(line.cells[measure]), f"({texts.printed(printed, measure)})" if printed else ""]
            if (name := _series(line.row, at)) in trained or not trained:
                rows.setdefault(name, {})[line.row.labels[at]] = " ".join(filter(None, parts))
        seeds = {cell.n for line in block.lines if (cell := line.cells[measure]).n}
        title = title_of(measure, block.is_heldout) + ("" if typed else " (printed)")
        title += f", mean of {'up to ' * (len(seeds) > 1)}{plural(max(seeds), 'seed')}" if seeds else ""
        lines = [[name, *(of_row.get(head, "") for head in heads)] for name, of_row in rows.items()]
        tables.append(Table(title, [study.across, *heads], "l" + "r" * len(heads), lines))
    return [table for table in tables if any(any(row[1:]) for row in table.rows)]


def _series(row: Row, column: int) -> str:
    """A row's name without the label of a column: CapsNet_CBAM of CapsNet3_CBAM."""
    label = re.escape(row.labels[column])
    return " ".join(re.sub(rf"(?<!\d){label}(?!\d)", "", row.name, count=1).split()) or row.name


def _claimed(one: MeasuredClaim) -> str:
    said = texts.claim_texts(one)
    claimed = f", claimed {said.printed}" if said.printed else ""
    why = f" ({texts.one_line(one.reason)})" if one.reason and not pages.is_decided(one) else ""
    return f"{said.verdict}: {said.claim}: {said.measured}{claimed}{why}"

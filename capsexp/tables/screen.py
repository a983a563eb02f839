"""The last screen of `capsexp reproduce` and `capsexp -m`: what the runs gave, what they show, what to type next."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from capsexp.errors import plural
from capsexp.results.claims import MeasuredClaim
from capsexp.results.measures import MEASURES, title_of
from capsexp.results.study import MeasuredBlock, StudyResults
from capsexp.tables import pages, texts
from capsexp.tables.table import Table
from capsexp.tables.terminal import print_lines, print_table

_CLAIMS, _ROWS = 4, 4  # on the screen
_WIDE = 100  # letters of a command, beside which stands what it is for

Commands = Sequence[tuple[str, str]]  # what to type, and what for


def print_screen(results: StudyResults, setting: str, runs: str, written: Path | None, commands: Commands) -> None:
    """Prints a study's rows as the source has them, what the claims come to, and commands.

    A sweep is a study without a source.

    Args:
        setting: of the runs: the name of a block.
        runs: how many have finished, and in which time.
        written: the file with the whole page.
    """
    study = results.study
    block = next((one for one in results.blocks if one.block.name == setting), results.blocks[0])
    trained = texts.one_line(block.block.setting.title)
    cited, how = (f"{pages.cited(study)}. ", f"; trained: {trained}") if study.source else ("", "")
    only = f", only {results.selection.only}" if results.selection.only else ""
    print_lines([(f"{study.title}{only}", "bold"), (f"{cited}{runs}{how}.", "")])
    for table in row_tables(results, block):
        print_table(table)
    tested = sorted((one for one in results.claims if one.effect and one.runs), key=lambda one: not one.claim.counted)
    if any(run.status == "trial" for run in results.runs):
        lines = [("Trials of a few steps: these numbers show that the runs work, and nothing else.", "bold")]
    elif results.typed:
        ask = "?" if study.source else ":"
        shown = [f"  {texts.one_line(one.claim.text)}{ask} {texts.effect(one.claim, one.effect)}" for one in tested]
        lines = [("These runs show:", "bold"), *((line, "") for line in shown[:_CLAIMS])] if shown else []
        if study.source:
            lines.append((f"They don't test the source, which trains {texts.one_line(study.paper.title)}.", "bold"))
    else:
        told = [one for one in tested if pages.is_decided(one)][:_CLAIMS] or tested[:2]
        lines = [(_claimed(one), "") for one in told]
        if more := len(results.claims) - len(told):
            lines.append((f"{plural(more, 'more claim')} on the page.", ""))
    if written:
        lines.append((f"All numbers: {written}", ""))
    print_lines([*lines, *([("", ""), ("Next", "bold")] if commands else [])])
    wide = max((len(command) for command, _ in commands if len(command) < _WIDE), default=0)
    print_lines([(f"  {command.ljust(wide)}  {what}", "") for command, what in commands])


def print_studies(measured: Sequence[StudyResults], runs: str, output: Path) -> None:
    """Prints an answer a study, and where their pages are."""
    print_lines([(f"{runs}.", ""), ("", "")])
    print_table(Table("", ["study", "answer"], "ll", [[one.study.name, pages.page_answer(one)[0]] for one in measured]))
    print_lines([(f"Their pages: {output}", "")])


def row_tables(results: StudyResults, block: MeasuredBlock) -> list[Table]:
    """The rows in one setting, a table a measure; the labels of the column `across` stand along the top.

    Without such a column it is the page's table.
    """
    study, typed = results.study, results.typed
    if study.across is None:
        table = pages.block_table(results, block)
        if study.source:
            return [table]
        heads = [head.removesuffix(", here") for head in table.columns]  # where nothing is printed
        return [replace(table, columns=heads, notes=["Mean ± standard deviation over seeds.", *table.notes])]
    at = study.columns.index(study.across)
    heads = list(dict.fromkeys(line.row.labels[at] for line in block.lines))
    made = []
    for measure in [name for name in pages.MAIN if name in study.measures]:
        means: dict[str, dict[str, float]] = {}
        rows: dict[str, dict[str, str]] = {}
        series = {line.row.name: _series(line.row.name, line.row.labels[at]) for line in block.lines}
        for line in block.lines:
            label, name = line.row.labels[at], series[line.row.name]
            said = []
            if (cell := line.cells[measure]).mean is not None:
                means.setdefault(name, {})[label] = cell.mean
                said.append(texts.average(cell))
            if not typed and (number := line.row.printed.get(measure)):
                said.append(f"({texts.printed(number, measure)})")
            rows.setdefault(name, {})[label] = " ".join(said)
        rows |= _differences(results, measure, series, means)
        seeds = {cell.n for line in block.lines if (cell := line.cells[measure]).n}
        title = title_of(measure, block.is_heldout) + ("" if typed else " (printed)")
        title += f", mean of {'up to ' * (len(seeds) > 1)}{plural(max(seeds), 'seed')}" if seeds else ""
        trained = means.keys() or rows.keys()
        kept = {name: of_row for name, of_row in rows.items() if name in trained or " − " in name}
        lines = [[name, *(of_row.get(head, "") for head in heads)] for name, of_row in kept.items()]
        made.append(Table(title, [study.across, *heads], "l" + "r" * len(heads), lines))
        if len(lines) > _ROWS:  # another measure stands on the page
            break
    return [table for table in made if any(any(row[1:]) for row in table.rows)]


def _differences(
    results: StudyResults, measure: str, series: dict[str, str], means: dict[str, dict[str, float]]
) -> dict[str, dict[str, str]]:
    """Lines B − A for the pairs of the claims on a measure in percent."""
    rows: dict[str, dict[str, str]] = {}
    claims = [one.claim for one in results.claims if one.claim.counted and one.claim.measure == measure]
    pairs = [pair for claim in claims for pair in claim.pairs]
    for a, b in {(series.get(a, ""), series.get(b, "")): None for a, b in pairs}:
        both = means.get(a, {}).keys() & means.get(b, {}).keys()
        if both and a != b and MEASURES[measure].scale == "percent":
            gains = {head: means[b][head] - means[a][head] for head in both}
            rows[f"{b} − {a}"] = {
                head: texts.decimal(gain, MEASURES[measure].digits, True) for head, gain in gains.items()
            }
    return rows


def _series(row: str, label: str) -> str:
    """A row's name without the label of its column: CapsNet_CBAM of CapsNet3_CBAM."""
    return " ".join(re.sub(rf"(?<!\d){re.escape(label)}(?!\d)", "", row, count=1).split()) or row


def _claimed(one: MeasuredClaim) -> str:
    said = texts.claim_texts(one)
    claimed = f", claimed {said.printed}" if said.printed else ""
    return f"{said.verdict}: {said.claim}: {said.measured}{claimed}"

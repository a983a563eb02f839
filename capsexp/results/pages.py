"""Each study's page: tables of published and measured numbers, each with its seeds, and claims."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from capsexp.config import compose
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Line, Results
from capsexp.results.page import Footnotes, Page, Table, decimal, digits, hours, mean_and_spread, one_line
from capsexp.study.selection import essential
from capsexp.study.studies import published_number

VERDICT_NOTE = (
    "Reproduced: the published number lies inside the 95 % prediction interval for one more run; published higher "
    "(lower): it lies above (below) that interval; undecided: fewer than three seeds, reduced training or other data."
)
ACCURACY_NOTE = (
    "Accuracy in percent of the test images, mean ± standard deviation over seeds (number of seeds). Maximum: the "
    "highest over the epochs, as in the papers; last epoch: without epoch selection. Difference: maximum − published."
)
HELDOUT_NOTE = "Held-out: the epoch is selected on a tenth of the training images, and tested once."
EPOCH_NOTE = (
    "Mean ± standard deviation over seeds (number of seeds). Within 0.1 point: the first epoch with at most 0.1 points "
    "less than the maximum."
)
COST_NOTE = (
    "Seconds per epoch, training and evaluation: median over epochs, then mean ± standard deviation over seeds (number "
    "of seeds). MB: peak memory of the device / of the process, mean over seeds. Machines differ: no verdicts."
)
CLAIM_NOTE = (
    "Runs are paired by seed: mean ± half-width of the 95 % confidence interval, n seeds. Confirmed: the interval "
    "excludes 0 on the claimed side, and a claimed size lies in the 95 % prediction interval; smaller or larger than "
    "claimed: only its sign is confirmed; contradicted: the interval excludes 0 on the other side; not reproduced, or "
    "no difference shown: it includes 0; undecided: fewer than three seeds, reduced training, other data, or not all "
    "runs."
)
#: What stands below each table, and what it needs, as `Column.needs`.
NOTES = {
    "Accuracy": [(ACCURACY_NOTE, ""), (HELDOUT_NOTE, "heldout"), (VERDICT_NOTE, "")],
    "Also measured": [(HELDOUT_NOTE, "heldout")],
    "First epoch to the maximum": [
        (EPOCH_NOTE, ""),
        ("Epochs 1–5: the mean accuracy of the first five epochs.", "first_five"),
    ],
    "Cost": [(COST_NOTE, "")],
}

UNITS = {"accuracy": " points", "first_five": " points", "first_epoch": " epochs", "memory": " MB", "inference": " ms"}
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}

Text = Callable[[Line, Footnotes], str]


@dataclass(frozen=True)
class Column:
    """A column of numbers; `needs`: a measure that the source must print, or heldout, which must have runs."""

    name: str
    text: Text
    needs: str = ""
    alignment: str = "r"


def _published(measure: str, name: str = "published") -> Column:
    def text(line: Line, _: Footnotes) -> str:
        printed = line.row.published.get(measure, "")
        return f"{printed}M" if measure == "parameters" and published_number(printed) else printed

    return Column(name, text, measure)


def _measured(name: str, measure: str, needs: str = "", protocol: str = "paper", failures: bool = False) -> Column:
    def text(line: Line, footnotes: Footnotes) -> str:
        cell = line.cell(measure, protocol)
        failed = f"failed ({cell.failed} of {cell.runs})" if failures and cell.failed else ""
        return ", ".join(filter(None, [footnotes.cell(mean_and_spread(cell), cell), failed]))

    return Column(name, text, needs)


def _compared(measure: str) -> list[Column]:
    def difference(line: Line, footnotes: Footnotes) -> str:
        cell = line.cell(measure)
        value = "" if cell.difference is None else decimal(cell.difference, digits(cell), signed=True)
        return footnotes.cell(value, cell)

    return [Column("difference", difference, measure), _verdict(measure)]


def _verdict(measure: str) -> Column:
    return Column("verdict", lambda line, _: line.cell(measure).verdict or "", measure, "l")


def _memory(line: Line, footnotes: Footnotes) -> str:
    device, host = line.cell("memory").mean, line.cell("host").mean
    text = "" if host is None else f"{'–' if device is None else f'{device:,.0f}'} / {host:,.0f}"
    return footnotes.cell(text, line.cell("host"))


def _parameters(line: Line, footnotes: Footnotes) -> str:
    text = " / ".join(f"{count:,.0f}" for count in line.cell("parameters").values)
    return footnotes.mark(text, line.setting if line.setting and line.setting.width != 1 else None)


ACCURACIES = [
    _measured("maximum", "accuracy", failures=True),
    _measured("last epoch", "last"),
    _measured("held-out", "accuracy", "heldout", "heldout", failures=True),
]
ACCURACY = [_published("accuracy"), *ACCURACIES, *_compared("accuracy")]
OTHER_SETTINGS = [*ACCURACIES, _measured("first epoch", "first_epoch")]
EPOCHS = [
    _published("first_epoch"),
    _measured("first epoch", "first_epoch", failures=True),
    _measured("within 0.1 point", "within"),
    *_compared("first_epoch"),
    _published("first_five", "published, epochs 1–5"),
    _measured("epochs 1–5", "first_five", "first_five"),
    *_compared("first_five"),
]
COST = [
    _published("parameters", "published parameters"),
    Column("parameters", _parameters),
    _verdict("parameters"),
    _published("inference", "published ms / 128 images"),
    _measured("ms / 128 images", "inference", "inference"),
    _published("memory", "published MB"),
    Column("MB, device / host", _memory),
    _measured("s / epoch", "seconds"),
    Column("device", lambda line, _: line.cell("seconds").device or "", alignment="l"),
]


def page(results: Results) -> Page:
    """A study's page; the same setting has the same letter in all of its tables."""
    study, footnotes = results.study, Footnotes(results.runs.setting)
    tables = [
        _table("Accuracy", ACCURACY, results, results.lines, footnotes, complete=True),
        _table("Also measured", OTHER_SETTINGS, results, results.other_lines, footnotes, complete=True),
        _table("First epoch to the maximum", EPOCHS, results, results.lines, footnotes),
        _table("Cost", COST, results, results.lines, footnotes),
    ]
    return Page(
        study.name,
        title(results),
        study.source,
        study.protocol,
        [table for table in tables if table.rows],
        _claims(results, footnotes) if results.claims else None,
        study.deviations,
        spent(results.runs),
        commands(results),
    )


def title(results: Results) -> str:
    """The study's, with what was typed in place of the rows' own choices."""
    typed = " ".join(essential(results.typed))
    return results.study.title + (f", on {typed} instead" if results.replaced else f", only {typed}" if typed else "")


def source(results: Results) -> str:
    """Which table or figure of which source, without remarks."""
    found = re.match(r'("[^"]*"|Fig\.|[^".;(])*', one_line(results.study.source))
    return found[0].strip() if found else ""


def _table(
    title: str,
    columns: Sequence[Column],
    results: Results,
    lines: Sequence[Line],
    footnotes: Footnotes,
    complete: bool = False,
) -> Table:
    """Rows × labels and columns, `complete` or without empty rows; the rows' remarks are footnotes of accuracies."""
    has = {"", *results.study.measures, *("heldout" for line in lines if line.cell("accuracy", "heldout").runs)}
    columns = [column for column in columns if column.needs in has]
    rows = []
    for line in lines:
        first = footnotes.mark(line.row.name, line.row.note if title == "Accuracy" else None)
        texts = [column.text(line, footnotes) for column in columns]
        if complete or any(texts):
            rows.append([first, *line.row.labels[1:], *texts])
    names = [*results.study.columns, *(column.name for column in columns)]
    alignment = "l" * len(results.study.columns) + "".join(column.alignment for column in columns)
    notes = [text for text, needs in NOTES[title] if needs in has]
    return Table(title, names, alignment, rows, notes, footnotes.texts())


def _claims(results: Results, footnotes: Footnotes) -> Table:
    rows = []
    for one in results.claims:
        verdict = one.verdict + (f" ({one.reason})" if one.reason else "")
        rows.append([one_line(one.claim.text), *claim_texts(one), footnotes.mark(verdict, one.setting)])
    return Table("Claims", ["claim", "claimed", "measured", "verdict"], "llll", rows, [CLAIM_NOTE], footnotes.texts())


def claim_texts(measured: MeasuredClaim) -> tuple[str, str]:
    """What is claimed and what was measured, with units; nothing where nothing was."""
    claim, result = measured.claim, measured.result
    unit = " %" if claim.estimate == "relative" else UNITS.get(claim.measure, "")
    unit += " a row" if claim.estimate == "slope" else ""
    claimed = DIRECTIONS.get(claim.claimed, claim.claimed.replace("-", "−") + unit)
    if result is None:
        return claimed, ""
    digits = 2 if unit.startswith(" points") else 1
    spread, level = "", f"n = {result.n}"
    if result.half_width is not None:
        spread, level = f" ± {decimal(result.half_width, digits)}", f"95 %, {level}"
    level += f"; {measured.part}" if measured.part else ""
    return claimed, f"{decimal(result.mean, digits, signed=True)}{spread}{unit} ({level})"


def spent(runs: pd.DataFrame) -> str:
    """12 runs, 3.4 hours on NVIDIA H200."""
    runs = runs.drop_duplicates("key")
    times = [f"{hours(time)} on {device}" for device, time in runs.groupby("device").hours.sum().items()]
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {', '.join(times)}." if times else "No runs."


def commands(results: Results) -> dict[str, list[str]]:
    """The commands that repeat the rows' runs, each with the names of its rows.

    There is one for each row in its main setting and each protocol: that of its records, where they agree, or the row's
    own. It names their precision: `auto` can be another on another device.
    """
    found: dict[str, list[str]] = {}
    for line in results.lines:
        protocols = [protocol for protocol in ("paper", "heldout") if line.cell("accuracy", protocol).runs]
        for protocol in protocols or ["paper"]:
            if line.row.run:
                found.setdefault(_command(results, line, protocol), []).append(line.row.name)
    return found


def _command(results: Results, line: Line, protocol: str) -> str:
    runs = results.runs
    runs = runs[(runs.row == line.row.name) & (runs.setting == line.setting) & (runs.protocol == protocol)]
    recorded = {_without_seed(command) for command in runs.command.dropna()}
    agreed = len(recorded) == 1 and runs.command.notna().all()
    words = list(recorded.pop()) if agreed else _own_words(results, line, protocol)
    if line.setting and not any(word.startswith("trainer.precision=") for word in words):
        words.append(f"trainer.precision={line.setting.precision}")
    seeds = ",".join(map(str, sorted(set(runs.seed)))) or "0,1,2"
    several = ["-m"] if any("," in word for word in [*words, seeds]) else []
    return shlex.join(["python", "-m", "capsexp", *several, *words, f"seed={seeds}"])


def _own_words(results: Results, line: Line, protocol: str) -> list[str]:
    """The row's command, with its setting and what is typed in place of the row's own choices."""
    words = [*shlex.split(line.row.run or ""), *(line.setting.overrides if line.setting else [])]
    words += ["protocol=heldout"] if protocol == "heldout" else []
    typed = {word.partition("=")[0]: word for word in results.typed}
    words = [word for word in words if word.partition("=")[0] not in typed]
    return list(_without_seed(compose.command([*words, *typed.values()])))


def _without_seed(command: str) -> tuple[str, ...]:
    return tuple(word for word in shlex.split(command)[3:] if not word.startswith("seed="))

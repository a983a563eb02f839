"""Each study's page: tables of published and measured numbers, each with its seeds, and claims."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from capsexp.config import compose
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Line, Results
from capsexp.results.page import Footnotes, Page, Table, decimal, hours, mean_and_spread, one_line, places
from capsexp.study.selection import essential
from capsexp.study.studies import published_number

LEFT, RIGHT = "l", "r"

VERDICTS = (
    "Reproduced: the published number lies inside the 95 % prediction interval for one more run of ours; published "
    "higher, lower: above it, below it; undecided: fewer than three seeds, reduced training or other data."
)
ACCURACY = (
    "Percent of the test images, mean ± standard deviation over seeds (their number). Maximum: over the epochs, as the "
    "papers take it; last epoch: nobody chose it. Difference: maximum − published."
)
HELDOUT = "Held-out: a tenth of the training images chose the epoch, which was tested once."
EPOCHS = "Mean ± standard deviation over seeds (their number)."
FIRST_FIVE = "Epochs 1–5: the mean accuracy of the first five epochs."
COST = (
    "Median seconds an epoch, training and evaluation; mean over seeds. Memory: the most at any time, device / host. "
    "Machines differ: no verdict."
)
CLAIMS = (
    "Paired over seeds: mean ± half of the 95 % confidence interval, n seeds. Confirmed: the interval excludes 0 on "
    "the claimed side, and a claimed size lies in the prediction interval."
)

UNITS = {"accuracy": " points", "first_five": " points", "first_epoch": " epochs", "memory": " MB", "inference": " ms"}
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}


@dataclass(frozen=True)
class Column:
    """A column of a table of rows."""

    name: str
    text: Callable[[Line], str]
    alignment: str = RIGHT


def page(results: Results) -> Page:
    """A study's page; the same setting has the same letter in all of its tables."""
    study, notes = results.study, Footnotes(results.runs.setting)
    tables = [_accuracy(results, notes), _other_settings(results, notes)]
    tables += [_epochs(results, notes), _cost(results, notes)]
    return Page(
        study.name,
        title(results),
        study.source,
        study.protocol,
        [table for table in tables if table.rows],
        _claims(results, notes) if results.claims else None,
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
    found = re.match(r'("[^"]*"|Fig\.|[^".;(])*', " ".join(results.study.source.split()))
    return found[0].strip() if found else ""


# Tables


def _accuracy(results: Results, notes: Footnotes) -> Table:
    lines, printed = results.lines, "accuracy" in results.study.measures
    columns = _labels(results, notes, remarks=True)
    columns += _published("accuracy", "published") if printed else []
    columns += _accuracies(lines, notes)
    columns += _compared(notes, "accuracy") if printed else []
    return _table("Accuracy", columns, lines, [ACCURACY, HELDOUT * _has_heldout(lines), VERDICTS], notes)


def _other_settings(results: Results, notes: Footnotes) -> Table:
    """The settings that are not in the main tables."""
    lines = results.other_lines
    columns = [*_labels(results, notes), *_accuracies(lines, notes), _measured(notes, "first epoch", "first_epoch")]
    return _table("Also measured", columns, lines, [HELDOUT * _has_heldout(lines)], notes)


def _epochs(results: Results, notes: Footnotes) -> Table:
    """How soon the maximum comes."""
    labels = columns = _labels(results, notes)
    first, five = (measure in results.study.measures for measure in ("first_epoch", "first_five"))
    columns = [*labels, *(_published("first_epoch", "published") if first else [])]
    columns += [_measured(notes, "first epoch", "first_epoch", failures=True)]
    columns += [_measured(notes, "within 0.1 point", "within")]
    columns += _compared(notes, "first_epoch") if first else []
    if five:
        columns += [*_published("first_five", "published, epochs 1–5"), _measured(notes, "epochs 1–5", "first_five")]
        columns += _compared(notes, "first_five")
    captions = [EPOCHS, FIRST_FIVE * five]
    return _table("First epoch to the maximum", columns, results.lines, captions, notes, len(labels))


def _cost(results: Results, notes: Footnotes) -> Table:
    """Parameters, memory, time."""
    labels, printed = _labels(results, notes), results.study.measures
    columns = [*labels, *(_published("parameters", "published parameters") if "parameters" in printed else [])]
    columns += [Column("parameters", lambda line: _parameters(line, notes))]
    columns += [_verdict("parameters")] if "parameters" in printed else []
    if "inference" in printed:
        columns += _published("inference", "published ms / 128 images")
        columns += [_measured(notes, "ms / 128 images", "inference")]
    columns += _published("memory", "published MB") if "memory" in printed else []
    columns += [
        Column("MB, device / host", lambda line: notes.cell(_memory(line), line.cell("host"))),
        _measured(notes, "s / epoch", "seconds"),
        Column("device", lambda line: line.cell("seconds").device or "", LEFT),
    ]
    return _table("Cost", columns, results.lines, [COST], notes, len(labels))


def _table(
    title: str, columns: list[Column], lines: Iterable[Line], captions: Sequence[str], notes: Footnotes, labels: int = 0
) -> Table:
    """Lines × columns, without the rows that are empty behind so many labels."""
    rows = [[column.text(line) for column in columns] for line in lines]
    rows = [row for row in rows if any(row[labels:])]
    alignment = "".join(column.alignment for column in columns)
    return Table(title, [column.name for column in columns], alignment, rows, [*filter(None, captions)], notes.texts())


# Columns


def _labels(results: Results, notes: Footnotes, remarks: bool = False) -> list[Column]:
    """The rows' labels, the first with the row's remark as a footnote."""

    def label(index: int) -> Callable[[Line], str]:
        remarked = remarks and index == 0
        return lambda line: notes.mark(line.row.labels[index], (remarked and line.row.note) or "")

    return [Column(name, label(index), LEFT) for index, name in enumerate(results.study.columns)]


def _published(measure: str, name: str) -> list[Column]:
    def text(line: Line) -> str:
        printed = line.row.published.get(measure, "")
        return f"{printed}M" if measure == "parameters" and published_number(printed) else printed

    return [Column(name, text)]


def _accuracies(lines: Sequence[Line], notes: Footnotes) -> list[Column]:
    columns = [_measured(notes, "maximum", "accuracy", failures=True), _measured(notes, "last epoch", "last")]
    return columns + [_measured(notes, "held-out", "accuracy", "heldout", True)] * _has_heldout(lines)


def _measured(notes: Footnotes, name: str, measure: str, protocol: str = "paper", failures: bool = False) -> Column:
    """Mean and standard deviation, and how many runs failed."""

    def text(line: Line) -> str:
        cell = line.cell(measure, protocol)
        failed = f"failed ({cell.failed} of {cell.runs})" if failures and cell.failed else ""
        return ", ".join(filter(None, [notes.cell(mean_and_spread(cell), cell), failed]))

    return Column(name, text)


def _compared(notes: Footnotes, measure: str) -> list[Column]:
    def difference(line: Line) -> str:
        cell = line.cell(measure)
        return "" if cell.difference is None else notes.cell(decimal(cell.difference, places(cell), signed=True), cell)

    return [Column("difference", difference), _verdict(measure)]


def _verdict(measure: str) -> Column:
    return Column("verdict", lambda line: line.cell(measure).verdict or "", LEFT)


def _memory(line: Line) -> str:
    device, host = (line.cell(measure).mean for measure in ("memory", "host"))
    return "" if host is None else f"{'–' if device is None else f'{device:,.0f}'} / {host:,.0f}"


def _parameters(line: Line, notes: Footnotes) -> str:
    cell = line.cell("parameters")
    narrow = line.setting is not None and line.setting.width != 1
    return notes.mark(" / ".join(f"{count:,.0f}" for count in cell.values), notes.meaning(line.setting) * narrow)


def _has_heldout(lines: Iterable[Line]) -> bool:
    return any(line.cell("accuracy", "heldout").runs for line in lines)


# Claims


def _claims(results: Results, notes: Footnotes) -> Table:
    rows = []
    for measured in results.claims:
        claimed, number = claim_texts(measured)
        verdict = measured.verdict + (f" ({measured.reason})" if measured.reason else "")
        rows += [
            [
                one_line(measured.claim.text),
                claimed,
                number,
                verdict + notes.letters_of(notes.meaning(measured.setting)),
            ]
        ]
    return Table("Claims", ["claim", "claimed", "measured", "verdict"], LEFT * 4, rows, [CLAIMS], notes.texts())


def claim_texts(measured: MeasuredClaim) -> tuple[str, str]:
    """What is claimed and what was measured, with units; nothing where nothing was."""
    claim, result = measured.claim, measured.result
    unit = (
        " %" if claim.estimate == "relative" else UNITS.get(claim.measure, "") + " a row" * (claim.estimate == "slope")
    )
    claimed = DIRECTIONS.get(claim.claimed, claim.claimed.replace("-", "−") + unit)
    if result is None:
        return claimed, ""
    places = 1 if claim.estimate == "relative" or claim.measure not in ("accuracy", "first_five") else 2
    spread = "" if result.half_width is None else f" ± {decimal(result.half_width, places)}"
    level = "95 %, " * (result.half_width is not None) + f"n = {result.n}" + f"; {measured.part}" * bool(measured.part)
    return claimed, f"{decimal(result.mean, places, signed=True)}{spread}{unit} ({level})"


# Runs


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
    several = ["-m"] if "," in seeds or len(line.row.combinations()) > 1 else []
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

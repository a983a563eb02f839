"""Each study's page as texts without markup, which Markdown, LaTeX, HTML and the terminal print."""

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from capsexp.config import compose
from capsexp.errors import printable
from capsexp.results.cells import Cell
from capsexp.results.claims import Measured, MeasuredClaim, is_loaded
from capsexp.results.collect import Line, Results
from capsexp.study.selection import essential
from capsexp.study.studies import Claim, published_number

#: Digits behind the point of means.
DIGITS = {
    "accuracy": 2,
    "last": 2,
    "first_five": 2,
    "first_epoch": 1,
    "within": 1,
    "inference": 2,
    "seconds": 1,
    "memory": 0,
}

#: Verdicts that tell nothing about a number or a claim.
UNDECIDED = ("open", "unstable", "ceiling")

CAUTION = "This is another experiment than the source's: its verdicts say nothing about the published numbers."
RULE = "Verdicts: docs/verdicts.md."
ACCURACY_NOTES = [
    "Accuracy in percent of the test images, mean ± standard deviation over seeds (number of seeds).",
    "Maximum: the highest over the epochs, as in the papers.",
    "Last epoch: without epoch selection.",
    "One more run: its 95 % prediction interval.",
    "Difference: maximum − published.",
]
SO_FAR_NOTE = "So far: after another training than the paper's, given under training."
LEARNED_NOTE = (
    "Didn't learn: the odds of the best epoch's accuracy are at most twice those of always guessing the most frequent "
    "label. Such runs count like others."
)
HELDOUT_NOTE = "Held-out: the epoch is selected on a tenth of the training images, and tested once."
EPOCH_NOTE = (
    "Mean ± standard deviation over seeds (number of seeds). ≥: the maximum is in the last epoch that was trained. "
    "Within 0.1 point: the first epoch with at most 0.1 points less than the maximum. Difference: in percent of the "
    "published epoch."
)
COST_NOTE = (
    "Parameters: of the whole network, counted without a run. Seconds per epoch, training and evaluation: median over "
    "epochs, then mean ± standard deviation over seeds (number of seeds). MB: peak memory of the device / of the "
    "process, mean over seeds. Loaded: other work ran on the machine. Machines differ: no verdicts."
)
CLAIM_NOTE = (
    "Printed: what the rows' published numbers give, each of one run; its 95 % interval is of the test set's sampling "
    "alone. Measured: the effect and its 95 % interval, from the spread over seeds of all runs of the data set. p: of "
    "the test that decides the verdict, in brackets corrected by Holm's method for all claims of the source."
)
#: What stands below each table, and what it needs: as `Column.needs`, or rows so far, or runs that didn't learn.
NOTES = {
    "Accuracy": [
        *((note, "") for note in ACCURACY_NOTES),
        (HELDOUT_NOTE, "heldout"),
        (SO_FAR_NOTE, "so far"),
        (LEARNED_NOTE, "unlearned"),
        (RULE, ""),
    ],
    "Also measured": [(HELDOUT_NOTE, "heldout"), (LEARNED_NOTE, "unlearned")],
    "First epoch to the maximum": [
        (EPOCH_NOTE, ""),
        ("Epochs 1–5: the mean accuracy of the first five epochs.", "first_five"),
    ],
    "Cost": [(COST_NOTE, "")],
    "Claims": [(CLAIM_NOTE, ""), (RULE, "")],
}

UNITS = {"accuracy": "points", "first_five": "points", "memory": "MB", "inference": "ms", "seconds": "s"}
CLAIMED = {
    "increase": "an increase",
    "decrease": "a decrease",
    "same": "no difference",
    "no increase": "no increase",
    "no decrease": "no decrease",
}


@dataclass(frozen=True)
class Table:
    """A table of texts and what stands below it."""

    title: str
    columns: list[str]
    alignment: str  # l or r for each column
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)  # whole sentences
    remarks: list[str] = field(default_factory=list)  # on single rows


@dataclass(frozen=True)
class Page:
    """A study's page."""

    name: str
    title: str
    caution: str  # where it is another experiment than the source's
    source: str
    protocol: str
    tables: list[Table]  # the claims first
    deviations: list[str]
    runs: str  # how many, and how long
    commands: dict[str, list[str]]  # that repeat the runs, each with the names of its rows


class ClaimTexts(NamedTuple):
    """What a table of claims says of one, in its columns behind the claim itself."""

    claimed: str
    printed: str  # what the printed numbers give
    measured: str
    verdict: str
    origin: str  # from which runs, or why there are none


Text = Callable[[Line], str]


@dataclass(frozen=True)
class Column:
    """A column; `needs`: a measure that the source must print, or heldout, which must have runs."""

    name: str
    text: Text
    needs: str = ""
    alignment: str = "r"


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus; nothing is negative zero."""
    rounded = round(value, digits) or 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def digits(cell: Cell) -> int:
    """Digits behind the point of a mean; a single epoch is a whole number."""
    return 0 if cell.n == 1 and cell.measure in ("first_epoch", "within") else DIGITS[cell.measure]


def mean_and_spread(cell: Cell) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), ≥ 40 (3), median 96.21 of 17.95, 96.21, 97.01, or nothing."""
    if cell.mean is None:
        return ""
    if cell.unstable:
        values = ", ".join(decimal(value, digits(cell)) for value in cell.values)
        return f"median {decimal(cell.mean, digits(cell))} of {values}"
    return number(cell.mean, cell.sd, cell.values, digits(cell), cell.bounds)


def number(mean: float, sd: float | None, values: Sequence[float], digits: int, bounds: Sequence[bool] = ()) -> str:
    """99.71 ± 0.03 (5), or 99.71 (1); the values themselves where some of them are lower bounds."""
    if any(bounds):
        texts = [f"{'≥ ' if bound else ''}{decimal(value, 0)}" for value, bound in zip(values, bounds, strict=True)]
        return f"{texts[0]} ({len(values)})" if len(set(texts)) == 1 else ", ".join(texts)
    spread = "" if sd is None else f" ± {decimal(sd, digits)}"
    return f"{decimal(mean, digits)}{spread} ({len(values)})"


def unlearned(cell: Cell) -> str:
    """didn't learn (1 of 5), or nothing."""
    return f"didn't learn ({cell.unlearned} of {cell.runs})" if cell.unlearned else ""


def hours(number: float) -> str:
    """3.4 hours, 22 minutes."""
    return f"{number:,.1f} hours" if number >= 1 else plural(round(60 * number), "minute")


def plural(number: int, what: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """A text without line breaks, and with escapes for what a terminal takes as commands."""
    return printable(" ".join(text.split()))


def verdict(one: Cell | MeasuredClaim) -> str:
    """The verdict on a number or a claim, so far where the training is another than the paper's; or nothing."""
    decided = one.verdict not in (None, *UNDECIDED)
    return f"{one.verdict} so far" if one.so_far and decided else one.verdict or ""


def _published(measure: str, name: str = "published") -> Column:
    def text(line: Line) -> str:
        printed = line.row.published.get(measure, "")
        return f"{printed}M" if measure == "parameters" and published_number(printed) else printed

    return Column(name, text, measure)


def _measured(name: str, measure: str, needs: str = "", protocol: str = "paper", failures: bool = False) -> Column:
    def text(line: Line) -> str:
        cell = line.cell(measure, protocol)
        failed = f"failed ({cell.failed} of {cell.runs})" if cell.failed else ""
        return ", ".join(filter(None, [mean_and_spread(cell), *([failed, unlearned(cell)] if failures else [])]))

    return Column(name, text, needs)


def _interval(measure: str) -> Column:
    def text(line: Line) -> str:
        cell = line.cell(measure)
        if cell.low is None or cell.high is None:
            return ""
        return f"{decimal(cell.low, digits(cell))} to {decimal(cell.high, digits(cell))}"

    return Column("one more run", text)


def _compared(measure: str) -> list[Column]:
    def difference(line: Line) -> str:
        cell = line.cell(measure)
        if cell.difference is None:
            return ""
        relative = measure == "first_epoch"
        return decimal(cell.difference, 0 if relative else digits(cell), signed=True) + (" %" if relative else "")

    return [Column("difference", difference, measure), _verdict(measure)]


def _verdict(measure: str) -> Column:
    return Column("verdict", lambda line: verdict(line.cell(measure)), measure, "l")


def _memory(line: Line) -> str:
    device, host = line.cell("memory").mean, line.cell("host").mean
    return "" if host is None else f"{'–' if device is None else f'{device:,.0f}'} / {host:,.0f}"


def _device(line: Line) -> str:
    device = line.cell("seconds").device if line.row.run else None
    loaded = any(is_loaded(run) for run in line.runs if run.device == device)
    return f"{device}, loaded" if device and loaded else device or ""


TRAINING = Column("training", lambda line: str(line.setting or ""), alignment="l")
ACCURACIES = [
    _measured("maximum", "accuracy", failures=True),
    _interval("accuracy"),
    _measured("last epoch", "last"),
    _measured("held-out", "accuracy", "heldout", "heldout", failures=True),
]
ACCURACY = [_published("accuracy"), *ACCURACIES, *_compared("accuracy"), TRAINING]
OTHER_SETTINGS = [*ACCURACIES, _measured("first epoch", "first_epoch"), TRAINING]
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
    Column("parameters", lambda line: " / ".join(f"{count:,.0f}" for count in line.cell("parameters").values)),
    _verdict("parameters"),
    _published("inference", "published ms / 128 images"),
    _measured("ms / 128 images", "inference", "inference"),
    _published("memory", "published MB"),
    Column("MB, device / host", _memory),
    _measured("s / epoch", "seconds"),
    Column("device", _device, alignment="l"),
]


def page(results: Results) -> Page:
    """A study's page."""
    study = results.study
    tables = [
        _claims(results),
        _table("Accuracy", ACCURACY, results, results.lines, complete=True),
        _table("Also measured", OTHER_SETTINGS, results, results.other_lines, complete=True),
        _table("First epoch to the maximum", EPOCHS, results, results.lines),
        _table("Cost", COST, results, results.lines),
        _checks(results),
    ]
    return Page(
        study.name,
        title(results),
        CAUTION if results.replaced else "",
        study.source,
        study.protocol,
        [table for table in tables if table.rows],
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
    title: str, columns: Sequence[Column], results: Results, lines: Sequence[Line], complete: bool = False
) -> Table:
    """Rows × labels and columns that aren't empty; `complete`: rows without numbers too."""
    has = {"", *results.study.measures, *("heldout" for line in lines if line.cell("accuracy", "heldout").runs)}
    has |= {"so far"} if any(line.cell("accuracy").so_far for line in lines if line.setting) else set()
    has |= {"unlearned"} if any(cell.unlearned for line in lines for cell in line.cells.values()) else set()
    columns = [column for column in columns if column.needs in has]
    filled = [(line, {column: column.text(line) for column in columns}) for line in lines]
    filled = [(line, texts) for line, texts in filled if complete or any(texts.values())]
    shown = [column for column in columns if any(texts[column] for _, texts in filled)]
    rows = [[*line.row.labels, *(texts[column] for column in shown)] for line, texts in filled]
    names = [*results.study.columns, *(column.name for column in shown)]
    alignment = "l" * len(results.study.columns) + "".join(column.alignment for column in shown)
    notes = [text for text, needs in NOTES[title] if needs in has]
    remarks = _remarks([line for line, _ in filled]) if title == "Accuracy" else []
    return Table(title, names, alignment, rows, notes, remarks)


def _remarks(lines: Sequence[Line]) -> list[str]:
    """What is to be said of single rows: the study's notes, and how the best of several runs was selected."""
    remarks = [f"{line.row.name}: {one_line(line.row.note)}" for line in lines if line.row.note]
    selected: dict[str, list[str]] = {}
    for line in lines:
        for protocol in ("paper", "heldout"):
            if best := line.cell("accuracy", protocol).best_of:
                selected.setdefault(best, []).append(line.row.name)
    return [*remarks, *(f"{', '.join(dict.fromkeys(names))}: {best}." for best, names in selected.items())]


def _claims(results: Results) -> Table:
    rows = [[one_line(one.claim.text), *claim_texts(one)] for one in results.claims]
    columns = ["claim", "claimed", "printed", "measured", "verdict", "from"]
    return Table("Claims", columns, "llllll", rows, [text for text, _ in NOTES["Claims"]])


def _checks(results: Results) -> Table:
    """What the source prints twice."""
    rows = []
    for check in results.study.checks:
        first, second = (published_number(text) for text in check.printed)
        assert first is not None
        assert second is not None
        equal = abs(first.value - second.value) <= max(first.resolution, second.resolution)
        rows.append([one_line(check.text), *check.printed, "equal" if equal else "different"])
    return Table("Printed twice", ["what", "first", "second", "verdict"], "lrrl", rows)


def claim_texts(one: MeasuredClaim) -> ClaimTexts:
    """A measured claim as tables show it."""
    claim = one.claim
    if claim.untested is not None:
        return ClaimTexts("", "", "", one.verdict, one_line(one.reason))
    number = published_number(claim.claimed)
    claimed = f"{claim.claimed.replace('-', '−')}{_unit(claim)}" if number else CLAIMED[claim.claimed]
    printed = effect(claim, one.printed) if one.printed else ""
    measured = effect(claim, one.measured) if one.measured else ""
    pairs = one.measured.pairs if one.measured and claim.measure == "parameters" else ()
    if len(pairs) > 1:
        measured += f" ({', '.join(_size(claim, value) for value in pairs)})"
    judged = verdict(one)
    if one.p_value is not None:
        corrected = f" ({_probability(one.adjusted).removeprefix('= ')})" if one.adjusted is not None else ""
        judged += f", p {_probability(one.p_value)}{corrected}"
    runs = plural(one.runs, "run") if one.runs else ""
    unlearned = f"{one.unlearned} didn't learn" if one.unlearned else ""
    counted = "a count, no run" if one.measured and not one.runs else ""
    precision = one.setting.precision if one.setting else ""
    reason = f"no runs of {one.reason}" if one.verdict == "not run" and one.reason else one.reason
    origin = ", ".join(filter(None, [runs, unlearned, counted, one.so_far, precision, reason]))
    return ClaimTexts(claimed, printed, measured, judged, origin)


def effect(claim: Claim, measured: Measured) -> str:
    """+1.00 points, and its interval: −0.82 to +2.82."""
    text = _size(claim, measured.value) + _unit(claim)
    if measured.interval is None:
        return text
    low, high = measured.interval
    return f"{text} ({_size(claim, low)} to {_size(claim, high)})"


def _size(claim: Claim, value: float) -> str:
    if claim.estimate == "factor":
        return decimal(value, 2)
    return decimal(value, 2 if UNITS.get(claim.measure) == "points" else 1, signed=True)


def _unit(claim: Claim) -> str:
    if claim.estimate == "factor":
        return " times"
    unit = "%" if claim.estimate == "relative" else UNITS.get(claim.measure, "")
    return f" {unit}" + ("/row" if claim.estimate == "slope" else "")


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.{3 if value < 0.1 else 2}f}"


def spent(runs: pd.DataFrame) -> str:
    """12 runs, 3.4 hours on NVIDIA H200."""
    runs = runs.drop_duplicates("key")
    times = [f"{hours(time)} on {device}" for device, time in runs.groupby("device").hours.sum().items()]
    return f"{plural(len(runs), 'run')}, {', '.join(times)}." if times else "No runs."


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

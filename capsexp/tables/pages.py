"""Each study's page as texts without markup, which Markdown, LaTeX, HTML and the terminal print."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from capsexp.config import compose, searchpath
from capsexp.errors import plural
from capsexp.results.cells import Cell
from capsexp.results.collect import Line, Results
from capsexp.results.runs import Run
from capsexp.study.selection import essential
from capsexp.study.setting import Setting
from capsexp.study.studies import Row, Study, published_number
from capsexp.tables import texts
from capsexp.tables.texts import claim_texts, decimal, digits, mean_and_spread, one_line, shorter, unlearned

CAUTION = "This is another experiment than the source's: its verdicts say nothing about the published numbers."

#: The measures of the short tables, which have what is printed beside what is measured.
SHORT = {"accuracy": "maximum %", "first_epoch": "first epoch"}


class Note(NamedTuple):
    """A sentence below a table."""

    text: str
    needs: str = ""  # as `Column.needs`, or rows so far, rows marked as trained shorter, runs that didn't learn
    in_tex: bool = True


RULE = Note("Verdicts: docs/verdicts.md.", in_tex=False)
MARK_NOTE = Note("†: after another training than the paper's.", "shorter")
SHORT_NOTE = Note(
    "Published → measured, mean ± standard deviation over seeds (number of seeds). Maximum: the highest test accuracy "
    "over the epochs, as in the papers; first epoch: the first that reaches it."
)
LEARNED_NOTE = Note(
    "Didn't learn: the odds of the best epoch's accuracy are at most twice those of always guessing the most frequent "
    "label. Such runs count like others.",
    "unlearned",
)
HELDOUT_NOTE = Note("Held-out: the epoch is selected on a tenth of the training images, and tested once.", "heldout")

#: What stands below each table, where it has what the note needs.
NOTES = {
    "Accuracy": [
        Note("Accuracy in percent of the test images, mean ± standard deviation over seeds (number of seeds)."),
        Note("Maximum: the highest over the epochs, as in the papers."),
        Note("Last epoch: without epoch selection.", in_tex=False),
        Note("One more run: its 95 % prediction interval.", in_tex=False),
        Note("Difference: maximum − published."),
        HELDOUT_NOTE,
        MARK_NOTE,
        Note("So far: after another training than the paper's, given under training.", "so far"),
        LEARNED_NOTE,
        RULE,
    ],
    "Also measured": [HELDOUT_NOTE, LEARNED_NOTE],
    "First epoch to the maximum": [
        Note(
            "Mean ± standard deviation over seeds (number of seeds). ≥: the maximum is in the last epoch that was "
            "trained. Within 0.1 point: the first epoch with at most 0.1 points less than the maximum. Difference: in "
            "percent of the published epoch."
        ),
        MARK_NOTE,
        Note("Epochs 1–5: the mean accuracy of the first five epochs.", "first_five"),
    ],
    "Cost": [
        Note(
            "Parameters: of the whole network, counted without a run. Seconds per epoch, training and evaluation: "
            "median over epochs, then mean ± standard deviation over seeds (number of seeds). MB: peak memory of the "
            "device / of the process, mean over seeds. Loaded: other work ran on the machine. Machines differ: no "
            "verdicts."
        )
    ],
    "Claims": [
        Note(
            "Printed: what the rows' published numbers give, with our networks' spread, as many runs per row as the "
            "source's. Measured: the effect and its 95 % interval, unless a network has one run. Verdict: is there an "
            "effect, and is it as large as printed; after Holm's correction for all claims of the source that were "
            "trained as long. p: of the effect, in brackets after correction. Seeds that would decide it: with a "
            "probability of 80 %, at the claimed size."
        ),
        RULE,
    ],
}


@dataclass(frozen=True)
class Table:
    """A table of texts and what stands below it."""

    title: str
    columns: list[str]
    kinds: str  # of each column: n label of a study's row, l text, v verdict, t training; r number, d left out in TeX
    rows: list[list[str]]
    notes: list[Note] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # on single rows
    cells: list[list[Cell | None]] = field(default_factory=list)  # of each row, behind its labels, where it has means
    in_tex: bool = False

    @property
    def alignment(self) -> str:
        """l or r for each column."""
        return "".join("r" if kind in "rd" else "l" for kind in self.kinds)


@dataclass(frozen=True)
class Page:
    """A study's page."""

    name: str
    title: str
    caution: str  # where it is another experiment than the source's
    source: str
    protocol: str
    short: Table | None
    claims: Table | None
    tables: list[Table]
    deviations: list[str]
    runs: str  # how many, and how long
    commands: dict[str, list[str]]  # that repeat the runs, each with the names of its rows


Text = Callable[[Line], str]


@dataclass(frozen=True)
class Column:
    """A column; `needs`: a measure that the source must print, or heldout, which must have runs."""

    name: str
    text: Text
    needs: str = ""
    kind: str = "r"  # see `Table.kinds`
    marked: bool = False  # after another training than the paper's, in a table of several trainings
    cell: tuple[str, str] | None = None  # protocol and measure of what is a mean over seeds


def _published(measure: str, name: str = "published") -> Column:
    def text(line: Line) -> str:
        printed = line.row.published.get(measure, "")
        return f"{printed}M" if measure == "parameters" and published_number(printed) else printed

    return Column(name, text, measure)


def _measured(
    name: str, measure: str, needs: str = "", protocol: str = "paper", failures: bool = False, kind: str = "r"
) -> Column:
    def text(line: Line) -> str:
        cell = line.cell(measure, protocol)
        failed = texts.part_of("failed", cell.failed, cell.runs)
        return ", ".join(filter(None, [mean_and_spread(cell), *([failed, unlearned(cell)] if failures else [])]))

    return Column(name, text, needs, kind, cell=(protocol, measure))


def _interval(measure: str) -> Column:
    def text(line: Line) -> str:
        cell = line.cell(measure)
        if cell.low is None or cell.high is None:
            return ""
        return f"{decimal(cell.low, digits(cell))} to {decimal(cell.high, digits(cell))}"

    return Column("one more run", text, kind="d")


def _compared(measure: str) -> list[Column]:
    def difference(line: Line) -> str:
        cell = line.cell(measure)
        if cell.difference is None:
            return ""
        relative = measure == "first_epoch"
        return decimal(cell.difference, 0 if relative else digits(cell), signed=True) + (" %" if relative else "")

    return [Column("difference", difference, measure), _verdict(measure)]


def _verdict(measure: str) -> Column:
    return Column("verdict", lambda line: texts.verdict(line.cell(measure)), measure, "v")


def _memory(line: Line) -> str:
    device, host = line.cell("memory").mean, line.cell("host").mean
    return "" if host is None else f"{'–' if device is None else f'{device:,.0f}'} / {host:,.0f}"


def _device(line: Line) -> str:
    device = line.cell("seconds").device if line.row.run else None
    loaded = any(run.busy for run in line.runs if run.device == device)
    return f"{device}, loaded" if device and loaded else device or ""


TRAINING = Column("training", lambda line: line.training, kind="t")
ACCURACIES = [
    _measured("maximum", "accuracy", failures=True),
    _interval("accuracy"),
    _measured("last epoch", "last", kind="d"),
    _measured("held-out", "accuracy", "heldout", "heldout", failures=True),
]
ACCURACY = [
    _published("accuracy"),
    replace(ACCURACIES[0], marked=True),
    *ACCURACIES[1:],
    *_compared("accuracy"),
    TRAINING,
]
OTHER_SETTINGS = [*ACCURACIES, _measured("first epoch", "first_epoch"), TRAINING]
EPOCHS = [
    _published("first_epoch"),
    replace(_measured("first epoch", "first_epoch", failures=True), marked=True),
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
    Column("device", _device, kind="l"),
]


def page(results: Results) -> Page:
    """A study's page."""
    study = results.study
    accuracy = _table("Accuracy", ACCURACY, results, results.lines, complete=True, in_tex=True)
    tables = [
        replace(accuracy, remarks=_remarks(results.lines)),
        _table("Also measured", OTHER_SETTINGS, results, results.other_lines, complete=True),
        _table("First epoch to the maximum", EPOCHS, results, results.lines, in_tex=True),
        _table("Cost", COST, results, results.lines),
        _checks(results),
    ]
    return Page(
        study.name,
        title(results),
        CAUTION if results.replaced else "",
        study.source,
        study.protocol,
        short_table(results),
        _claims(results),
        [table for table in tables if table.rows],
        study.deviations,
        spent(results.runs),
        commands(results),
    )


def short_table(results: Results) -> Table | None:
    """A study's accuracies and first epochs, one row of the source's a cell, and the training of those without a mark.

    The labels of `Study.across` head the columns, and the rest of the rows' names the lines; without it all rows stand
    on one line; what is empty is left out. None for a study without runs, and for one whose source prints no such
    number, even if it is missing in our copy.
    """
    study = results.study
    unprinted = {None, "not reported", "not specified"}
    shown = [measure for measure in SHORT if {row.published.get(measure) for row in study.rows} - unprinted]
    if not any(group.best for group in results.groups) or not shown:
        return None
    marks = _marks(results.lines)
    cells: dict[str, dict[str, str]] = {}
    trained: dict[str, dict[str, None]] = {}
    for measure in shown:
        for line in results.lines:
            down, across = position(study, line.row)
            name = ", ".join(filter(None, [down, SHORT[measure] if len(shown) > 1 or not down else ""]))
            if text := _cell(line, measure):
                mark = marks.get(line.setting, "")
                text = ", ".join(filter(None, [text, unlearned(line.cell(measure))]))
                cells.setdefault(name, {})[across] = f"{text}{mark}"
                if line.setting and not mark:
                    trained.setdefault(name, {})[line.training] = None
    filled = {across for of_line in cells.values() for across in of_line}
    columns = [name for name in dict.fromkeys(position(study, line.row)[1] for line in results.lines) if name in filled]
    rows = [
        [name, *(of_line.get(across, "") for across in columns), "; ".join(trained.get(name, {}))]
        for name, of_line in cells.items()
    ]
    notes = [SHORT_NOTE, *([MARK_NOTE] if marks else [])]
    return Table("", ["", *columns, "training"], f"n{'r' * len(columns)}t", rows, notes)


def position(study: Study, row: Row) -> tuple[str, str]:
    """The line and the column of a row in its study's short table."""
    if study.across is None:
        return "", row.name
    label = row.labels[study.columns.index(study.across)]
    return " ".join(row.name.replace(label, "", 1).split()), label


def _cell(line: Line, measure: str) -> str:
    cell = line.cell(measure)
    number = published_number(cell.published)
    published = number.text if number else ""
    if number and len(published.partition(".")[2]) > texts.DIGITS[measure]:  # 99.70999908, after single precision
        published = decimal(number.value, texts.DIGITS[measure])
    measured = mean_and_spread(cell)
    return " ".join(filter(None, [published, measured and f"→ {measured}"]))


def title(results: Results) -> str:
    """The study's, with what was typed in place of the rows' own choices."""
    typed = " ".join(essential(results.typed))
    return results.study.title + (f", on {typed} instead" if results.replaced else f", only {typed}" if typed else "")


def source(results: Results) -> str:
    """Which table or figure of which source, without remarks."""
    return re.sub(r'^((?:"[^"]*"|Fig\.|[^".;(])*).*', r"\1", one_line(results.study.source)).strip()


def _table(
    title: str,
    columns: Sequence[Column],
    results: Results,
    lines: Sequence[Line],
    *,
    complete: bool = False,
    in_tex: bool = False,
) -> Table:
    """Rows × labels and columns that aren't empty; `complete`: rows without numbers too."""
    has = {"", *results.study.measures, *("heldout" for line in lines if line.cell("accuracy", "heldout").runs)}
    has |= {"so far"} if any(line.cell("accuracy").so_far for line in lines if line.setting) else set()
    has |= {"shorter"} if (marks := _marks(lines)) else set()
    has |= {"unlearned"} if any(cell.unlearned for line in lines for cell in line.cells.values()) else set()
    columns = [column for column in columns if column.needs in has]
    filled = []
    for line in lines:
        row = {column: column.text(line) for column in columns}
        mark = marks.get(line.setting, "")
        filled.append((line, {one: text + mark if text and one.marked else text for one, text in row.items()}))
    filled = [(line, row) for line, row in filled if complete or any(row.values())]
    shown = [column for column in columns if any(row[column] for _, row in filled)]
    rows = [[*line.row.labels, *(row[column] for column in shown)] for line, row in filled]
    names = [*results.study.columns, *(column.name for column in shown)]
    cells = [[line.cells[column.cell] if column.cell else None for column in shown] for line, _ in filled]
    kinds = "n" * len(results.study.columns) + "".join(column.kind for column in shown)
    notes = [note for note in NOTES[title] if note.needs in has]
    return Table(title, names, kinds, rows, notes, cells=cells, in_tex=in_tex)


def _marks(lines: Sequence[Line]) -> dict[Setting | None, str]:
    """What marks numbers after another training than the paper's, in a table of several trainings: † 10/100 ep."""
    settings = {line.setting for line in lines if line.setting and line.row.elsewhere is None}
    trained = {setting: setting.reduced() for setting in settings}
    several = len({*trained.values()}) > 1
    return {setting: f" † {shorter(text)}" for setting, text in trained.items() if several and text}


def _remarks(lines: Sequence[Line]) -> list[str]:
    """Remarks on single rows: the study's notes, and how the best of several runs was selected."""
    remarks = [f"{line.row.name}: {one_line(line.row.note)}" for line in lines if line.row.note]
    selected: dict[str, list[str]] = {}
    for line in lines:
        for protocol in ("paper", "heldout"):
            if best := line.cell("accuracy", protocol).best_of:
                selected.setdefault(best, []).append(line.row.name)
    return [*remarks, *(f"{', '.join(dict.fromkeys(names))}: {best}." for best, names in selected.items())]


def _claims(results: Results) -> Table | None:
    rows = [[one_line(one.claim.text), *claim_texts(one)] for one in results.claims]
    columns = ["claim", "claimed", "printed", "measured", "verdict", "p", "from"]
    return Table("Claims", columns, "llllvll", rows, NOTES["Claims"]) if rows else None


def _checks(results: Results) -> Table:
    """What the source prints twice."""
    rows = []
    for check in results.study.checks:
        first, second = filter(None, map(published_number, check.printed))  # checked in the study's file
        equal = abs(first.value - second.value) <= max(first.resolution, second.resolution)
        rows.append([one_line(check.text), *check.printed, "equal" if equal else "different"])
    return Table("Printed twice", ["what", "first", "second", "verdict"], "lrrv", rows)


def spent(runs: Iterable[Run]) -> str:
    """12 runs, 3.4 hours on NVIDIA H200."""
    times: dict[str, float] = {}
    every = {run.key: run for run in runs}.values()
    for run in sorted(every, key=lambda run: run.device):
        times[run.device] = times.get(run.device, 0.0) + run.hours
    listed = ", ".join(f"{texts.hours(time)} on {device}" for device, time in times.items())
    return f"{plural(len(every), 'run')}, {listed}." if times else "No runs."


def commands(results: Results) -> dict[str, list[str]]:
    """The commands that repeat the rows' runs, each with the names of its rows.

    There is one for each row in its main setting and each protocol. It names its precision: `auto` can be another on
    another device.
    """
    rows: dict[str, list[str]] = {}
    for line in results.lines:
        protocols = [protocol for protocol in ("paper", "heldout") if line.cell("accuracy", protocol).runs]
        for protocol in (protocols or ["paper"]) if line.row.run else []:
            rows.setdefault(_command(results, line, protocol), []).append(line.row.name)
    return rows


def _command(results: Results, line: Line, protocol: str) -> str:
    """The row's command, with its setting, seeds, and what is typed in place of the row's own choices."""
    groups = [
        one for one in results.groups if (one.row, one.setting, one.protocol) == (line.row, line.setting, protocol)
    ]
    words = [*shlex.split(line.row.run or ""), *(line.setting.overrides if line.setting else [])]
    words += ["protocol=heldout"] if protocol == "heldout" else []
    typed = [word for word in results.typed if not word.startswith("seed=")]
    last = {word.partition("=")[0]: word for word in [*words, *typed]}
    words = [word for word in words if last[word.partition("=")[0]] == word]
    seeds = ",".join(map(str, sorted({run.seed for group in groups for run in group.runs if not run.part}))) or "0,1,2"
    words = [*dict.fromkeys([*searchpath.as_portable_option(), *compose.portable([*words, *typed])]), f"seed={seeds}"]
    several = ["-m"] if any("," in word for word in words) else []
    return shlex.join(["python", "-m", "capsexp", *several, *words])

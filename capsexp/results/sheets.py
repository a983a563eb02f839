"""Tables of texts, as people read them: every number with its seeds, every reduced one with its mark."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import pandas as pd

from capsexp.results.tables import Line, Table, printed_count
from capsexp.study.setting import Setting

LEFT, RIGHT = "l", "r"
LETTERS = ascii_lowercase.replace("x", "")  # a list of Markdown that begins with [x] has boxes to tick

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
COST = (
    "Median seconds an epoch, training and evaluation; mean over seeds. Memory: the most at any time, device / host. "
    "Machines differ: no verdict."
)


@dataclass(frozen=True)
class Sheet:
    """A table of texts, and what stands below it."""

    title: str
    columns: list[str]
    alignment: str  # a letter a column
    rows: list[list[str]]
    captions: list[str]  # whole sentences
    marks: list[str]  # what each mark means


@dataclass(frozen=True)
class Column:
    """How a column's texts are made of a line of `Table.cells`."""

    name: str
    text: Callable[[Line], str]
    alignment: str = RIGHT


class Marks:
    """Letters for what a number is, where it isn't what the paper's is: [a], [b] …"""

    def __init__(self, *tables: Table) -> None:
        """What isn't marked: the paper's whole training, if all of it is in one precision."""
        settings = {setting for table in tables for setting in table.cells.setting if setting is not None}
        whole = {setting for setting in settings if setting.whole}
        self.plain = whole.pop() if len(whole) == 1 else None
        self.letters: dict[str, str] = {}
        self.used: dict[str, str] = {}
        self.plain_used = False

    def put(self, text: str, *meanings: str) -> str:
        """A text, if there is one, with the marks of what it means."""
        return text and text + self.suffix(*meanings)

    def suffix(self, *meanings: str) -> str:
        """Their marks, to be put behind a text."""
        found = [self._mark(meaning) for meaning in meanings if meaning]
        return f" [{', '.join(found)}]" if found else ""

    def of(self, setting: Setting) -> str:
        """What a setting's mark says; nothing for the unmarked one."""
        return "" if setting == self.plain else str(setting)

    def on(self, text: str, line: Line, protocol: str = "paper") -> str:
        """A number with the marks of its line."""
        if not text:
            return ""
        self.plain_used |= line["setting"] == self.plain
        return self.put(text, self.of(line["setting"]), self._several(line, protocol))

    def _mark(self, meaning: str) -> str:
        letter = self.letters.setdefault(meaning, _letter(len(self.letters)))
        self.used[letter] = meaning
        return letter

    def captions(self) -> list[str]:
        """What the marks since the last call mean, and what it means to have none."""
        lines = [f"Unmarked: {self.plain}"] if self.plain_used else []
        lines += [f"[{letter}] {meaning}" for letter, meaning in sorted(self.used.items(), key=_by_letter)]
        self.used, self.plain_used = {}, False
        return lines

    def _several(self, line: Line, protocol: str) -> str:
        jobs, found = line["jobs"], line[f"{protocol}_jobs"]
        if jobs == 1 or found is None:
            return ""
        low, high = found
        several = f"{jobs}" if low == jobs else f"{low} of {jobs}" if low == high else f"{low} to {high} of {jobs}"
        judge = "test set" if protocol == "paper" else "held-out images"
        return f"best of {several} ({line['swept']}), judged on the {judge}"


def accuracy(table: Table, marks: Marks) -> Sheet:
    """Published and measured accuracy, the study's first table."""
    lines = lines_of(table, main=True)
    heldout = any(line["heldout_runs"] for line in lines)
    columns = _labels(table, marks, notes=True)
    columns += _published("accuracy", "published") if "accuracy" in table.study.measures else []
    columns += _accuracies(marks, heldout)
    columns += _compared(marks, "accuracy", 2) if "accuracy" in table.study.measures else []
    return _sheet("Accuracy", columns, lines, [ACCURACY, HELDOUT if heldout else "", VERDICTS], marks)


def also(table: Table, marks: Marks) -> Sheet | None:
    """The settings that are not in the main tables."""
    lines = lines_of(table, main=False)
    if not lines:
        return None
    heldout = any(line["heldout_runs"] for line in lines)
    columns = [*_labels(table, marks), *_accuracies(marks, heldout), _epoch(marks, "first epoch", "first_epoch")]
    return _sheet("Also measured", columns, lines, [HELDOUT if heldout else ""], marks)


def epochs(table: Table, marks: Marks) -> Sheet | None:
    """How soon the maximum comes."""
    lines, prints = lines_of(table, main=True), table.study.measures
    if not {"first_epoch", "first_five"} & {*prints} and not any(line["first_epoch_n"] for line in lines):
        return None
    columns = _labels(table, marks)
    columns += _published("first_epoch", "published") if "first_epoch" in prints else []
    columns += [_epoch(marks, "first epoch", "first_epoch", failed=True), _epoch(marks, "within 0.1 point", "within")]
    columns += _compared(marks, "first_epoch", 1) if "first_epoch" in prints else []
    if "first_five" in prints:
        columns += _published("first_five", "published, epochs 1–5")
        columns += [Column("epochs 1–5", lambda line: marks.on(spread(line, "first_five", 2), line))]
        columns += _compared(marks, "first_five", 2)
    five = "Epochs 1–5: the mean accuracy of the first five epochs." if "first_five" in prints else ""
    return _sheet("First epoch to the maximum", columns, lines, [EPOCHS, five], marks, len(table.study.columns))


def cost(table: Table, marks: Marks, lines: Sequence[Line]) -> Sheet:
    """Time, memory, parameters."""
    prints = table.study.measures
    columns = _labels(table, marks)
    columns += _published("parameters", "published parameters") if "parameters" in prints else []
    columns += [Column("parameters", lambda line: _count(line, marks))]
    if "parameters" in prints:
        columns += [Column("verdict", lambda line: line["parameters_verdict"] or "", LEFT)]
    if "inference" in prints:
        columns += _published("inference", "published ms / 128 images")
        columns += [Column("ms / 128 images", lambda line: marks.on(spread(line, "inference", 2), line))]
    columns += _published("memory", "published MB") if "memory" in prints else []
    columns += [
        Column("MB, device / host", lambda line: marks.on(_memory(line), line)),
        Column("s / epoch", lambda line: marks.on(spread(line, "seconds", 1), line)),
        Column("device", lambda line: line["device"] or "", LEFT),
    ]
    return _sheet("Cost", columns, lines, [COST], marks, len(table.study.columns))


def decimal(value: float, places: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus; nothing is negative zero."""
    rounded = round(value, places) or 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{places}f}".replace("-", "−")


def spread(line: Line, measure: str, places: int) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), or nothing."""
    n, mean, deviation = (line[f"{measure}_{name}"] for name in ("n", "mean", "sd"))
    if not n:
        return ""
    return decimal(mean, places) + (f" ± {decimal(deviation, places)}" if n > 1 else "") + f" ({n})"


def lines_of(table: Table, main: bool) -> list[Line]:
    """A line a row with its main setting, or those of all other settings."""
    lines: list[Any] = table.cells[table.cells.main.astype(bool) == main].to_dict("records")
    return lines


def spent(table: Table) -> str:
    """12 runs, 3.4 hours on NVIDIA H200."""
    runs = table.found.drop_duplicates("key")
    return "No runs." if runs.empty else spent_on(runs)


def spent_on(runs: pd.DataFrame) -> str:
    """How many runs, and how long on which devices."""
    times = [f"{hours(of_device.hours.sum())} on {device}" for device, of_device in runs.groupby("device")]
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {', '.join(times)}."


def hours(number: float) -> str:
    """3.4 hours, 22 minutes."""
    minutes = round(60 * number)
    return f"{number:,.1f} hours" if number >= 1 else f"{minutes} minute{'' if minutes == 1 else 's'}"


def _sheet(
    title: str, columns: list[Column], lines: Iterable[Line], captions: Sequence[str], marks: Marks, labels: int = 0
) -> Sheet:
    """Columns × lines; `labels`: rows that have nothing beside so many labels are left out."""
    rows = [[column.text(line) for column in columns] for line in lines]
    rows = [row for row in rows if any(row[labels:])]
    alignment, said = "".join(column.alignment for column in columns), [caption for caption in captions if caption]
    return Sheet(title, [column.name for column in columns], alignment, rows, said, marks.captions())


def _labels(table: Table, marks: Marks, notes: bool = False) -> list[Column]:
    """The row's labels; a note is a mark on the first."""

    def label(index: int) -> Callable[[Line], str]:
        noted = notes and index == 0
        return lambda line: marks.put(line["labels"][index], (noted and table.study.rows[line["row"]].note) or "")

    return [Column(name, label(index), LEFT) for index, name in enumerate(table.study.columns)]


def _published(measure: str, name: str) -> list[Column]:
    def text(line: Line) -> str:
        printed: str = line[f"{measure}_published"] or ""
        return f"{printed}M" if measure == "parameters" and printed_count(printed) else printed

    return [Column(name, text)]


def _accuracies(marks: Marks, heldout: bool) -> list[Column]:
    columns = [
        Column("maximum", lambda line: _with_failures(marks.on(spread(line, "accuracy", 2), line), line, "paper")),
        Column("last epoch", lambda line: marks.on(spread(line, "last", 2), line)),
    ]
    if heldout:
        columns.append(Column("held-out", lambda line: _heldout(marks, line)))
    return columns


def _heldout(marks: Marks, line: Line) -> str:
    return _with_failures(marks.on(spread(line, "heldout", 2), line, "heldout"), line, "heldout")


def _with_failures(text: str, line: Line, protocol: str) -> str:
    failed, runs = line[f"{protocol}_failed"], line[f"{protocol}_runs"]
    return ", ".join(part for part in (text, f"failed ({failed} of {runs})" if failed else "") if part)


def _epoch(marks: Marks, name: str, measure: str, failed: bool = False) -> Column:
    def text(line: Line) -> str:
        number = marks.on(spread(line, measure, _places(line, measure, 1)), line)
        return _with_failures(number, line, "paper") if failed else number

    return Column(name, text)


def _compared(marks: Marks, measure: str, places: int) -> list[Column]:
    def difference(line: Line) -> str:
        value = line[f"{measure}_difference"]
        return "" if value is None else marks.on(decimal(value, _places(line, measure, places), signed=True), line)

    return [Column("difference", difference), Column("verdict", lambda line: line[f"{measure}_verdict"] or "", LEFT)]


def _places(line: Line, measure: str, places: int) -> int:
    """One epoch is a whole number; a mean of them is none."""
    return 0 if measure in ("first_epoch", "within") and line[f"{measure}_n"] == 1 else places


def _memory(line: Line) -> str:
    device, host = (f"{line[f'{name}_mean']:,.0f}" if line[f"{name}_n"] else "–" for name in ("memory", "host"))
    return "" if not line["host_n"] else f"{device} / {host}"


def _count(line: Line, marks: Marks) -> str:
    text = " / ".join(f"{count:,}" for count in line["parameters"])
    setting = line["setting"]
    return marks.put(text, marks.of(setting) if text and setting.width != 1 else "")


def _letter(index: int) -> str:
    """a, b … z, aa, ab …"""
    first, second = divmod(index, len(LETTERS))
    return (LETTERS[first - 1] if first else "") + LETTERS[second]


def _by_letter(item: tuple[str, str]) -> tuple[int, str]:
    return len(item[0]), item[0]

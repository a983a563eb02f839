"""A study's page as texts without markup: what Markdown, LaTeX, HTML and the terminal print."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from string import ascii_lowercase

from capsexp.results.cells import Cell
from capsexp.study.setting import Setting

LETTERS = ascii_lowercase.replace("x", "")  # a list of Markdown that begins with [x] has boxes to tick

#: Digits behind the point of means.
DIGITS = {"accuracy": 2, "last": 2, "first_five": 2, "first_epoch": 1, "within": 1, "inference": 2, "seconds": 1}


@dataclass(frozen=True)
class Table:
    """A table of texts and what stands below it."""

    title: str
    columns: list[str]
    alignment: str  # l or r for each column
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)  # whole sentences
    footnotes: list[str] = field(default_factory=list)  # [a] its meaning


@dataclass(frozen=True)
class Page:
    """A study's page."""

    name: str
    title: str
    source: str
    protocol: str
    tables: list[Table]
    claims: Table | None  # claim, claimed, measured, verdict
    deviations: list[str]
    runs: str  # how many, and how long
    commands: dict[str, list[str]]  # that repeat the runs, each with the names of its rows


class Footnotes:
    """Letters [a], [b], … for settings other than the paper's training, and for other remarks on a number."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        """The paper's whole training has no letter, if all of it is in one precision."""
        whole = {setting for setting in settings if setting.whole}
        self.unmarked = whole.pop() if len(whole) == 1 else None
        self.letters: dict[str, str] = {}
        self.used: set[str] = set()

    def mark(self, text: str, *meanings: Setting | str | None) -> str:
        """A text with a letter for each meaning; nothing for an empty text."""
        found = [str(meaning) for meaning in meanings if text and meaning]
        self.used |= set(found)
        letters = [
            self.letters.setdefault(name, _letter(len(self.letters))) for name in found if name != str(self.unmarked)
        ]
        return f"{text} [{', '.join(letters)}]" if letters else text

    def cell(self, text: str, cell: Cell) -> str:
        """A number with the footnotes of its cell."""
        return self.mark(text, cell.setting, cell.best_of)

    def texts(self) -> list[str]:
        """The footnotes that were used since the last call."""
        lines = [f"Unmarked: {self.unmarked}"] if str(self.unmarked) in self.used else []
        lines += [f"[{letter}] {meaning}" for meaning, letter in self.letters.items() if meaning in self.used]
        self.used = set()
        return lines


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus; nothing is negative zero."""
    rounded = round(value, digits) or 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def digits(cell: Cell) -> int:
    """Digits behind the point of a mean; a single epoch is a whole number."""
    return 0 if cell.n == 1 and cell.measure in ("first_epoch", "within") else DIGITS[cell.measure]


def mean_and_spread(cell: Cell) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), or nothing."""
    if cell.mean is None:
        return ""
    spread = "" if cell.sd is None else f" ± {decimal(cell.sd, digits(cell))}"
    return f"{decimal(cell.mean, digits(cell))}{spread} ({cell.n})"


def hours(number: float) -> str:
    """3.4 hours, 22 minutes."""
    minutes = round(60 * number)
    return f"{number:,.1f} hours" if number >= 1 else f"{minutes} minute{'' if minutes == 1 else 's'}"


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def split_verdict(text: str) -> tuple[str, str]:
    """A verdict, and the reason and footnotes behind it: undecided (reduced training) [a]."""
    found = re.fullmatch(r"(.*?)((?: [(\[].*)?)", text, re.DOTALL)
    assert found is not None
    return found[1], found[2]


def claim_sentence(claim: str, claimed: str, measured: str, verdict: str) -> tuple[str, str, str]:
    """A row of `Page.claims` as a sentence: its beginning, the verdict of what was measured, the reason of that."""
    if not measured:
        return f"{claim}: claimed {claimed}: {verdict}", "", ""
    return f"{claim}: claimed {claimed}, measured {measured}: ", *split_verdict(verdict)


def _letter(index: int) -> str:
    """a, b … z, aa, ab …"""
    first, second = divmod(index, len(LETTERS))
    return (LETTERS[first - 1] if first else "") + LETTERS[second]

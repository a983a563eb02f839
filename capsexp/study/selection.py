"""What the words typed behind a study's name mean: one rule for sweeps, the launcher and the tables.

A key in which the study's rows differ selects among their runs (`routing.iterations=3` of jiao_table2). Any other word
replaces the rows' own (`data=mnist_sample`), and makes it another experiment than the paper's unless it is incidental.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from capsexp.config.schema import Config
from capsexp.errors import InputError
from capsexp.run import records
from capsexp.study import studies
from capsexp.study.setting import Setting
from capsexp.study.studies import Study

#: Beginnings of words that don't change which experiment it is: a budget or a width is another setting of the same.
INCIDENTAL = (
    *("seed", "budget", "protocol", "trainer", "paths", "hydra", "rerun", "logger"),
    *("data.root", "data.download", "data.path"),
)


@dataclass(frozen=True)
class RowRun:
    """One of a row's runs, without its seed."""

    row: str  # its name
    overrides: tuple[str, ...]
    selected: bool  # False: its row is selected for another run

    @cached_property
    def identity(self) -> records.Json | None:
        """None for a run that isn't selected, or that can't be composed: its routing may lack the typed key."""
        with suppress(InputError):
            return studies.identity(self.overrides) if self.selected else None
        return None

    @property
    def condition(self) -> str | None:
        """See `studies.condition_of`."""
        return studies.condition(self.overrides) if self.identity else None

    def admits(self, setting: Setting) -> bool:
        """Whether a record has the typed setting; parts of it that aren't typed can be anything."""
        if self.identity is None:
            return False
        typed = Setting.of(self.identity)
        return (
            typed.epochs in (None, setting.epochs)
            and typed.train_images in (None, setting.train_images)
            and typed.test_images in (None, setting.test_images)
            and typed.width in (1, setting.width)
            and typed.note in (None, setting.note)  # of one's own images
        )


@dataclass(frozen=True)
class Selection:
    """Some rows of a study, with the claims about them, and all runs of these rows."""

    study: Study
    runs: list[RowRun]
    replacing: list[str]  # typed words that don't select

    @cached_property
    def replaced(self) -> bool:
        """Whether the typed words make it another experiment than the paper's.

        Raises InputError for a run that can't be composed, of typed words only if none can be, and if two rows
        become the same.
        """
        if not essential(self.replacing) or all(run.identity is None for run in self.runs):
            for run in self.runs:
                self._config(run)
        if not essential(self.replacing):
            return False
        own = {row.name: {studies.condition(words) for words in row.combinations()} for row in self.study.rows}
        now = {name: {run.condition for run in self.runs if run.row == name} for name in own}
        for a, b in combinations(own, 2):
            if own[a] != own[b] and now[a] == now[b] and not now[a] <= {None}:
                raise InputError(f"{' '.join(self.replacing)}: makes {a} and {b} of {self.study.name} the same")
        return any(run.condition not in {None, *own[run.row]} for run in self.runs)

    @property
    def substitution(self) -> str:
        """The typed words that make it another experiment; nothing if none do."""
        return " ".join(essential(self.replacing)) if self.replaced else ""

    @property
    def configs(self) -> dict[tuple[str, ...], Config]:
        """The configurations of the selected runs, by their overrides; raises InputError."""
        return {run.overrides: self._config(run) for run in self.runs if run.selected}

    def _config(self, run: RowRun) -> Config:
        """The configuration of a run; raises InputError with the names of study and row."""
        try:
            return studies.config_of(run.overrides)
        except InputError as error:
            typed = self.replacing and not any(other.identity for other in self.runs)  # it isn't the row that is wrong
            raise InputError(f"{error}" if typed else f"{self.study.name}, {run.row}: {error}") from None


def select(study: Study, typed: Sequence[str] = ()) -> Selection:
    """The rows and runs that typed words select, with the other words in place of their own; nothing is composed.

    Raises InputError if no row has what is typed.
    """
    words = [word for word in typed if key(word) != "seed"]
    selecting = [word for word in words if _rows_differ(study, key(word))]
    replacing = [word for word in words if word not in selecting]
    options = [[word for (word,) in studies.expand((typed,))] for typed in selecting]

    def matches(overrides: Sequence[str]) -> bool:
        return all(not set(words).isdisjoint(overrides) for words in options)

    rows = [row for row in study.rows if not selecting or any(matches(overrides) for overrides in row.combinations())]
    if selecting and not rows:
        raise InputError(f"{' '.join(selecting)}: no row of {study.name} has it, and its rows differ in it")
    runs = [
        RowRun(row.name, overrides, matches(overrides)) for row in rows for overrides in row.combinations(replacing)
    ]
    claims = [claim for claim in study.claims if {*claim.compared} <= {row.name for row in rows}]
    return Selection(replace(study, rows=rows, claims=claims), runs, replacing)


def essential(typed: Sequence[str]) -> list[str]:
    """The typed words that are not incidental."""
    return [word for word in typed if not key(word).startswith(INCIDENTAL)]


def key(word: str) -> str:
    """The key of an override."""
    return word.partition("=")[0].lstrip("+~")


def _rows_differ(study: Study, name: str) -> bool:
    """Whether the rows' runs have different values of a key, or only some have it."""
    rows = [row.combinations() for row in study.rows if row.run]
    values = [{word for words in row for word in words if key(word) == name} for row in rows]
    return any(value != values[0] for value in values)

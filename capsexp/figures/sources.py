"""What figures are drawn from: the records of a study's rows, as its tables have them, and their logs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from capsexp.errors import InputError
from capsexp.results import aggregate, tables
from capsexp.results.sheets import Marks, lines_of
from capsexp.results.tables import Line, Table
from capsexp.run import records
from capsexp.run.records import Record
from capsexp.study import studies
from capsexp.study.studies import Row


@dataclass(frozen=True)
class Measured:
    """A row of a study under its main setting, with the finished runs of protocol paper."""

    row: Row
    line: Line  # of `Table.cells`
    records: list[Record]  # one a seed

    @property
    def printed(self) -> str | None:
        """The published accuracy as printed, where it is a number."""
        text = self.row.published.get("accuracy", "")
        return text if studies.published_number(text) else None

    def curves(self) -> list[list[float]]:
        """Test accuracy in percent, a list a seed, epoch by epoch; settings have one number of epochs."""
        return [[epoch["test_accuracy"] for epoch in record.epochs] for record in self.records]


@dataclass(frozen=True)
class Missing:
    """What a figure was drawn without, and what makes it."""

    what: str
    command: str

    def __str__(self) -> str:
        """Without DA-CapsNet SVHN: python -m capsexp …"""
        return f"{self.what}: {self.command}"


@dataclass
class Sources:
    """Where everything is.

    Args:
        results: holds runs/.
        logs: holds a folder a run.
        typed: the paths as typed, for commands.

    Raises InputError when there is no folder of results.
    """

    results: Path
    logs: Path
    typed: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)  # records that can't be used, a line each

    def __post_init__(self) -> None:
        if not self.results.is_dir():
            raise InputError(f"{self.results}: no such folder; the records are in results/runs")

    @cached_property
    def runs(self) -> pd.DataFrame:
        """All records, as tables have them."""
        outcome = aggregate.Outcome()
        runs = aggregate.read_runs(self.results, outcome)
        self.problems += outcome.problems
        return runs

    def rows(self, study: str, **labels: str) -> list[Measured]:
        """The rows of a study; `labels`: those with such labels, by column."""
        table = self.table(study)
        wanted = {table.study.columns.index(column): label for column, label in labels.items()}
        rows = table.study.rows
        return [
            Measured(rows[line["row"]], line, self._records(table, line))
            for line in lines_of(table, main=True)
            if all(rows[line["row"]].labels[column] == label for column, label in wanted.items())
        ]

    def table(self, study: str) -> Table:
        """A study's table."""
        if study not in self._tables:
            self._tables[study] = tables.make(studies.load(study), self.runs)
        return self._tables[study]

    def marks(self, *names: str) -> Marks:
        """The marks of numbers from several studies."""
        return Marks(*(self.table(name) for name in names))

    def folder(self, record: Record) -> Path:
        """The logs of a run."""
        return self.logs / records.run_name(record.identity)

    def missing(self, rows: Sequence[Measured], study: str, *words: str) -> list[Missing]:
        """Rows, if any, without runs, and the sweep that makes them; finished runs are skipped there.

        Args:
            words: what restricts the study to the figure.
        """
        names = ", ".join(measured.row.name for measured in rows)
        sweep = shlex.join(["python", "-m", "capsexp", f"+study={study}", *words, "seed=0,1,2", *self.typed])
        return [Missing(f"no finished runs of {names}", sweep)] if rows else []

    def unlogged(self, record: Record, what: str) -> Missing:
        """What a run's folder lacks, and the command that trains it again."""
        command = shlex.join([*shlex.split(record.provenance["command"] or ""), "rerun=true", *self.typed])
        return Missing(f"no {what} in {self.folder(record)}", command)

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def _records(self, table: Table, line: Line) -> list[Record]:
        best = table.best
        of_line = best[(best.row == line["row"]) & (best.setting == line["setting"]) & (best.protocol == "paper")]
        return [_read(self.results, key) for key in of_line.key]


@cache
def _read(results: Path, key: str) -> Record:
    (path,) = (results / "runs").glob(f"*-{key}.json")
    return records.read(path)

"""What figures are drawn from: the runs of each study's rows, as in its tables, and their logs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from capsexp.results.cells import COMPARABLE
from capsexp.results.collect import Line, Results, collect, collect_by_source
from capsexp.results.runs import Run
from capsexp.study import studies
from capsexp.study.setting import Setting, title


class Missing(NamedTuple):
    """What a figure was drawn without, and the command that makes it."""

    what: str
    command: str

    def __str__(self) -> str:
        """no finished runs of DA-CapsNet SVHN: python -m capsexp …"""
        return f"{self.what}: {self.command}"


class UndrawnError(Exception):
    """Nothing of a figure can be drawn without what is `missing`."""

    def __init__(self, *missing: Missing) -> None:
        super().__init__(*missing)
        self.missing = [*missing]


@dataclass
class Sources:
    """All runs and their logs.

    Args:
        runs: those of all records.
        logs: holds a folder per run.
        typed: the paths as typed, for commands.
    """

    runs: Sequence[Run]
    logs: Path
    typed: Sequence[str] = ()
    _studies: dict[str, Results] = field(default_factory=dict)

    @cached_property
    def collected(self) -> list[Results]:
        """What the records give for all studies."""
        return collect_by_source([studies.load(name) for name in studies.names()], self.runs)

    def lines(self, study: str, data: str = "") -> list[Line]:
        """The rows of a study, of all data sets or one, that are trained here, in their main settings."""
        if study not in self._studies:
            (self._studies[study],) = collect([studies.load(study)], self.runs)
        trained = [line for line in self._studies[study].lines if line.row.run]
        return [line for line in trained if not data or title(data) in line.row.labels]

    def missing(self, lines: Sequence[Line], study: str, data: str = "") -> list[Missing]:
        """The rows without runs, if any, and the sweep that makes them; finished runs are skipped there."""
        names = ", ".join(line.row.name for line in lines if not line.runs)
        return [self.sweep(f"no finished runs of {names}", study, data)] if names else []

    def rows(self, study: str, data: str = "", learned: bool = False) -> tuple[list[Line], list[Missing]]:
        """`lines`, and what is `missing` of them.

        Args:
            learned: the figure shows what was learned, and nothing yet after the first part of the training.

        Raises UndrawnError if no row has runs, or one was trained too briefly.
        """
        lines = self.lines(study, data)
        missing = self.missing(lines, study, data)
        shown = [line for line in lines if line.runs and line.setting]
        short = [one for one in shown if learned and one.setting and one.setting.fraction < COMPARABLE]
        if short:
            missing = [self.sweep(f"{one.row.name} was trained for {one.setting}", study, data) for one in short]
        if short or not shown:
            raise UndrawnError(*missing)
        return lines, missing

    def sweep(self, lacks: str, study: str, data: str = "") -> Missing:
        """What a figure lacks, and the sweep of a study, of all data sets or one, that makes it."""
        words = ["python", "-m", "capsexp", f"+study={study}", *[f"data={data}"] * bool(data), "seed=0,1,2"]
        return Missing(lacks, shlex.join([*words, *self.typed]))

    def unlogged(self, line: Line, what: str) -> UndrawnError:
        """What the logs of a row's first run, if it has one, lack, and the command that trains it again: never the
        record's own, which anybody can have written.
        """
        words = ["python", "-m", "capsexp", *shlex.split(line.row.run or "")]
        words += line.setting.overrides if line.setting else []
        command = [shlex.join([*words, f"seed={run.seed}", "rerun=true", *self.typed]) for run in line.runs[:1]]
        return UndrawnError(*(Missing(f"no {what} of {line.runs[0].name} in {self.logs}", each) for each in command))


class Trainings:
    """How the runs of a figure's lines were trained: in a note if all alike, else beside each name."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.rows: dict[str, list[str]] = {}  # by setting
        for line in lines:
            if line.runs:
                self.rows.setdefault(str(line.setting), []).append(line.row.name)
        self.without = list(dict.fromkeys(line.row.name for line in lines if not line.runs))

    def mark(self, text: str, setting: Setting | None) -> str:
        """A name, with its training where others have another."""
        return f"{text}, {setting}" if setting and len(self.rows) > 1 else text

    def notes(self, listed: bool = False) -> list[str]:
        """The training of all lines, if it is one, and the rows without runs.

        Args:
            listed: each training, and of which rows, where names have no room for it.
        """
        each = [f"{setting} ({', '.join(dict.fromkeys(rows))})" for setting, rows in self.rows.items()]
        trained = [*self.rows] if len(self.rows) == 1 else each if listed else []
        without = [f"No finished runs of {', '.join(self.without)}."] if self.without else []
        return [f"Training: {'; '.join(trained)}."] * bool(trained) + without

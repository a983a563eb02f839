"""What figures are drawn from: the runs of each study's rows, as in its tables, and their logs."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from capsexp.errors import InputError
from capsexp.results import runs
from capsexp.results.cells import COMPARABLE
from capsexp.results.collect import Line, Results, collect, collect_by_source
from capsexp.results.runs import Run
from capsexp.study import studies
from capsexp.study.setting import Setting


@dataclass(frozen=True)
class Missing:
    """What a figure was drawn without, and what makes it."""

    what: str
    command: str

    def __str__(self) -> str:
        """no finished runs of DA-CapsNet SVHN: python -m capsexp …"""
        return f"{self.what}: {self.command}"


@dataclass
class Sources:
    """Where everything is.

    Args:
        results: holds runs/.
        logs: holds a folder per run.
        typed: the paths as typed, for commands.

    Raises InputError when there is no folder of results.
    """

    results: Path
    logs: Path
    typed: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)  # records that can't be used, a line each
    _studies: dict[str, Results] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.results.is_dir():
            raise InputError(f"{self.results}: no such folder; the records are in results/runs")

    @cached_property
    def runs(self) -> list[Run]:
        """All runs."""
        found, problems = runs.read(self.results)
        self.problems += problems
        return found

    def lines(self, study: str, **labels: str) -> list[Line]:
        """The rows of a study in their main settings; `labels`: those with such labels, by column."""
        results = self.study(study)
        wanted = {results.study.columns.index(column): label for column, label in labels.items()}
        return [
            line for line in results.lines if all(line.row.labels[column] == label for column, label in wanted.items())
        ]

    def study(self, name: str) -> Results:
        """What the records give for a study."""
        if name not in self._studies:
            (self._studies[name],) = collect([studies.load(name)], self.runs)
        return self._studies[name]

    @cached_property
    def collected(self) -> list[Results]:
        """What the records give for all studies."""
        return collect_by_source([studies.load(name) for name in studies.names()], self.runs)

    def folder(self, run: Run) -> Path:
        """The checkpoints of a run."""
        return self.logs / run.name

    def missing(self, lines: Sequence[Line], study: str, *words: str) -> list[Missing]:
        """The rows without runs, if any, and the sweep that makes them; finished runs are skipped there.

        Args:
            words: what restricts the study to the figure.
        """
        names = ", ".join(line.row.name for line in lines if not line.runs)
        return [self.sweep(f"no finished runs of {names}", study, *words)] if names else []

    def sweep(self, lacks: str, study: str, *words: str) -> Missing:
        """What a figure lacks, and the sweep of a study that makes it."""
        words = ("python", "-m", "capsexp", f"+study={study}", *words, "seed=0,1,2", *self.typed)
        return Missing(lacks, shlex.join(words))

    def too_short(self, lines: Sequence[Line], study: str, *words: str) -> list[Missing]:
        """The rows after whose training a picture of what was learned shows nothing yet."""
        short = [line for line in lines if line.runs and line.setting and line.setting.fraction < COMPARABLE]
        return [self.sweep(f"{line.row.name} was trained for {line.setting}", study, *words) for line in short]

    def unlogged(self, line: Line, what: str) -> Missing:
        """What the logs of a row's first run lack, and the command that trains it again: never the record's own, which
        anybody can have written.
        """
        run, setting = line.runs[0], line.setting.overrides if line.setting else []
        words = [*shlex.split(line.row.run or ""), *setting, f"seed={run.seed}", "rerun=true", *self.typed]
        return Missing(f"no {what} of {run.name} in {self.logs}", shlex.join(["python", "-m", "capsexp", *words]))


class Trainings:
    """How the runs of a figure's lines were trained: in a note if all alike, else beside each name."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.rows: dict[str, list[str]] = {}  # by setting
        for line in lines:
            if line.runs:
                self.rows.setdefault(str(line.setting), []).append(line.row.name)

    def mark(self, text: str, setting: Setting | None) -> str:
        """A name, with its training where others have another."""
        return f"{text}, {setting}" if setting and len(self.rows) > 1 else text

    @property
    def note(self) -> str:
        """The training of all lines, if it is one."""
        return f"Training: {next(iter(self.rows))}." if len(self.rows) == 1 else ""

    @property
    def listed(self) -> str:
        """Each training, and of which rows, where names have no room for it."""
        each = [f"{setting} ({', '.join(dict.fromkeys(rows))})" for setting, rows in self.rows.items()]
        return self.note or f"Training: {'; '.join(each)}."

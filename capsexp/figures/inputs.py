"""What figures are drawn from: the runs of each study's rows, all of one setting, and their logs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from capsexp.results.collect import Line, Results, collect, collect_by_source
from capsexp.results.runs import Run
from capsexp.study import studies


class UndrawnError(Exception):
    """Nothing of a figure can be drawn without what its arguments name, a line each."""


@dataclass(frozen=True)
class Rows:
    """The rows of a study that have runs in one setting, and a line on those that have none."""

    columns: Sequence[str]  # names of the rows' labels
    lines: Sequence[Line]
    training: str  # the setting, in words
    missing: Sequence[str]


@dataclass
class Inputs:
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

    def rows(self, study: str, label: str = "") -> Rows:
        """The rows of a study with this label, else all, in the setting that most of them have, the longest of several.

        Raises UndrawnError if none has runs.
        """
        if study not in self._studies:
            (self._studies[study],) = collect([studies.load(study)], self.runs)
        lines = [line for line in self._studies[study].lines if line.row.run]
        lines = [line for line in lines if not label or label in line.row.labels]
        epochs = {line.training: len(line.runs[0].curve) for line in lines if line.runs}
        trained = [line.training for line in lines if line.runs]
        training = max(epochs, key=lambda one: (trained.count(one), epochs[one]), default="")
        shown = [line for line in lines if line.runs and line.training == training]
        names = ", ".join(line.row.name for line in lines if line not in shown)
        within = f" in this setting ({training})" if training else ""
        missing = [f"no finished runs of {names}{within}: {self.command('reproduce', study)}"] if names else []
        if not shown:
            raise UndrawnError(*missing)
        return Rows(self._studies[study].study.columns, shown, training, missing)

    def unlogged(self, line: Line, what: str) -> str:
        """What the logs of a row's first run lack, and the command that trains it again: never the record's own, which
        anybody can have written.
        """
        run = line.runs[0]
        words = [*shlex.split(line.row.run or ""), *run.setting.overrides, f"seed={run.seed}", "rerun=true"]
        return f"no {what} of {run.name} in {self.logs}: {self.command(*words)}"

    def command(self, *words: str) -> str:
        """A command line with the paths as typed."""
        return shlex.join(["capsexp", *words, *self.typed])

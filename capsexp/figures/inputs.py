"""What figures are drawn from: the runs of each study's rows, all of one setting, and their logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from capsexp.config.compose import command_here
from capsexp.results.cells import MeasuredRow
from capsexp.results.runs import Run
from capsexp.results.steps import Steps
from capsexp.results.study import MeasuredBlock, StudyResults, measure
from capsexp.study import studies
from capsexp.study.selection import PAPER


class UndrawnError(Exception):
    """Nothing of a figure can be drawn without what its arguments name, a line each."""


@dataclass(frozen=True)
class Rows:
    """The rows of a study that have runs in one setting, and a line on those that have none."""

    lines: Sequence[MeasuredRow]
    block: MeasuredBlock
    missing: Sequence[str]

    @property
    def training(self) -> str:
        """The setting, in words."""
        return self.block.block.setting.title


@dataclass
class Inputs:
    """All runs and their logs.

    Args:
        runs: those of all records.
        logs: holds a folder per run.
        typed: the paths as typed, for commands.
        steps: of the networks of claims on time.
    """

    runs: Sequence[Run]
    logs: Path
    typed: Sequence[str] = ()
    steps: Steps = field(default_factory=Steps)

    @cached_property
    def measured(self) -> dict[str, StudyResults]:
        """What the records give for all studies, by name."""
        every = measure([studies.load(name) for name in studies.names()], self.runs, steps=self.steps)
        return {results.study.name: results for results in every}

    def rows(self, study: str, label: str = "") -> Rows:
        """The rows of a study with this label, else all, in the setting of its answer, else the first with any runs.

        Raises UndrawnError if none has.
        """
        results = self.measured[study]
        for block in results.by_answer:
            lines = [line for line in block.lines if line.row.run and (not label or label in line.row.labels)]
            own = results.study.own_rows
            names = ", ".join(line.row.name for line in lines if not line.runs and line.row.name in own)
            budget = [] if block.block.name == PAPER else [f"--budget={block.block.name}"]
            missing = [f"no finished runs of {names}: {self.command('reproduce', study, *budget)}"] if names else []
            if shown := [line for line in lines if line.runs]:
                return Rows(shown, block, missing)
        raise UndrawnError(*missing)

    def missing_log(self, rows: Rows, line: MeasuredRow, what: str) -> str:
        """What the logs of a row's first run lack, and the command that trains it again: built from conf/, since a
        record's own command is untrusted.
        """
        run = line.runs[0]
        words = rows.block.block.runs[line.row.name][0].overrides
        return f"no {what} of {run.name} in {self.logs}: {self.command(*words, f'seed={run.seed}', 'rerun=true')}"

    def command(self, *words: str) -> str:
        """A command line with the paths as typed."""
        return command_here(*words, *self.typed)

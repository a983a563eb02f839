"""Everything that the records give for each study: runs → cells → verdicts. What the pages are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from capsexp.results import cells
from capsexp.results.cells import Best, Cell, Group, Matched
from capsexp.results.claims import MeasuredClaim, adjusted, measure_claim
from capsexp.results.runs import Run
from capsexp.results.spread import Pools
from capsexp.study import studies
from capsexp.study.selection import Selection, select
from capsexp.study.setting import Setting
from capsexp.study.studies import Row, Study


@dataclass(frozen=True)
class Line:
    """A row of a study in one setting."""

    row: Row
    setting: Setting | None  # None: it has no runs
    cells: Mapping[tuple[str, str], Cell]
    best: Sequence[Best]  # of protocol paper
    unsaid: bool  # the source doesn't give the epochs of the row's training

    @property
    def runs(self) -> list[Run]:
        """Finished runs of protocol paper, one per seed, none the first epochs of a longer one."""
        return [one.run for one in self.best if not one.run.part]

    @property
    def training(self) -> str:
        """How it was trained, in words: 10 of 100 epochs, bf16; all 100 epochs, the source gives none, bf16."""
        if self.setting is None:
            return ""
        return ", ".join(filter(None, [self.setting.training(self.unsaid), self.setting.precision]))

    def cell(self, measure: str, protocol: str = "paper") -> Cell:
        """The number of one measure."""
        return self.cells[protocol, measure]


@dataclass(frozen=True, eq=False)
class Results:
    """A study as measured."""

    study: Study
    typed: Sequence[str]  # what replaces the rows' own choices
    replaced: bool  # whether that makes it another experiment than the paper's
    groups: list[Group]
    cells: list[Cell]
    claims: list[MeasuredClaim]
    conditions: Mapping[str, frozenset[str]]  # what the runs of each row train

    @property
    def runs(self) -> list[Run]:
        """All runs of this package, each as often as rows have it, without first epochs of longer ones."""
        own = [group for group in self.groups if group.row.elsewhere is None]
        return [run for group in own for run in (*group.runs, *group.repeated) if not run.part]

    @cached_property
    def lines(self) -> list[Line]:
        """Each row in its main setting."""
        return self._lines(main=True)

    @cached_property
    def other_lines(self) -> list[Line]:
        """Rows in their other settings."""
        return self._lines(main=False)

    def _lines(self, main: bool) -> list[Line]:
        cells: dict[tuple[str, Setting | None], dict[tuple[str, str], Cell]] = {}
        for cell in self.cells:
            cells.setdefault((cell.row, cell.setting), {})[cell.protocol, cell.measure] = cell
        return [
            Line(one.row, one.setting, cells[one.row.name, one.setting], one.best, self.study.epochs_unsaid(one.row))
            for one in self.groups
            if one.main == main and one.protocol == "paper"
        ]


def collect_by_source(chosen: Sequence[Study], runs: Sequence[Run], typed: Sequence[str] = ()) -> list[Results]:
    """`collect` with Holm's correction over the claims of all studies of these studies' sources, whatever is typed;
    but over its own claims where the typed words make it another experiment than the source's.
    """
    measured = _measured(chosen, runs, typed)
    sources = {one.study.publication for one in measured if not one.replaced}
    there = {study.name for study in chosen} if not typed else set()
    others = [studies.load(name) for name in studies.names() if name not in there]
    others = [study for study in others if study.publication in sources]
    return _corrected(measured, [*measured, *_measured(others, runs)])


def collect(chosen: Sequence[Study], runs: Sequence[Run], typed: Sequence[str] = ()) -> list[Results]:
    """What all runs give for each study, with Holm's correction over the claims of these studies.

    Raises InputError for typed words that make no sense.
    """
    measured = _measured(chosen, runs, typed)
    return _corrected(measured, measured)


def _corrected(chosen: Sequence[Results], every: Sequence[Results]) -> list[Results]:
    """These results, their claims corrected for all of their source."""
    return [replace(one, claims=adjusted(one.claims, _of_source(one, every))) for one in chosen]


def _measured(chosen: Sequence[Study], runs: Sequence[Run], typed: Sequence[str] = ()) -> list[Results]:
    """The studies without Holm's correction."""
    trained, pools, selections = cells.by_condition(runs), Pools(runs), [select(study, typed) for study in chosen]
    return [measure(one, cells.match(one, trained), _conditions(one), pools, typed) for one in selections]


def measure(
    selection: Selection,
    matched: Mapping[str, Matched],
    conditions: Mapping[str, frozenset[str]],
    pools: Pools,
    typed: Sequence[str] = (),
) -> Results:
    """What the runs of a study's rows give for it, without Holm's correction.

    Args:
        conditions: what the runs of each row train.
    """
    groups = cells.group(selection.study.rows, matched)
    numbers = cells.calculate(selection, groups, pools)
    claims = [measure_claim(claim, selection, groups, pools, conditions) for claim in selection.study.claims]
    return Results(selection.study, typed, selection.replaced, groups, numbers, claims, conditions)


def _of_source(results: Results, collected: Sequence[Results]) -> list[MeasuredClaim]:
    """The claims of all studies of the same source; of a replaced experiment, its own."""
    if results.replaced:
        return results.claims
    same = [one for one in collected if one.study.publication == results.study.publication and not one.replaced]
    return [claim for one in same for claim in one.claims]


def _conditions(selection: Selection) -> dict[str, frozenset[str]]:
    """What the runs of each row train."""
    conditions: dict[str, set[str]] = {}
    for run in selection.runs:
        if run.condition:
            conditions.setdefault(run.row, set()).add(run.condition)
    return {name: frozenset(of_row) for name, of_row in conditions.items()}

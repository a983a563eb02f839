"""Everything that the records give for each study: runs → cells → verdicts. What the pages are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from capsexp.results import cells
from capsexp.results.cells import ByTraining, Cell, MeasuredRow, rows_of
from capsexp.results.claims import MeasuredClaim, corrected, measure_claim
from capsexp.results.runs import Run, with_project
from capsexp.results.statistics import Pools
from capsexp.results.steps import Steps
from capsexp.study import studies
from capsexp.study.identity import title
from capsexp.study.selection import PAPER, TYPED, Block, Selection, select
from capsexp.study.studies import Study


@dataclass(frozen=True)
class MeasuredBlock:
    """A study's rows in one setting; in the laptop's without those that train there as in the paper's."""

    block: Block
    lines: list[MeasuredRow]

    @property
    def runs(self) -> list[Run]:
        """All runs, failed ones too."""
        return [run for line in self.lines for run in line.all_runs]

    @property
    def is_heldout(self) -> bool:
        """Whether the epochs of all its runs are chosen on held-out images."""
        return {self.block.protocol(line.row.name) for line in self.lines if line.row.run} == {"heldout"}

    @property
    def files(self) -> list[str]:
        """Which versions of data files were used, but for published ones; of several sets with titles; leaks."""
        several = len({run.data for run in self.runs}) > 1
        files = {run.trained.files: run.data for run in self.runs if run.trained.files}
        named = [f"{title(data)}: {version}" if several else version for version, data in files.items()]
        return [*named, *sorted({run.leak for run in self.runs if run.leak})]


@dataclass(frozen=True, eq=False)
class StudyResults:
    """A study as measured."""

    study: Study
    selection: Selection
    blocks: list[MeasuredBlock]
    claims: list[MeasuredClaim]
    typed_words: Sequence[str] = ()

    @property
    def typed(self) -> bool:
        """Whether it is another experiment than the source's, or another setting than the study's."""
        return self.blocks[0].block.name == TYPED

    @property
    def by_answer(self) -> list[MeasuredBlock]:
        """The settings, first that of the first claim with an answer, else of the first one measured by runs; of
        claims on the study's first measure, where there are any.
        """
        main = self.study.measures[0]
        measured = [one for one in self.claims if one.runs]
        measured.sort(key=lambda one: (one.claim.measure != main, not one.is_decided))
        return sorted(self.blocks, key=lambda block: bool(measured) and block.block is not measured[0].block)

    @property
    def shown(self) -> MeasuredBlock:
        """The setting of the answer, else the first with runs."""
        return next((block for block in self.by_answer if block.runs), self.blocks[0])

    @property
    def cells(self) -> list[Cell]:
        return [cell for block in self.blocks for line in block.lines for cell in line.cells.values()]

    @property
    def runs(self) -> list[Run]:
        """All runs, each once."""
        return list({run.key: run for block in self.blocks for run in block.runs}.values())


def measure(
    chosen: Sequence[Study],
    runs: Sequence[Run],
    typed: Sequence[str] = (),
    steps: Steps | None = None,
    setting: str = PAPER,
) -> list[StudyResults]:
    """What all runs, and the steps of claims on time, give for each study, corrected for all claims of its source.

    Spreads are pooled over the runs that the source's studies list: others count nowhere. A study that extends another
    has the project's runs, too.

    `setting` is the one that typed words change, where they make another. Raises InputError for words that make
    no sense.
    """
    by_source: dict[tuple[str, str], dict[int, Selection]] = {}  # one's own studies each alone
    for at, study in enumerate(chosen):
        selection = select(study, typed)
        if selection.blocks[0].name == TYPED:
            selection = select(study, typed, setting)
        by_source.setdefault((study.source, study.extends and study.name), {})[at] = selection
    measured: dict[int, StudyResults] = {}
    for (source, extends), own in by_source.items():
        others: list[Study] = []
        if any(one.blocks[0].name != TYPED for one in own.values()):
            whole = [one.study for one in own.values() if not typed]  # a study's row alone isn't
            loaded = (study for study in map(studies.load, studies.names()) if study not in whole)
            others = [study for study in loaded if study.source == source and not study.extends]
        known = cells.by_training(with_project(runs) if extends else runs)
        together = measure_together([*own.values(), *map(select, others)], known, steps or Steps())
        of_source = [claim for one in together if not one.typed for claim in one.claims]
        for at, one in zip(own, together, strict=False):
            claims = corrected(one.claims, one.claims if one.typed else of_source)
            measured[at] = replace(one, typed_words=typed, claims=claims)
    return [measured[at] for at in range(len(chosen))]


def measure_together(selections: Sequence[Selection], runs: ByTraining, steps: Steps) -> list[StudyResults]:
    """Studies without Holm's correction; spreads are pooled, and common levels taken, over the runs that they list."""
    of_studies = [[rows_of(one.study, block, runs) for block in one.blocks] for one in selections]
    levels = cells.common_levels(chain(*chain(*of_studies)))
    of_studies = [[[cells.with_levels(row, levels) for row in rows] for rows in own] for own in of_studies]
    pools = Pools(run for row in chain(*chain(*of_studies)) for run in row.all_runs)
    return [_measured(one, own, pools, steps) for one, own in zip(selections, of_studies, strict=True)]


def _measured(selection: Selection, settings: list[list[MeasuredRow]], pools: Pools, steps: Steps) -> StudyResults:
    """A study without Holm's correction, from the runs of its rows in each setting."""
    study, blocks, first = selection.study, list[MeasuredBlock](), selection.blocks[0]
    for block, rows in zip(selection.blocks, settings, strict=True):
        now, before = block.trained, {} if block is first else first.trained
        shown = [row for row in rows if not now[row.row.name] or now[row.row.name] != before.get(row.row.name)]
        blocks.append(MeasuredBlock(block, [replace(row, cells=cells.cells_of(study, row, pools)) for row in shown]))
    claims = [measure_claim(claim, study, settings, pools, steps) for claim in study.claims]
    return StudyResults(study, selection, blocks, claims)

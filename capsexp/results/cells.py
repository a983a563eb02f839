"""The cells of a study: the runs of each row in each setting, and of each measure a number.

Numbers of two settings never meet in one cell.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import geometric_mean, mean, stdev

from capsexp.results import statistics
from capsexp.results.measures import MEASURES, OF_CELLS
from capsexp.results.runs import Run
from capsexp.results.statistics import Estimate, PoolKey, Pools, Term, key_of
from capsexp.study.selection import LAPTOP, PAPER, TYPED, Block, Combination
from capsexp.study.studies import Published, Row, Study

#: Of trainings of so many epochs, tables show the first epoch to the maximum, and to the common level: so many points
#: below the lowest maximum of the source's runs that train alike.
LONG, LEVEL = 50, 1.0

#: Runs by condition and training.
ByTraining = Mapping[tuple[str, str], Sequence[Run]]


def by_training(runs: Iterable[Run]) -> ByTraining:
    """Finished runs stand first, then by start time: which is the first doesn't depend on a result."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.status != "finished", run.started, run.key)):
        found.setdefault(run.trained[:2], []).append(run)
    return found


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number: what the runs of a row give of one measure."""

    study: str
    row: str
    setting: str  # its name: paper, laptop or typed
    training: str  # in words
    protocol: str
    measure: str
    n: int = 0
    mean: float | None = None  # of first epochs the geometric one
    sd: float | None = None  # with n − 1
    low: float | None = None  # of the 95 % prediction interval of a mean of `printed_runs` runs
    high: float | None = None
    degrees: float | None = None  # of freedom of its spread
    published: str | None = None  # as printed, or why there is no number
    difference: float | None = None  # mean − published; of first epochs in percent of the published one
    verdict: str | None = None
    if_better_of_two: str | None = None  # the verdict if what is printed is the better of two runs
    bounds: list[bool] = field(default_factory=list)  # one a value: it is a lower bound, the maximum in the last epoch
    runs: int = 0
    failed: int = 0
    unlearned: int = 0  # finished runs that didn't learn: records.has_learned; they count
    best_of: str = ""  # how each seed's run was selected, where the row has several combinations of options
    device: str | None = None  # of most runs; costs are of this device only
    seeds: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # one per seed; of parameters: counted without a run
    keys: list[str] = field(default_factory=list)  # of all runs


@dataclass(frozen=True)
class MeasuredRow:
    """A row of a study in one setting, and its runs."""

    row: Row
    block: Block
    all_runs: Sequence[Run] = ()  # failed ones, and those of all combinations of options, too
    runs: Sequence[Run] = ()  # finished ones, one per seed, in their order: the best of the combinations
    options: int = 1  # how many combinations there are
    tried: int = 1  # how many of them were run with each seed
    cells: Mapping[str, Cell] = field(default_factory=dict)  # by measure

    @property
    def protocol(self) -> str:
        """That of its runs."""
        return next((run.protocol for run in self.all_runs), self.block.protocol(self.row.name))

    @property
    def device(self) -> str | None:
        """That of most runs; of equals the first in the alphabet."""
        devices = Counter(run.device for run in self.runs)
        return min(devices, key=lambda name: (-devices[name], name), default=None)

    @property
    def best_of(self) -> str:
        """How the best of the combinations was selected; nothing for a single one, or without finished runs."""
        if not self.runs or self.options == 1:
            return ""
        images = "test set" if self.protocol == "paper" else "held-out images"
        tried = f"{self.tried} of " * (self.tried < self.options)
        return f"best of {tried}{self.options} combinations, selected on the {images}"


def rows_of(study: Study, block: Block, runs: ByTraining) -> list[MeasuredRow]:
    """The runs of each row in a setting, of its protocol."""
    found: dict[str, list[tuple[int, Run]]] = {}
    for name, of_row in block.runs.items():
        for option, wanted in enumerate(combination.trained for combination in of_row):
            found.setdefault(name, []).extend(
                (option, run)
                for run in runs.get(wanted[:2], ())
                if run.protocol == block.protocol(name)
                and wanted.precision in ("auto", run.trained.precision)
                and (run.trained.files == wanted.files or not (wanted.files or block.name == PAPER))
            )
    files = _files(run for of_row in found.values() for _, run in of_row)
    return [_measured_row(row, block, _alike(found.get(row.name, ()), files)) for row in study.rows]


def _files(runs: Iterable[Run]) -> dict[str, str]:
    """Which version of each data set's files counts: the published one, else that of most runs."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        counts.setdefault(run.data, Counter())[run.trained.files] += 1
    return {data: "" if "" in of_set else of_set.most_common(1)[0][0] for data, of_set in counts.items()}


def _alike(of_row: Sequence[tuple[int, Run]], files: Mapping[str, str]) -> list[tuple[int, Run]]:
    """Of a row's runs those of the files that count, in the precision of most of them."""
    kept = [one for one in of_row if files[one[1].data] == one[1].trained.files]
    precisions = Counter(run.trained.precision for _, run in kept)
    return [one for one in kept if one[1].trained.precision == precisions.most_common(1)[0][0]]


def common_levels(rows: Iterable[MeasuredRow]) -> dict[PoolKey, float]:
    """The common level of the runs that train alike, if long: LEVEL points below the lowest of their maxima."""
    maxima: dict[PoolKey, list[float]] = {}
    for run in (run for row in rows for run in row.all_runs):
        if run.status == "finished" and run.learned is not False and len(run.curve) >= LONG:
            maxima.setdefault(key_of(run), []).append(max(run.curve))
    return {key: min(of_key) - LEVEL for key, of_key in maxima.items()}


def with_levels(row: MeasuredRow, levels: Mapping[PoolKey, float]) -> MeasuredRow:
    """The row, whose long runs have the first epoch at their common level."""
    runs = {run.key: _with_level(run, levels.get(key_of(run), math.inf)) for run in row.all_runs}
    return replace(row, all_runs=[*runs.values()], runs=[runs[run.key] for run in row.runs])


def _with_level(run: Run, level: float) -> Run:
    if len(run.curve) < LONG or max(run.curve) < level:
        return run
    first = next(epoch for epoch, accuracy in enumerate(run.curve, start=1) if accuracy >= level)
    return replace(run, measures={**run.measures, "level_epoch": first})


def _measured_row(row: Row, block: Block, of_row: Sequence[tuple[int, Run]]) -> MeasuredRow:
    """A row's runs, each combination and seed once: the first that finished."""
    first: dict[tuple[int, int], Run] = {}
    for option, run in of_row:
        first.setdefault((option, run.seed), run)
    tried = max(Counter(run.seed for run in first.values()).values(), default=0)
    every = block.runs[row.name] if block.name == TYPED else row.combinations(block.setting)
    return MeasuredRow(row, block, [*first.values()], best_of_seeds([*first.values()]), len(every), tried)


def best_of_seeds(runs: Sequence[Run]) -> list[Run]:
    """The best finished run of each seed, of equals the first; a seed with fewer runs than another has none, since the
    best of fewer combinations is lower.
    """
    best, counts = dict[int, Run](), Counter(run.seed for run in runs)
    for run in sorted(runs, key=lambda run: -(run.selected_by or 0.0)):
        if run.selected_by is not None and counts[run.seed] == max(counts.values()):
            best.setdefault(run.seed, run)
    return [best[seed] for seed in sorted(best)]


def cells_of(study: Study, row: MeasuredRow, pools: Pools) -> dict[str, Cell]:
    """The cells of a row, by measure."""
    return {measure: _cell(study, row, measure, pools) for measure in OF_CELLS}


def is_whole(study: Study, block: Block, measure: str) -> bool:
    """Whether a setting tells as much of a measure as the paper's experiment."""
    enough = block.name == PAPER or (block.name == LAPTOP and measure in block.setting.complete)
    return enough and study.differs is None


def _cell(study: Study, measured: MeasuredRow, measure: str, pools: Pools) -> Cell:
    row, device, cost = measured.row, measured.device, MEASURES[measure].machine
    used = [run for run in measured.runs if measure in run.measures and (not cost or run.device == device)]
    cell = Cell(
        study=study.name,
        row=row.name,
        setting=measured.block.name,
        training="; ".join(dict.fromkeys(str(run.trained) for run in measured.all_runs)),
        protocol=measured.protocol,
        measure=measure,
        published=row.published.get(measure),
        runs=len(measured.all_runs),
        failed=sum(run.status == "failed" for run in measured.all_runs),
        unlearned=sum(run.learned is False for run in measured.all_runs),
        best_of=measured.best_of,
        device=device,
        keys=sorted(run.key for run in measured.all_runs),
        seeds=[run.seed for run in used],
        values=[float(run.measures[measure]) for run in used],
        bounds=[run.censored and measure == "first_epoch" for run in used],
    )
    published = row.printed.get(measure)
    if measure == "parameters":
        return _counted(cell, study, measured.block, published)
    if not used:
        return cell
    average = geometric_mean if MEASURES[measure].scale == "epochs" else mean
    cell = replace(cell, n=len(used), mean=average(cell.values), sd=stdev(cell.values) if len(used) > 1 else None)
    if cost or any(cell.bounds) or not (known := _predicted(cell, measured.runs, pools, study.printed_runs)):
        return cell
    predicted, deviation = known
    low, high = MEASURES[measure].unscaled(predicted.interval())
    cell = replace(cell, low=low, high=high, degrees=predicted.degrees)
    judged = MEASURES[measure].judged and is_whole(study, measured.block, measure) and row.counted
    if published is None or not judged or cell.n == 1 or measured.tried < measured.options:
        return cell
    return _compared(cell, predicted, deviation, published)


def _predicted(cell: Cell, runs: Sequence[Run], pools: Pools, printed_runs: int) -> tuple[Estimate, float] | None:
    """The mean of as many runs as the source's, `printed_runs`, and one's standard deviation over seeds; None where
    that isn't known.
    """
    measure, first = MEASURES[cell.measure], runs[0]
    scaled = [measure.scaled(value) for value in cell.values]
    spread = pools.spread(runs, cell.measure, scaled)
    drawn = measure.scale == "percent" and not first.official  # another experimenter's test images would be others
    if spread is None or (drawn and not first.images):
        return None
    terms = [Term(1.0, scaled, spread)]
    sampling = 2 * statistics.independent_images(terms, first.images) if drawn and first.images else 0.0
    return statistics.effect(terms, printed_runs, sampling), math.sqrt(spread.variance)


def _compared(cell: Cell, predicted: Estimate, deviation: float, published: Published) -> Cell:
    """The cell with the difference from the published number, and the verdict; `deviation`: of a run."""
    measure, average = MEASURES[cell.measure], cell.mean or 0.0
    epochs = measure.scale == "epochs"
    # 100 % of the images are all of them, and not 99.5 % rounded.
    resolution = 0.0 if measure.scale == "percent" and published.value == 100 else published.resolution
    low, high = (measure.scaled(published.value + sign * resolution) for sign in (-1, 1))
    verdict, _ = statistics.judge_printed(predicted, (low, high))
    better = replace(predicted, value=predicted.value + statistics.BETTER_OF_TWO * deviation)
    return replace(
        cell,
        difference=100 * (average / published.value - 1) if epochs else average - published.value,
        verdict=verdict,
        if_better_of_two=statistics.judge_printed(better, (low, high))[0],
    )


def _counted(cell: Cell, study: Study, block: Block, published: Published | None) -> Cell:
    """The network's number of parameters, counted without a run, and whether it is the published one, in millions."""
    claimed = any(claim.measure == "parameters" for claim in study.claims)
    options = block.runs[cell.row]
    if block.name == LAPTOP or not options or not (claimed or "parameters" in study.measures):
        return cell
    count, *others = {count_of(option) for option in options}
    if others:
        return cell
    cell = replace(cell, n=1, mean=count, values=[count])
    if published is None or block.name != PAPER:
        return cell
    more, half = count - 1e6 * published.value, 1e6 * published.resolution + statistics.ZERO * count
    equal = -half <= more < 2 * half  # rounded, or the digits beyond the printed ones cut off
    return replace(cell, verdict="equal" if equal else "different")


@cache
def count_of(combination: Combination, measure: str = "parameters") -> int:
    """The parameters of a combination's network, or its operations; raises InputError."""
    from capsexp.run import build

    count = {"parameters": build.count_parameters, "operations": build.count_operations}[measure]
    return count(combination.config)

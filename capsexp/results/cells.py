"""The cells of a study: the runs of each row in each setting and protocol, and of each measure a number.

Numbers of two settings or two protocols never meet in one cell.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import mean, median, stdev
from typing import Any, Literal, NamedTuple

from capsexp.results import elsewhere, statistics
from capsexp.results.runs import COSTS, MEASURES, Run
from capsexp.results.spread import EPOCHS, PERCENT, Pools, scaled, unscaled
from capsexp.results.statistics import Estimate, Term
from capsexp.study import studies
from capsexp.study.selection import Selection, essential
from capsexp.study.setting import Setting
from capsexp.study.studies import Published, Row, Study, published_number

#: Published numbers of these measures are judged by the prediction interval; numbers of parameters must be equal.
JUDGED = ("accuracy", "first_epoch", "first_five")

#: The margin of a published number where its source claims no gain on the data set: points, and of epochs a quarter.
MARGINS = {"accuracy": 0.5, "first_five": 0.5, "first_epoch": math.log(1.25)}

#: The least share of the paper's training (epochs × images × channels) after which a published number has a verdict.
COMPARABLE = 0.5

NumberVerdict = Literal[
    "reproduced",
    "compatible, imprecise",
    "ours is higher",
    "ours is lower",
    "open",
    "open (one run)",
    "unstable",
    "not comparable",
]
_WORDS: dict[statistics.Position, NumberVerdict] = {
    "within": "reproduced",
    "around": "compatible, imprecise",
    "above": "ours is higher",
    "below": "ours is lower",
}

#: The measures of each protocol.
MEASURES_OF = {"paper": (*MEASURES, "parameters"), "heldout": ("accuracy",)}

GroupKey = tuple[str, Setting, str]  # row, setting, protocol


class Matched(NamedTuple):
    """The runs of a row."""

    options: int  # how many combinations of options the row has
    runs: list[tuple[int, Run]]  # each with the number of its combination


class Best(NamedTuple):
    """The run of one seed, the best of its row's combinations of options."""

    run: Run
    tried: int  # how many of the combinations were run with this seed
    options: int  # how many there are


@dataclass(frozen=True)
class Group:
    """The runs of a row in one setting and protocol."""

    row: Row
    setting: Setting | None  # None: the row has no runs
    main: bool  # whether the row is in the main tables in this setting
    protocol: str
    runs: Sequence[Run] = ()  # all that count, failed ones too
    repeated: Sequence[Run] = ()  # the same trainings again, under another name of their budget
    best: Sequence[Best] = ()  # finished ones, one per seed, in their order

    @property
    def device(self) -> str | None:
        """That of most runs; of equals the first in the alphabet."""
        devices = Counter(one.run.device for one in self.best)
        return min(devices, key=lambda name: (-devices[name], name), default=None)

    @property
    def best_of(self) -> str:
        """How the best of a row's combinations was selected; nothing for a single one, or without finished runs."""
        if not self.best or (options := self.best[0].options) == 1:
            return ""
        fewest, most = min(one.tried for one in self.best), max(one.tried for one in self.best)
        tried = "" if fewest == options else f"{fewest} of " if fewest == most else f"{fewest} to {most} of "
        images = "test set" if self.protocol == "paper" else "held-out images"
        return f"best of {tried}{options} ({self.row.swept}), selected on the {images}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number: what the runs of a group give of one measure."""

    study: str
    row: str
    setting: Setting | None
    main: bool
    protocol: str
    measure: str
    n: int = 0
    mean: float | None = None
    sd: float | None = None  # with n − 1
    low: float | None = None  # of the 95 % prediction interval for the mean of as many runs as the source's
    high: float | None = None
    degrees: float | None = None  # of freedom of its spread
    published: str | None = None  # as printed, or why there is no number
    difference: float | None = None  # mean − published; of first epochs in percent of the published one
    verdict: str | None = None
    so_far: str = ""  # in what the runs differ from the paper's experiment: 10 of 100 epochs; empty for the whole of it
    unstable: bool = False  # the seeds differ far more than those of other cells
    bounds: list[bool] = field(default_factory=list)  # one a value: it is a lower bound, the maximum in the last epoch
    runs: int = 0
    failed: int = 0
    unlearned: int = 0  # finished runs that didn't learn: records.has_learned; they count
    best_of: str = ""  # how each seed's run was selected, where the row has several combinations of options
    device: str | None = None  # of most runs; costs are of this device only
    seeds: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # one per seed; of parameters: counted without a run
    keys: list[str] = field(default_factory=list)  # of all runs


def by_condition(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each condition, without trials; finished ones before failed ones, then as they were started, so that
    which of two is taken doesn't depend on its numbers.
    """
    trained: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.state != "finished", run.started, run.key)):
        if run.state != "trial":
            trained.setdefault(run.condition, []).append(run)
    return trained


def match(selection: Selection, trained: Mapping[str, Sequence[Run]]) -> dict[str, Matched]:
    """The runs of each row, by its name.

    Args:
        trained: the runs of each condition; see `by_condition`.
    """
    options = Counter(wanted.row for wanted in selection.runs)
    matched = {row.name: Matched(options[row.name], []) for row in selection.study.rows}
    for option, wanted in enumerate(selection.runs):
        runs = trained.get(wanted.condition or "", ())
        matched[wanted.row].runs.extend((option, run) for run in runs if wanted.admits(run.setting))
    for row, run in elsewhere.runs(selection.study) if not essential(selection.replacing) else []:
        matched[row] = Matched(1, [*matched[row].runs, (0, run)])
    return matched


def group(rows: Sequence[Row], matched: Mapping[str, Matched]) -> list[Group]:
    """The runs of each row by setting and protocol, its main setting first; empty groups for a row without runs."""
    made: dict[GroupKey, dict[tuple[int, int], Run]] = {}  # by combination and seed
    repeated: dict[GroupKey, list[Run]] = {}
    for name, of_row in matched.items():
        for option, run in of_row.runs:
            key = name, run.setting, run.protocol
            if made.setdefault(key, {}).setdefault((option, run.seed), run) is not run:
                repeated.setdefault(key, []).append(run)
    best = {key: _best(runs, matched[key[0]].options) for key, runs in made.items()}
    settings = _settings({key: len(of_group) for key, of_group in best.items()})
    groups = []
    for row in rows:
        groups += [Group(row, None, True, protocol) for protocol in MEASURES_OF if row.name not in settings]
        for rank, setting in enumerate(settings.get(row.name, ())):
            for key in ((row.name, setting, protocol) for protocol in MEASURES_OF):
                runs = [*made.get(key, {}).values()]
                groups.append(Group(row, setting, rank == 0, key[2], runs, repeated.get(key, ()), best.get(key, ())))
    return groups


def _best(runs: Mapping[tuple[int, int], Run], options: int) -> list[Best]:
    """For each seed the best of these combinations and seeds, of equals the first; in the order of seeds."""
    tried: dict[int, list[Run]] = {}
    for (_, seed), run in runs.items():
        if run.state == "finished":
            tried.setdefault(seed, []).append(run)
    return [
        Best(max(of_seed, key=lambda run: run.selected_by or 0.0), len(of_seed), options)
        for _, of_seed in sorted(tried.items())
    ]


def _settings(seeds: Mapping[GroupKey, int]) -> dict[str, list[Setting]]:
    """The settings of each row, the one for the main tables first.

    That is the paper's training, even if all runs failed; else one of as many epochs, as claims prefer it; else that of
    most rows, which can then be compared; else the most of the paper's training; else that of most seeds.

    Args:
        seeds: how many finished in each group.
    """
    rows = Counter(setting for (_, setting, protocol), number in seeds.items() if number and protocol == "paper")

    def rank(of_row: tuple[str, Setting]) -> tuple[Any, ...]:
        setting, number = of_row[1], seeds.get((*of_row, "paper"), 0)
        trained = number > 0, setting.epochs is None, rows[setting], setting.fraction, number
        return (*of_row, "paper") in seeds, setting.whole, *trained, setting.precision == "bf16", str(setting)

    settings: dict[str, list[Setting]] = {}
    for row, setting in sorted({key[:2] for key in seeds}, key=rank, reverse=True):
        settings.setdefault(row, []).append(setting)
    return settings


def calculate(selection: Selection, groups: Iterable[Group], pools: Pools) -> list[Cell]:
    """The cells of these groups, one per measure of the protocol."""
    return [_cell(selection, one, measure, pools) for one in groups for measure in MEASURES_OF[one.protocol]]


def _cell(selection: Selection, group: Group, measure: str, pools: Pools) -> Cell:
    row, device = group.row, group.device
    printed = row.published.get(measure) if group.protocol == "paper" else None
    published = published_number(printed)
    used = [one.run for one in group.best if measure in one.run.measures]
    used = [run for run in used if measure not in COSTS or run.device == device]
    cell = Cell(
        study=selection.study.name,
        row=row.name,
        setting=group.setting,
        main=group.main,
        protocol=group.protocol,
        measure=measure,
        published=printed,
        runs=len(group.runs),
        failed=sum(run.state == "failed" for run in group.runs),
        unlearned=sum(run.learned is False for run in group.runs),
        best_of=group.best_of,
        device=device,
        keys=sorted(run.key for run in group.runs),
        seeds=[run.seed for run in used],
        values=[float(run.measures[measure]) for run in used],
        bounds=[run.censored and measure in EPOCHS for run in used],
    )
    if measure == "parameters":
        return _counted(cell, selection, published)
    cell = replace(cell, so_far=so_far(selection, measure, group.setting, group.best))
    if not used or group.setting is None:
        return cell
    cell, predicted = _with_spread(cell, group.setting, group.best, pools, selection.study.printed_runs)
    if published is None or measure not in JUDGED or row.elsewhere:
        return cell
    return _compared(cell, group.setting, predicted, published, margin_of(selection.study, row, measure))


def margin_of(study: Study, row: Row, measure: str) -> float:
    """The margin of a row's published number: half of the smallest gain that its source claims on the row's data set,
    in any of its studies, or MARGINS; of first epochs one of logarithms.
    """
    if not row.run:
        return MARGINS[measure]
    gains = [gain for one in (study, *_of_source(study.publication)) for gain in _gains(one, measure, _data(row))]
    return min(gains, default=2 * MARGINS[measure]) / 2


@cache
def _of_source(publication: str) -> list[Study]:
    return [study for study in map(studies.load, studies.names()) if study.publication == publication]


def _gains(study: Study, measure: str, data: str) -> list[float]:
    """The sizes of the gains in a measure that a study claims on a data set."""
    commands = {row.name: row for row in study.rows if row.run}
    return [
        abs(math.log1p(size.value / 100) if claim.estimate == "relative" else size.value)
        for claim in study.claims
        if claim.measure == measure and claim.estimate in ("difference", "relative")
        if (size := published_number(claim.claimed))
        if data in {_data(commands[name]) for name in claim.compared if name in commands}
    ]


def _data(row: Row) -> str:
    """The data set that a row trains on."""
    return studies.config_of(row.combinations()[0]).data.name


def so_far(selection: Selection, measure: str, setting: Setting | None, best: Sequence[Best]) -> str:
    """In what these runs differ from the paper's experiment; empty if in nothing."""
    fewest = min(best, key=lambda one: one.tried / one.options, default=None)
    parts = [
        selection.substitution,
        selection.study.differs or "",
        setting.reduced(measure) if setting else "",
        f"{fewest.tried} of {fewest.options} combinations" if fewest and fewest.tried != fewest.options else "",
    ]
    return ", ".join(part for part in parts if part)


def _with_spread(
    cell: Cell, setting: Setting, best: Sequence[Best], pools: Pools, printed_runs: int
) -> tuple[Cell, Estimate | None]:
    """Mean, standard deviation and prediction interval.

    Args:
        printed_runs: whose mean a printed number is.
    """
    measure, values = cell.measure, cell.values
    cell = replace(cell, n=len(values), mean=mean(values), sd=stdev(values) if len(values) > 1 else None)
    if measure in COSTS or any(cell.bounds):
        return cell, None
    first, networks = best[0].run, {one.run.condition for one in best}
    at = first.dataset, setting, cell.protocol
    pool = pools.pool(at, measure)
    if networks <= pool.unstable:
        return replace(cell, mean=median(values), unstable=True), None
    on_scale = [scaled(measure, value) for value in values]
    spread = pool.spread(on_scale, pools.least(at, measure, on_scale), networks)
    drawn = measure in PERCENT and not first.official  # another experimenter's test images would be others
    if spread is None or (drawn and not first.images):
        return cell, None
    terms = [Term(1.0, on_scale, spread)]
    images = 2 * statistics.independent_images(terms, first.images) if drawn and first.images else 0.0
    predicted = statistics.effect(terms, printed_runs, images)
    low, high = unscaled(measure, predicted.interval())
    return replace(cell, low=low, high=high, degrees=predicted.degrees), predicted


def _compared(cell: Cell, setting: Setting, predicted: Estimate | None, published: Published, margin: float) -> Cell:
    """The cell with the difference from the published number, and the verdict."""
    measure, average = cell.measure, cell.mean
    if setting.share(measure) < COMPARABLE:
        return replace(cell, verdict="not comparable")
    if cell.unstable:
        return replace(cell, verdict="unstable")
    if any(cell.bounds) or average is None:
        return replace(cell, verdict="open")
    difference = 100 * (average / published.value - 1) if measure in EPOCHS else average - published.value
    verdict: NumberVerdict = "open (one run)" if cell.n == 1 else "open"
    if cell.n > 1 and predicted is not None:
        # 100 % of the images are all of them, and not 99.5 % rounded.
        resolution = 0.0 if measure in PERCENT and published.value == 100 else published.resolution
        printed = [scaled(measure, published.value + sign * resolution) for sign in (-1, 1)]
        verdict = _WORDS[statistics.judge_printed(predicted, (printed[0], printed[1]), margin)[0]]
    return replace(cell, difference=difference, verdict=verdict)


def _counted(cell: Cell, selection: Selection, published: Published | None) -> Cell:
    """The network's number of parameters, counted without a run, and whether it is the published one, in millions."""
    study = selection.study
    if "parameters" not in study.measures and not any(claim.measure == "parameters" for claim in study.claims):
        return cell
    run = next((run for run in selection.runs if run.row == cell.row and run.identity), None)
    if run is None:
        return cell
    count = counted(run.overrides)  # its other combinations have as many
    cell = replace(cell, n=1, mean=count, values=[count])
    if published is None or selection.replaced:
        return cell
    equal = abs(count - 1e6 * published.value) <= 1e6 * published.resolution + statistics.ZERO * count
    return replace(cell, verdict="equal" if equal else "different")


@cache
def counted(overrides: tuple[str, ...]) -> int:
    """The number of parameters of the network that a command line makes; raises InputError."""
    from capsexp.run.build import count_parameters

    return count_parameters(studies.config_of(overrides))

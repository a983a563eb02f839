"""What a source says about rows, tested on the seeds that all of them have in common; see statistics.claim.

All rows of a claim are taken at one setting, and what a machine costs on one device: the best that they share. A claim
of which only some pairs or rows were run is measured on those, and undecided.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from capsexp.results import statistics
from capsexp.results.statistics import ClaimResult
from capsexp.results.tables import COSTS, Table
from capsexp.study import studies
from capsexp.study.setting import Setting
from capsexp.study.studies import Claim

Place = tuple[Setting, str | None]  # a setting and, for costs, a device
Values = dict[int, float]  # seed -> number


@dataclass(frozen=True)
class Judged:
    """A claim, and what the runs say."""

    claim: Claim
    missing: list[str]  # its rows without such a run
    rows: int  # that it compares
    setting: Setting | None = None  # None: no seed at a setting that all rows share
    result: ClaimResult | None = None
    doubt: str = ""  # why it is undecided, however many seeds there are
    part: str = ""  # what of it was measured, where that isn't all: 3 of 5 pairs


def judge(table: Table) -> list[Judged]:
    """All claims of a study."""
    return [_judge(table, claim) for claim in table.study.claims]


def _judge(table: Table, claim: Claim) -> Judged:
    names = list(dict.fromkeys([name for pair in claim.pairs for name in pair] + claim.rows))
    measured = {name: _measured(table, name, claim.measure) for name in names}
    missing = [name for name, places in measured.items() if not places]
    parts = {
        place: _part(claim, place, measured) for place in {place for found in measured.values() for place in found}
    }
    estimates = {place: _estimates(claim, part) for place, part in parts.items() if part}
    places = [place for place, found in estimates.items() if found]
    if not places:
        return Judged(claim, missing, len(names))
    best = max(places, key=lambda place: _rank(place, len(parts[place]), len(estimates[place])))
    doubt = _doubt(table, claim, list(parts[best]), best[0], list(estimates[best]))
    if part := _said(claim, parts[best]):
        doubt = doubt or "not all was run"
    found = list(estimates[best].values())
    claimed = studies.published_number(claim.claimed) or claim.claimed
    result = statistics.claim(found, claimed, comparable=not doubt)  # type: ignore[arg-type]  # see studies._check_claim
    return Judged(claim, missing, len(names), best[0], result, doubt, part)


def _part(claim: Claim, place: Place, measured: Mapping[str, Mapping[Place, Values]]) -> dict[str, Values]:
    """The rows that were run there, as far as they make a pair, or two points of a slope."""
    there = {name: places[place] for name, places in measured.items() if place in places}
    pairs = {name for pair in _pairs(claim, there) for name in pair}
    return {name: found for name, found in there.items() if name in pairs or (claim.rows and len(there) > 1)}


def _pairs(claim: Claim, rows: Collection[str]) -> list[list[str]]:
    """Those of a claim's pairs whose rows are there."""
    return [pair for pair in claim.pairs if set(pair) <= set(rows)]


def _said(claim: Claim, part: Collection[str]) -> str:
    """How much of a claim was run, where that isn't all."""
    run, kind = (_pairs(claim, part), "pairs") if claim.pairs else (part, "rows")
    whole = len(claim.pairs or claim.rows)
    return f"{len(run)} of {whole} {kind}" if len(run) < whole else ""


def _measured(table: Table, name: str, measure: str) -> dict[Place, Values]:
    """A row's numbers, one a seed, at each setting."""
    (row,) = (index for index, row in enumerate(table.study.rows) if row.name == name)
    best = table.best
    runs = best[(best.row == row) & (best.protocol == "paper") & best[measure].notna()]
    places: dict[Place, Values] = defaultdict(dict)
    for setting, device, seed, value in zip(runs.setting, runs.device, runs.seed, runs[measure], strict=True):
        places[setting, device if measure in COSTS else None][seed] = float(value)
    return places


def _estimates(claim: Claim, values: Mapping[str, Values]) -> Values:
    """The effect in each seed that all rows have; none where it isn't defined."""
    seeds = sorted(set.intersection(*({*of_row} for of_row in values.values())))
    try:
        return {seed: _estimate(claim, {name: of_row[seed] for name, of_row in values.items()}) for seed in seeds}
    except ValueError:  # a change relative to 0
        return {}


def _estimate(claim: Claim, values: Mapping[str, float]) -> float:
    if claim.estimate == "slope":
        points = [(place, values[name]) for place, name in enumerate(claim.rows, start=1) if name in values]
        return statistics.slope(*zip(*points, strict=True))
    effect = statistics.relative_change if claim.estimate == "relative" else statistics.difference
    return statistics.describe([effect(values[a], values[b]) for a, b in _pairs(claim, values)]).mean


def _rank(place: Place, rows: int, seeds: int) -> tuple[object, ...]:
    setting, device = place
    return setting.whole, rows, setting.share, seeds, setting.precision == "bf16", str(setting), device or ""


def _doubt(table: Table, claim: Claim, names: Sequence[str], setting: Setting, seeds: list[int]) -> str:
    if table.replaced:
        return "not the paper's experiment"
    if claim.measure == "parameters":  # they don't depend on the training
        return "" if setting.width == 1 else "narrower networks"
    if not setting.whole:
        return "other data" if setting.note and setting.share == 1 else "reduced training"
    used = table.best[(table.best.setting == setting) & (table.best.protocol == "paper") & table.best.seed.isin(seeds)]
    for index, row in enumerate(table.study.rows):
        jobs = table.cells.jobs[table.cells.row == index].iloc[0]
        if row.name in names and (used.jobs[used.row == index] < jobs).any():
            return f"not all runs of {row.name}"
    return ""

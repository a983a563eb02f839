"""A source's claims about rows, tested on the seeds that the rows have in common; see statistics.claim.

All rows of a claim are taken in one setting, and costs on one device: the best that the rows have in common. A claim of
which only some pairs or rows were run is measured on those, and undecided.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from capsexp.results import statistics
from capsexp.results.runs import COSTS, Run
from capsexp.results.statistics import ClaimResult
from capsexp.study.setting import Setting
from capsexp.study.studies import Claim, Study, published_number


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and its verdict."""

    claim: Claim
    verdict: str  # a ClaimVerdict, or why there is none
    reason: str = ""  # for undecided however many seeds there are; the rows that were not run
    setting: Setting | None = None  # None: no seed that the rows have in one setting
    result: ClaimResult | None = None
    part: str = ""  # what was measured, where that isn't all: 3 of 5 pairs


def measure_claims(study: Study, best: pd.DataFrame, replaced: bool) -> list[MeasuredClaim]:
    """All claims of a study, with their verdicts.

    Args:
        best: a line a row, setting, protocol and seed; see cells.best_runs.
        replaced: the runs are of another experiment than the paper's.
    """
    runs: list[Run] = [*best[best.protocol == "paper"].itertuples()]
    return [_measure(claim, runs, replaced) for claim in study.claims]


def _measure(claim: Claim, runs: Sequence[Run], replaced: bool) -> MeasuredClaim:
    names = dict.fromkeys([*chain(*claim.pairs), *claim.rows])
    runs = [run for run in runs if run.row in names and pd.notna(getattr(run, claim.measure))]
    places: dict[tuple[Setting, str], list[Run]] = {}
    for run in runs:
        places.setdefault((run.setting, run.device if claim.measure in COSTS else ""), []).append(run)
    candidates = []
    for (setting, device), of_place in places.items():
        used = _used(claim, of_place)
        if estimates := _estimates(claim, used):
            order = setting.whole, len({run.row for run in used}), setting.fraction, len(estimates)
            candidates.append(((*order, setting.precision == "bf16", str(setting), device), setting, used, estimates))
    if not candidates:
        missing = [name for name in names if name not in {run.row for run in runs}]
        verdict = "not run" if missing else "no seed that its rows have in one setting"
        return MeasuredClaim(claim, verdict, _listed(missing) if len(missing) < len(names) else "")
    _, setting, used, estimates = max(candidates, key=lambda candidate: candidate[0])
    part = _part(claim, {run.row for run in used})
    reason = _reason(claim, setting, used, replaced) or ("not all was run" if part else "")
    claimed: Any = published_number(claim.claimed) or claim.claimed
    result = statistics.claim(estimates, claimed, comparable=not reason)
    return MeasuredClaim(claim, result.verdict, reason, setting, result, part)


def _used(claim: Claim, runs: Sequence[Run]) -> list[Run]:
    """The runs of rows that make a pair, or several points of a slope, with the seeds that these have in common."""
    rows = {run.row for run in runs}
    rows = set(chain(*_pairs(claim, rows))) if claim.pairs else rows if len(rows) > 1 else set()
    seeds = Counter(run.seed for run in runs if run.row in rows)
    return [run for run in runs if run.row in rows and seeds[run.seed] == len(rows)]


def _estimates(claim: Claim, runs: Sequence[Run]) -> list[float]:
    """The effect in each seed; empty where it isn't defined: a change relative to 0."""
    values: dict[int, dict[str, float]] = {}
    for run in runs:
        values.setdefault(run.seed, {})[run.row] = float(getattr(run, claim.measure))
    try:
        return [_estimate(claim, values[seed]) for seed in sorted(values)]
    except ValueError:
        return []


def _estimate(claim: Claim, values: Mapping[str, float]) -> float:
    if claim.estimate == "slope":
        points = [(place, values[row]) for place, row in enumerate(claim.rows, start=1) if row in values]
        return statistics.slope(*zip(*points, strict=True))
    effect = statistics.relative_change if claim.estimate == "relative" else statistics.difference
    return statistics.describe([effect(values[a], values[b]) for a, b in _pairs(claim, values)]).mean


def _pairs(claim: Claim, rows: Collection[Any]) -> list[list[str]]:
    """The pairs of these rows."""
    return [pair for pair in claim.pairs if set(pair) <= set(rows)]


def _part(claim: Claim, rows: Collection[str]) -> str:
    """How much of a claim was run, where that isn't all."""
    run, kind = (_pairs(claim, rows), "pairs") if claim.pairs else (rows, "rows")
    whole = len(claim.pairs or claim.rows)
    return f"{len(run)} of {whole} {kind}" if len(run) < whole else ""


def _reason(claim: Claim, setting: Setting, used: Sequence[Run], replaced: bool) -> str:
    """Why runs in this setting decide nothing."""
    if replaced:
        return "not the paper's experiment"
    if claim.measure == "parameters":  # they don't depend on the training
        return "" if setting.width == 1 else "narrower networks"
    if not setting.whole:
        return "other data" if setting.note and setting.fraction == 1 else "reduced training"
    incomplete = {run.row for run in used if run.tried < run.combinations}
    return next((f"not all runs of {row}" for row in [*chain(*claim.pairs), *claim.rows] if row in incomplete), "")


def _listed(rows: list[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(rows[:3]) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")

"""A source's claims: what our runs say of each, and what the source's own printed numbers say.

All rows of a claim are taken in one setting, and costs on one device: the best that the rows have in common. A claim of
which only some pairs or rows can be compared is measured on those.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import pandas as pd

from capsexp.results import statistics
from capsexp.results.cells import counted, so_far
from capsexp.results.runs import COSTS, Run
from capsexp.results.spread import EPOCHS, PERCENT, Pools, scaled
from capsexp.results.statistics import Estimate, Interval, Pool, Spread
from capsexp.study import studies
from capsexp.study.selection import Selection
from capsexp.study.setting import Setting, tested_images
from capsexp.study.studies import Claim, Row, published_number


@dataclass(frozen=True)
class Measured:
    """An effect with its 95 % interval, in the unit of the claim."""

    value: float
    interval: Interval | None = None  # None where no spread is known
    pairs: tuple[float, ...] = ()  # the effect in each pair


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and its verdict."""

    claim: Claim
    key: tuple[object, ...]  # equal for the same claim in several studies of a source, and for readings of it
    reading: bool  # of rows that read the source in another way
    verdict: str  # a ClaimVerdict, or why there is none
    so_far: str = ""  # in what the runs differ from the paper's experiment
    reason: str = ""  # the rows that were not run; those that were left out
    setting: Setting | None = None
    measured: Measured | None = None
    runs: int = 0
    unlearned: int = 0  # of these
    p_value: float | None = None  # of the test that decides
    adjusted: float | None = None  # the p-value by Holm's method, over all claims of the source
    printed: Measured | None = None  # what the printed numbers of its rows give

    @property
    def holds(self) -> bool:
        """Whether the verdict is one also after Holm's correction."""
        return self.adjusted is not None and self.adjusted < 1 - statistics.LEVEL


def measure_claims(
    selection: Selection, best: pd.DataFrame, pools: Pools, conditions: Mapping[str, frozenset[str]]
) -> list[MeasuredClaim]:
    """All claims of a study, with their verdicts, Holm's correction still missing.

    Args:
        best: a line a row, setting, protocol and seed; see cells.best_runs.
        conditions: of the runs of each row.
    """
    runs: list[Run] = [*best[best.protocol == "paper"].itertuples()]
    return [_measure(claim, selection, runs, pools, conditions) for claim in selection.study.claims]


def adjusted(claims: Sequence[MeasuredClaim], of_source: Sequence[MeasuredClaim]) -> list[MeasuredClaim]:
    """The claims with Holm's correction over the distinct ones of their source, without readings and our own."""
    family = {one.key: one.p_value for one in reversed(of_source) if _is_counted(one) and one.p_value is not None}
    corrected = dict(zip(family, statistics.holm([*family.values()]), strict=True))
    return [replace(one, adjusted=corrected.get(one.key)) if _is_counted(one) else one for one in claims]


def _is_counted(one: MeasuredClaim) -> bool:
    return not (one.reading or one.claim.ours)


def _measure(
    claim: Claim,
    selection: Selection,
    runs: Sequence[Run],
    pools: Pools,
    conditions: Mapping[str, frozenset[str]],
) -> MeasuredClaim:
    rows = {row.name: row for row in selection.study.rows}
    key, reading = _key(claim, selection, rows, conditions)
    found = MeasuredClaim(claim, key, reading, "untested", reason=claim.untested or "")
    if claim.untested is not None:
        return found
    found = replace(found, printed=_printed(claim, rows))
    if claim.measure == "parameters":
        return _counted(found, selection)
    places: dict[tuple[Setting, str], list[Run]] = {}
    for run in runs:
        if run.row in claim.compared and pd.notna(getattr(run, claim.measure)):
            places.setdefault((run.setting, run.device if claim.measure in COSTS else ""), []).append(run)
    candidates = [_compare(found, selection, place, of_place, pools) for place, of_place in places.items()]
    if ranked := [(order, one) for order, one in filter(None, candidates)]:
        return max(ranked, key=lambda candidate: candidate[0])[1]
    present = {run.row for of_place in places.values() for run in of_place}
    missing = [name for name in claim.compared if name not in present]
    if not missing:
        left_out = [row for place, of_place in places.items() for row in _unstable(claim, place, of_place, pools)]
        rising = claim.measure in EPOCHS and any(run.censored for of_place in places.values() for run in of_place)
        why = f"{_listed(left_out)}, unstable" if left_out else "no two rows in one setting"
        return replace(found, verdict="open", reason="still rising in the last epoch" if rising else why)
    return replace(found, verdict="not run", reason=_listed(missing) if len(missing) < len(claim.compared) else "")


def _pool(claim: Claim, place: tuple[Setting, str], runs: Sequence[Run], pools: Pools) -> Pool:
    """The spread of the claim's measure in one setting, of costs on one device."""
    setting, device = place
    return pools.pool((runs[0].dataset, setting, "paper"), claim.measure, device, _is_ratio(claim))


def _unstable(claim: Claim, place: tuple[Setting, str], runs: Sequence[Run], pools: Pools) -> list[str]:
    """The rows whose seeds differ far more than those of others."""
    unstable = _pool(claim, place, runs, pools).unstable
    return [*dict.fromkeys(run.row for run in runs if run.combinations == 1 and run.condition in unstable)]


def _compare(
    found: MeasuredClaim, selection: Selection, place: tuple[Setting, str], runs: Sequence[Run], pools: Pools
) -> tuple[tuple[Any, ...], MeasuredClaim] | None:
    """The claim in one setting, and how good that setting is; None where no pair, or not two rows, can be compared."""
    (setting, device), claim = place, found.claim
    pool = _pool(claim, place, runs, pools)
    values: dict[str, dict[int, float]] = {}
    for run in runs:
        values.setdefault(run.row, {})[run.seed] = scaled(
            claim.measure, float(getattr(run, claim.measure)), _is_ratio(claim)
        )
    left_out = dict.fromkeys(_unstable(claim, place, runs, pools), "unstable")
    if claim.measure in EPOCHS:
        left_out |= {run.row: "still rising in its last epoch" for run in runs if run.censored}
    usable = {name: of_row for name, of_row in values.items() if name not in left_out}
    weights = _weights(claim, usable)
    if not weights:
        return None
    usable = {name: usable[name] for name in weights}
    spread = pool.spread
    common = set.intersection(*(set(of_row) for of_row in usable.values()))
    if pool.paired and common:
        spread, usable = pool.paired, {name: {seed: of_row[seed] for seed in common} for name, of_row in usable.items()}
    used = [run for run in runs if run.row in usable and run.seed in usable[run.row]]
    drawn = claim.measure in PERCENT and not all(run.official for run in used)
    images = next(iter(used)).images if drawn else None
    if len({run.dataset for run in used}) > 1 or (drawn and images is None):
        spread = None  # of different data, or of an unknown number of images
    estimate = statistics.effect({name: [*of.values()] for name, of in usable.items()}, weights, spread, images)
    means = {name: mean(of_row.values()) for name, of_row in usable.items()}
    baseline = mean(means[a] for a, _ in _pairs(claim, usable)) if claim.pairs else None
    verdict, p_value = _judged(claim, estimate, baseline)
    least = min(used, key=lambda run: run.tried / run.combinations)
    extent = {"fewest": least.tried, "combinations": least.combinations}
    part = _part(claim, usable)
    differs = ", ".join(filter(None, [so_far(selection, claim.measure, setting, extent), _load(claim, used), part]))
    enough = not setting.reduced(claim.measure)  # then more training says nothing more of the claim, but more seeds do
    trained = 1.0 if enough else setting.fraction
    order = enough, len(usable), trained, len(used), setting.precision == "bf16", str(setting), device
    return order, replace(
        found,
        verdict=verdict,
        so_far=differs,
        reason=_listed([f"without {name}, {why}" for name, why in left_out.items()]),
        setting=setting,
        measured=_effect(claim, means, estimate),
        runs=len(used),
        unlearned=sum(run.learned is False for run in used),
        p_value=p_value,
    )


def _counted(found: MeasuredClaim, selection: Selection) -> MeasuredClaim:
    """A claim on numbers of parameters, which needs no run."""
    claim = found.claim
    overrides = {run.row: run.overrides for run in reversed(selection.runs) if run.identity}
    if missing := [name for name in claim.compared if name not in overrides]:
        return replace(found, verdict="not run", reason=_listed(missing))
    values = {name: scaled(claim.measure, counted(overrides[name]), _is_ratio(claim)) for name in claim.compared}
    verdict, _ = _judged(claim, Estimate(_sum(claim, values)), None)
    return replace(found, verdict=verdict, measured=_effect(claim, values), so_far=selection.substitution)


def _printed(claim: Claim, rows: Mapping[str, Row]) -> Measured | None:
    """What the printed numbers of the claim's rows give, one run each; None without such numbers.

    The interval is that of the test set alone: two independent samples of its size.
    """
    numbers = {name: published_number(rows[name].published.get(claim.measure)) for name in claim.compared}
    values = {name: scaled(claim.measure, one.value, _is_ratio(claim)) for name, one in numbers.items() if one}
    weights = _weights(claim, values)
    if not weights:
        return None
    images = {_images(rows[name]) for name in weights} if claim.measure in PERCENT else set()
    estimate = None
    if len(images) == 1 and None not in images and all(0 <= values[name] <= 100 for name in weights):
        lists = {name: [values[name]] for name in weights}
        estimate = statistics.effect(lists, weights, Spread(0.0, 1), images.pop())
    return _effect(claim, values, estimate)


def _effect(claim: Claim, values: Mapping[str, float], estimate: Estimate | None = None) -> Measured:
    """The effect on rows of these values, which are on the scale on which effects are added, and its interval."""
    sign = -1 if claim.estimate == "factor" else 1
    pairs = tuple(_in_unit(claim, sign * (values[b] - values[a])) for a, b in _pairs(claim, values))
    interval = None
    if estimate is not None:
        low, high = estimate.interval()
        interval = _in_unit(claim, low), _in_unit(claim, high)
    return Measured(_in_unit(claim, _sum(claim, values)), interval, pairs)


def _sum(claim: Claim, values: Mapping[str, float]) -> float:
    """The effect on the scale of the values."""
    return sum(weight * values[name] for name, weight in _weights(claim, values).items())


def _judged(claim: Claim, estimate: Estimate | None, baseline: float | None) -> tuple[str, float | None]:
    """The verdict and its p-value; open where no spread is known."""
    if estimate is None:
        return "open", None
    size = published_number(claim.claimed)
    if size is None:
        margin = float(claim.margin or "nan")
        margin = math.log1p(margin / 100) if _is_ratio(claim) else margin
        match claim.claimed.split():
            case ["same"]:
                return statistics.judge_sameness(estimate, margin)
            case ["no", direction]:
                return statistics.judge_absence(estimate, direction, margin)  # type: ignore[arg-type]
            case [direction]:
                return statistics.judge_direction(estimate, direction)  # type: ignore[arg-type]
    assert size is not None
    room = 100 - baseline if claim.measure in PERCENT and baseline is not None else math.inf
    exact = claim.measure == "parameters"  # where nothing but the printed rounding is uncertain
    interest = _on_scale(claim, size.value - math.copysign(size.resolution, size.value)) if exact else None
    return statistics.judge_size(estimate, _on_scale(claim, size.value), room=room, interest=interest)


def _weights(claim: Claim, rows: Collection[str]) -> dict[str, float]:
    """The weight of each row in the effect, of those that are there; nothing where it isn't defined."""
    if claim.estimate == "slope":
        points = {name: place for place, name in enumerate(claim.rows, start=1) if name in rows}
        return dict(zip(points, statistics.slope_weights([*points.values()]), strict=True)) if len(points) > 1 else {}
    weights: dict[str, float] = {}
    pairs = _pairs(claim, rows)
    sign = -1 if claim.estimate == "factor" else 1
    for a, b in pairs:
        weights[a] = weights.get(a, 0.0) - sign / len(pairs)
        weights[b] = weights.get(b, 0.0) + sign / len(pairs)
    return weights


def _pairs(claim: Claim, rows: Collection[str]) -> list[list[str]]:
    """The pairs of these rows."""
    return [pair for pair in claim.pairs if set(pair) <= set(rows)]


def _is_ratio(claim: Claim) -> bool:
    return claim.estimate in ("relative", "factor")


def _on_scale(claim: Claim, size: float) -> float:
    """A size in the claim's unit, on the scale on which effects are added."""
    if claim.estimate == "relative":
        return math.log1p(size / 100)
    return math.log(size) if claim.estimate == "factor" else size


def _in_unit(claim: Claim, value: float) -> float:
    """The reverse of `_on_scale`."""
    if claim.estimate == "relative":
        return 100 * math.expm1(value)
    return math.exp(value) if claim.estimate == "factor" else value


def _images(row: Row) -> int | None:
    """The test images of a row's data set."""
    return tested_images(studies.identity(row.combinations()[0])) if row.run else None


def _key(
    claim: Claim, selection: Selection, rows: Mapping[str, Row], conditions: Mapping[str, frozenset[str]]
) -> tuple[tuple[object, ...], bool]:
    """What is claimed, in terms of what its rows train where they don't read the text in another way."""
    base = {name: name if claim.ours else rows[name].reading_of or name for name in claim.compared}
    reading = any(base[name] != name for name in base)
    trained = {name: conditions.get(one) or one for name, one in base.items()}
    pairs = tuple(
        tuple(trained[name] for name in pair) for pair in [*claim.pairs, *([claim.rows] if claim.rows else [])]
    )
    text = "" if pairs and not claim.ours else claim.text
    return (selection.study.publication, text, claim.measure, claim.estimate, claim.claimed, claim.ours, pairs), reading


def _part(claim: Claim, rows: Collection[str]) -> str:
    """How much of a claim was measured, where that isn't all."""
    run, kind = (_pairs(claim, rows), "comparisons") if claim.pairs else (rows, "rows")
    whole = len(claim.pairs or claim.rows)
    return f"{len(run)} of {whole} {kind}" if len(run) < whole else ""


def _load(claim: Claim, runs: Sequence[Run]) -> str:
    """Whether times were measured beside other work."""
    timed = claim.measure in ("inference", "seconds")
    return "on a busy machine" if timed and any(is_loaded(run) for run in runs) else ""


def is_loaded(run: Run) -> bool:
    """Whether the machine had other work beside a run: its load average was above the run's own threads."""
    return pd.notna(run.load) and pd.notna(run.threads) and run.load > run.threads + 0.5


def _listed(texts: list[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

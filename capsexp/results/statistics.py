"""Verdicts on published numbers and on published claims.

A number. A published number is mostly one run, so it is reproduced if it lies inside the 95 % prediction interval for
one more run of ours,

    mean ± t_{n−1} · s · sqrt(1 + 1/n)

over n seeds, with the standard deviation s (n−1) and Student's two-sided 95 % quantile t_{n−1}. The number was rounded
when it was printed: it counts as an interval of half a unit of its last digit to either side, and is reproduced if the
two intervals overlap. Otherwise it is higher, or lower, than ours. Fewer than three seeds, reduced training or other
data leave it undecided.

A claim. Runs are paired by seed: each seed gives one estimate of the effect (a difference, a relative change, a slope).
A claim is about the effect, not about one more run, so its sign is judged by the 95 % confidence interval of the mean,
mean ± t_{n−1} · s / sqrt(n). Where that interval

    excludes 0 on the claimed side    the claim is confirmed
    excludes 0 on the other side      it is contradicted
    includes 0                        it is not reproduced

A claimed size must also overlap the 95 % prediction interval for one more pair of runs, as it too is mostly one pair;
where ours has the claimed sign but not the size, it is smaller than claimed, or larger, in absolute size. The claim
that two are the same is contradicted by an interval that excludes 0; one that includes 0 doesn't prove it, so the
verdict is "no difference shown": few seeds show few differences. Fewer than three estimates, reduced training or other
data leave a claim undecided.

Seeds are taken as draws from a normal distribution. Equal values have intervals of no width, and the same rules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import linear_regression, mean, stdev
from typing import Literal

from capsexp.study.studies import Published

LEVEL = 0.95
ENOUGH = 3  # seeds: with two, t is 12.7, and nearly everything would be reproduced
# Published numbers went through single precision (99.71 is printed as 99.70999908), and ours may have.
SINGLE_PRECISION = 2.0**-23
ZERO = 1e-10  # what double precision leaves of a difference of 0 between numbers up to 10⁵

Interval = tuple[float, float]
Direction = Literal["increase", "decrease", "same"]
Verdict = Literal["reproduced", "published higher", "published lower", "undecided"]
ClaimVerdict = Literal[
    "confirmed",
    "smaller than claimed",
    "larger than claimed",
    "not reproduced",
    "contradicted",
    "no difference shown",
    "undecided",
]

SIGNS = {"increase": 1, "decrease": -1, "same": 0}


@dataclass(frozen=True)
class Spread:
    """The mean of n values and their standard deviation (n−1), None for a single value."""

    n: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class ClaimResult:
    """n estimates of an effect, one a seed: mean ± half the width of its 95 % confidence interval, and the verdict."""

    n: int
    mean: float
    half_width: float | None  # None for a single estimate
    verdict: ClaimVerdict


def describe(values: Sequence[float]) -> Spread:
    """Mean and standard deviation; raises ValueError for no values, and for one that isn't finite."""
    numbers = _finite(values)
    return Spread(len(numbers), mean(numbers), stdev(numbers) if len(numbers) > 1 else None)


def prediction_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """mean ± t_{n−1} · s · sqrt(1 + 1/n): where one more run falls; None for fewer than two values."""
    return _interval(values, level, 1)


def confidence_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """mean ± t_{n−1} · s · sqrt(1/n): where the mean of infinitely many runs lies; None for fewer than two values."""
    return _interval(values, level, 0)


def verdict(values: Sequence[float], published: Published, comparable: bool) -> Verdict:
    """Whether a published number lies inside the prediction interval of our values, one a seed.

    Args:
        comparable: the values were measured as published: with the whole training, on the same data.
    """
    interval = prediction_interval(values)
    if interval is None or len(values) < ENOUGH or not comparable:
        return "undecided"
    if _overlaps(interval, published):
        return "reproduced"
    return "published higher" if published.value > interval[1] else "published lower"


def difference(a: float, b: float) -> float:
    """b − a."""
    return b - a


def relative_change(a: float, b: float) -> float:
    """100 · (b − a) / a, in percent; raises ValueError for a = 0."""
    if a == 0:
        raise ValueError("a change from 0 has no relative size")
    return 100 * (b - a) / a


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²: the least-squares slope of y over x.

    Raises ValueError for fewer than two different xs, for different numbers of xs and ys, and for infinite values.
    """
    if len(set(xs)) < 2:
        raise ValueError("a slope needs at least two different xs")
    return linear_regression(_finite(xs), _finite(ys)).slope


def claim(estimates: Sequence[float], claimed: Published | Direction, comparable: bool) -> ClaimResult:
    """Whether the effect that a source claims is there.

    Args:
        estimates: of the effect, one a seed.
        claimed: its direction, or its size, signed, in the unit of the estimates.
        comparable: the estimates were measured as published: with the whole training, on the same data.

    Raises ValueError for no estimates, and for a claimed size of 0.
    """
    if isinstance(claimed, Published) and claimed.value == 0:
        raise ValueError(f"a claimed size of {claimed.text}: must be same")
    if not isinstance(claimed, Published) and claimed not in SIGNS:
        raise ValueError(f"{claimed!r} is neither a Published number nor one of {', '.join(SIGNS)}")
    spread, interval = describe(estimates), confidence_interval(estimates)
    half_width = None if interval is None else (interval[1] - interval[0]) / 2
    return ClaimResult(spread.n, spread.mean, half_width, _claim_verdict(estimates, claimed, comparable))


def _claim_verdict(estimates: Sequence[float], claimed: Published | Direction, comparable: bool) -> ClaimVerdict:
    confidence, prediction = confidence_interval(estimates), prediction_interval(estimates)
    if confidence is None or prediction is None or len(estimates) < ENOUGH or not comparable:
        return "undecided"
    sign = int(confidence[0] > ZERO) - int(confidence[1] < -ZERO)
    claimed_sign = math.copysign(1, claimed.value) if isinstance(claimed, Published) else SIGNS[claimed]
    if sign == 0:
        return "no difference shown" if claimed == "same" else "not reproduced"
    if sign != claimed_sign:
        return "contradicted"
    if not isinstance(claimed, Published) or _overlaps(prediction, claimed):
        return "confirmed"
    return "smaller than claimed" if abs(claimed.value) > abs(mean(estimates)) else "larger than claimed"


def _overlaps(interval: Interval, published: Published) -> bool:
    """Whether an interval and a printed number, with its rounding, have a point in common."""
    low, high = interval
    slack = published.resolution + SINGLE_PRECISION * max(abs(low), abs(high), abs(published.value))
    return low - slack <= published.value <= high + slack


def _interval(values: Sequence[float], level: float, more: int) -> Interval | None:
    """mean ± t_{n−1} · s · sqrt(more + 1/n)."""
    n = len(values)
    if n < 2:
        return None
    spread = describe(values)
    half_width = _quantile(level, n - 1) * (spread.deviation or 0) * math.sqrt(more + 1 / n)
    return spread.mean - half_width, spread.mean + half_width


@cache
def _quantile(level: float, degrees: int) -> float:
    """Student's two-sided quantile: |t| stays below it with probability `level`."""
    from scipy.special import stdtrit  # takes a quarter of a second to import

    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    return float(stdtrit(degrees, (1 + level) / 2))


def _finite(values: Sequence[float]) -> list[float]:
    """Floats, whose mean and deviation Python computes exactly: equal values have exactly no spread."""
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValueError("no values")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"not finite: {numbers}")
    return numbers

"""Verdicts on published numbers and on published claims: the formulas, each with its source.

Values y_ks, of cell k and seed s, are accuracies in percent, or natural logarithms of first epochs, of one data set in
one setting. Cell k has n_k of them, with the mean m_k.

Spread. One variance for all cells, with ν degrees of freedom (analysis of variance; Snedecor and Cochran 1989, ch. 12):

    s² = Σ_ks (y_ks − m_k)² / ν        ν = Σ_k (n_k − 1)

A cell whose range is more than 6 s of the other cells, more than the 99.5 % point of the studentized range (Tukey
1949), and more than 6 standard errors of the test set is unstable: it is left out of s and has no verdict. Seeds are
paired only where they matter: F test of y_ks = m_k + b_s against y_ks = m_k, p < 0.01.

Test set. N images that another experimenter would have drawn otherwise add the error of a binomial proportion, with the
exact limits of Clopper and Pearson 1934, so that 72 of 72 images are 95.0 to 100 %.

Intervals. Errors of several sources are combined by the squares of their limits' distances (Zou and Donner 2008), t the
two-sided quantile of Student's distribution with ν degrees of freedom (Hahn and Meeker 1991):

    one more run      m_k ± sqrt(t² s² (1 + 1/n_k) + 2 d_k²)                        d_k: to the limit of Clopper–Pearson
    Σ_k w_k m_k       its value ± sqrt(t² s² Σ_k w_k²/n_k + Σ_k w_k² d_k²)          a difference, a mean, a slope

A published number, with the interval for one more run and a margin δ:

    reproduced               the interval contains it, and half its width is at most δ
    compatible, imprecise    the interval contains it and is wider
    ours is higher, lower    the interval lies above it, below it

A claimed effect of size c, e = c/2, in the claimed direction; the first that is true:

    ceiling                  100 − baseline < c: so much can't be gained
    contradicted             the interval lies below 0
    refuted                  it lies below e and reaches 0 or beyond
    smaller than claimed     it lies between 0 and e
    supported                it lies above 0
    open                     otherwise

A claimed direction alone is contradicted, supported or open. A claim that two are the same, with a margin δ: "no
difference, shown" if the 90 % interval lies inside ± δ (two one-sided tests, Schuirmann 1987), contradicted if the 95 %
interval lies outside of it, else open. A claim that there is no decrease (no increase), with a margin δ: supported if
the 90 % interval lies above −δ (below δ), contradicted if the 95 % interval lies below 0 (above 0), else open. Verdicts
of all claims of a source are corrected by Holm 1979.

The runs of all networks are assumed to have one variance and a normal distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Literal

from capsexp.study.studies import Published

LEVEL = 0.95
ONE_SIDED = 2 * LEVEL - 1  # the two-sided interval whose one limit has the level
RANGE = 6  # pooled standard deviations
RANGE_LEVEL = 0.005
SEED_EFFECT = 0.01
LEAST_DEGREES = 2  # of freedom, of s: two values can agree by chance, and an s of theirs alone would decide too much
#: Published numbers went through single precision (99.71 is printed as 99.70999908), and ours may have.
SINGLE_PRECISION = 2.0**-23
ZERO = 1e-10  # what double precision leaves of a difference of 0 between numbers up to 10⁵

Interval = tuple[float, float]
Cells = Mapping[str, Mapping[int, float]]  # the values of each cell by seed
Direction = Literal["increase", "decrease"]
NumberVerdict = Literal["reproduced", "compatible, imprecise", "ours is higher", "ours is lower", "open", "unstable"]
ClaimVerdict = Literal[
    "supported",
    "no difference, shown",
    "smaller than claimed",
    "refuted",
    "contradicted",
    "ceiling",
    "open",
]


@dataclass(frozen=True)
class Spread:
    """A variance with its degrees of freedom."""

    variance: float
    degrees: int


@dataclass(frozen=True)
class Pool:
    """The spread over seeds of all stable cells of a data set and setting."""

    spread: Spread | None = None  # of a run about its cell's mean; None with less than LEAST_DEGREES
    paired: Spread | None = None  # of a run about its cell's mean and its seed's effect, where seeds have one
    unstable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sample:
    """An accuracy in percent of N test images that could have been others, and its weight in an effect."""

    accuracy: float
    images: int
    weight: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """An effect, or a future run: a value with the variance that seeds give it, and the test sets behind it."""

    value: float
    variance: float = 0.0
    degrees: float = math.inf
    samples: tuple[Sample, ...] = ()

    def interval(self, level: float = LEVEL) -> Interval:
        """The two-sided interval of this level."""
        below = above = (_quantile(level, self.degrees) ** 2 * self.variance) if self.variance else 0.0
        for sample in self.samples:
            low, high = clopper_pearson(sample.accuracy, sample.images, level)
            down, up = sample.weight * (sample.accuracy - low), sample.weight * (high - sample.accuracy)
            below += (down if sample.weight > 0 else up) ** 2
            above += (up if sample.weight > 0 else down) ** 2
        return self.value - math.sqrt(below), self.value + math.sqrt(above)

    def p_value(self, value: float) -> float:
        """The smallest α at which the interval of level 1 − α excludes a value, two-sided."""
        if abs(self.value - value) <= ZERO:
            return 1.0
        low, high = 1e-12, 1.0
        for _ in range(60):  # by halves of the logarithm
            middle = math.sqrt(low * high)
            bottom, top = self.interval(1 - middle)
            low, high = (low, middle) if not bottom <= value <= top else (middle, high)
        return high


def pool(cells: Cells, images: int | None = None, resolution: float = 0.0) -> Pool:
    """The spread over seeds, pooled over the stable cells.

    Args:
        images: of accuracies, the number of test images: one of them is the least that s can resolve.
        resolution: of other values, the least difference of two.

    Raises ValueError for values that aren't finite.
    """
    values = {name: _finite(list(of_cell.values())) for name, of_cell in cells.items()}
    step = 100 / images if images else resolution
    errors = {name: _sampling_error(mean(of_cell), images) for name, of_cell in values.items() if of_cell}
    stable = _stable({name: of_cell for name, of_cell in values.items() if len(of_cell) > 1}, errors, step)
    unstable = frozenset(name for name, of_cell in values.items() if len(of_cell) > 1 and name not in stable)
    spread = _spread([values[name] for name in stable], step)
    kept = {name: of_cell for name, of_cell in cells.items() if name not in unstable}
    residual, p = seed_effect(kept)
    return Pool(_enough(spread), _enough(residual) if p < SEED_EFFECT else None, unstable)


def seed_effect(cells: Cells) -> tuple[Spread | None, float]:
    """The spread about cell means and seed effects, y_ks = m_k + b_s, and the p-value of the F test that all b_s are 0.

    None and 1 where too few cells share seeds.
    """
    import numpy as np
    from scipy.special import fdtrc

    seeds = sorted({seed for of_cell in cells.values() for seed in of_cell})
    lines = [(k, seeds.index(seed), value) for k, one in enumerate(cells.values()) for seed, value in one.items()]
    if len(lines) < 2 or len(seeds) < 2:
        return None, 1.0
    design = np.zeros((len(lines), len(cells) + len(seeds)))
    for place, (cell, seed, _) in enumerate(lines):
        design[place, cell] = design[place, len(cells) + seed] = 1
    y = np.array([value for *_, value in lines])
    sums, degrees = [], []
    for matrix in (design[:, : len(cells)], design):
        fitted, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=None)
        sums.append(float(((y - matrix @ fitted) ** 2).sum()))
        degrees.append(len(y) - int(rank))
    if degrees[1] < 1 or degrees[0] == degrees[1] or sums[1] <= ZERO**2:
        return None, 1.0
    residual = Spread(sums[1] / degrees[1], degrees[1])
    ratio = (sums[0] - sums[1]) / (degrees[0] - degrees[1]) / residual.variance
    return residual, float(fdtrc(degrees[0] - degrees[1], degrees[1], max(ratio, 0.0)))


def one_more_run(values: Sequence[float], spread: Spread | None, images: int | None = None) -> Estimate | None:
    """Where one more run falls: its interval is the prediction interval. None without a spread.

    Args:
        images: the number of test images, where another experimenter's would be others.
    """
    if spread is None:
        return None
    value, n = mean(_finite(values)), len(values)
    samples = (Sample(value, images),) * 2 if images else ()
    return Estimate(value, spread.variance * (1 + 1 / n), spread.degrees, samples)


def effect(
    cells: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    spread: Spread | None,
    images: int | None = None,
) -> Estimate | None:
    """Σ_k w_k m_k over the cells' values; None without a spread. `images` as in `one_more_run`."""
    means = {name: mean(_finite(cells[name])) for name in weights}
    if spread is None:
        return None
    variance = spread.variance * sum(weight**2 / len(cells[name]) for name, weight in weights.items())
    samples = [Sample(means[name], images, weight) for name, weight in weights.items() if images and weight]
    value = sum(weight * means[name] for name, weight in weights.items())
    return Estimate(value, variance, spread.degrees, tuple(samples))


def slope_weights(xs: Sequence[float]) -> list[float]:
    """w_k = (x_k − x̄) / Σ (x − x̄)²: Σ w_k y_k is the least-squares slope.

    Raises ValueError without two different xs.
    """
    if len(set(xs)) < 2:
        raise ValueError("a slope needs at least two different xs")
    centre = mean(xs)
    total = sum((x - centre) ** 2 for x in xs)
    return [(x - centre) / total for x in xs]


def judge_number(interval: Interval, published: Published, precise: bool) -> NumberVerdict:
    """The verdict on a published number, rounding included; `precise`: half the interval is within the margin."""
    low, high = interval
    slack = published.resolution + SINGLE_PRECISION * max(abs(low), abs(high), abs(published.value))
    if published.value > high + slack:
        return "ours is lower"
    if published.value < low - slack:
        return "ours is higher"
    return "reproduced" if precise else "compatible, imprecise"


def judge_size(
    estimate: Estimate, size: float, *, room: float = math.inf, interest: float | None = None
) -> tuple[ClaimVerdict, float]:
    """The verdict on a claimed effect of a size, and the p-value of the test that decides it.

    Args:
        room: 100 − baseline, for accuracies.
        interest: the smallest effect that is of interest, e, with the sign of the size; half of it by default.

    Raises ValueError for a size of 0.
    """
    if size == 0:
        raise ValueError("a claimed size of 0: must be same")
    e = size / 2 if interest is None else interest
    low, high = _towards(estimate.interval(), size)
    if room < size - ZERO:
        return "ceiling", estimate.p_value(0)
    if high < -ZERO:
        return "contradicted", estimate.p_value(0)
    if high < abs(e) - ZERO:
        if low > ZERO:
            return "smaller than claimed", max(estimate.p_value(0), estimate.p_value(e))  # says both
        return "refuted", estimate.p_value(e)
    return ("supported" if low > ZERO else "open"), estimate.p_value(0)


def judge_direction(estimate: Estimate, direction: Direction) -> tuple[ClaimVerdict, float]:
    """The verdict on a claimed increase or decrease, and the p-value of the test that the effect is 0."""
    low, high = _towards(estimate.interval(), 1 if direction == "increase" else -1)
    return "supported" if low > ZERO else "contradicted" if high < -ZERO else "open", estimate.p_value(0)


def judge_sameness(estimate: Estimate, margin: float) -> tuple[ClaimVerdict, float]:
    """The verdict on the claim that an effect is 0, and the p-value of the test that decides it.

    Raises ValueError for a margin that isn't positive.
    """
    _check_margin(margin)
    low, high = estimate.interval(ONE_SIDED)
    halves = [estimate.p_value(bound) / 2 for bound in (-margin, margin)]
    if -margin <= low and high <= margin:
        return "no difference, shown", max(halves)
    low, high = estimate.interval()
    if low > margin or high < -margin:
        return "contradicted", 2 * max(halves)  # of the nearer bound
    return "open", max(halves) if abs(estimate.value) <= margin else 1 - max(halves)


def judge_absence(estimate: Estimate, excluded: Direction, margin: float) -> tuple[ClaimVerdict, float]:
    """The verdict on the claim that there is no increase, or no decrease, and the p-value of the test that decides it.

    Raises ValueError for a margin that isn't positive.
    """
    _check_margin(margin)
    sign = 1 if excluded == "increase" else -1
    if _towards(estimate.interval(ONE_SIDED), sign)[1] < margin:
        return "supported", estimate.p_value(sign * margin) / 2
    contradicted = _towards(estimate.interval(), sign)[0] > ZERO
    return "contradicted" if contradicted else "open", estimate.p_value(0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: p_(i) times the number of hypotheses from the i-th smallest on, monotone, at most 1."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def clopper_pearson(accuracy: float, images: int, level: float = LEVEL) -> Interval:
    """Exact limits, in percent, of a proportion of N images: quantiles of the beta distribution.

    A mean over seeds need not be a whole number of images. Raises ValueError for accuracies outside 0 to 100.
    """
    from scipy.special import betaincinv

    if not (0 <= accuracy <= 100 + ZERO and images > 0):
        raise ValueError(f"{accuracy} % of {images} images")
    right = min(accuracy * images / 100, images)
    wrong, tail = images - right, (1 - level) / 2
    low = betaincinv(right, wrong + 1, tail) if right > ZERO else 0.0
    high = betaincinv(right + 1, wrong, 1 - tail) if wrong > ZERO else 1.0
    return 100 * float(low), 100 * float(high)


def _check_margin(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"margin {margin} is not positive")


def _stable(values: Mapping[str, Sequence[float]], errors: Mapping[str, float], step: float) -> list[str]:
    """The cells with several values that aren't unstable.

    The half of smallest variance is, so that several unstable cells don't hide each other; the others are added in the
    order of their variance, if they are within the limit that those before them give. In that order their sums are the
    same, bit for bit, in every process.
    """
    ranked = sorted(values, key=lambda name: _sum_of_squares(values[name]) / (len(values[name]) - 1))
    half = (len(ranked) + 1) // 2
    stable = ranked[:half]
    for name in ranked[half:]:
        if _within(values[name], [values[other] for other in stable], errors[name], step):
            stable.append(name)
    return stable


def _within(values: Sequence[float], others: Sequence[Sequence[float]], error: float, step: float) -> bool:
    """Whether the range of a cell's values is within the limit that other cells give."""
    spread = _spread(others, step)
    width = max(values) - min(values)
    if spread is None or width <= RANGE * max(math.sqrt(spread.variance), error) or not spread.variance:
        return True
    from scipy.stats import studentized_range  # takes a second to import

    ratio = width / math.sqrt(spread.variance)
    return bool(studentized_range.sf(ratio, len(values), spread.degrees) > RANGE_LEVEL)


def _spread(cells: Sequence[Sequence[float]], step: float) -> Spread | None:
    """s² and ν, s² at least that of rounding to the step; None for cells of single values."""
    degrees = sum(len(values) - 1 for values in cells)
    variance = sum(map(_sum_of_squares, cells)) / degrees if degrees else 0.0
    return Spread(max(variance, step**2 / 12), degrees) if degrees else None


def _enough(spread: Spread | None) -> Spread | None:
    """A spread of at least LEAST_DEGREES, or None."""
    return spread if spread and spread.degrees >= LEAST_DEGREES else None


def _sum_of_squares(values: Sequence[float]) -> float:
    centre = mean(values)
    return sum((value - centre) ** 2 for value in values)


def _sampling_error(accuracy: float, images: int | None) -> float:
    """The standard error of an accuracy in percent of N images."""
    return math.sqrt(accuracy * (100 - accuracy) / images) if images and 0 <= accuracy <= 100 else 0.0


def _towards(interval: Interval, sign: float) -> Interval:
    """An interval of an effect, seen in the direction of the sign."""
    low, high = interval
    return (low, high) if sign > 0 else (-high, -low)


@cache
def _quantile(level: float, degrees: float) -> float:
    """Student's two-sided quantile: |t| stays below it with probability `level`."""
    from scipy.special import ndtri, stdtrit  # takes a quarter of a second to import

    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    return float(ndtri((1 + level) / 2) if math.isinf(degrees) else stdtrit(degrees, (1 + level) / 2))


def _finite(values: Sequence[float]) -> list[float]:
    """Floats, whose mean Python computes exactly: equal values have exactly no spread."""
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValueError("no values")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"not finite: {numbers}")
    return numbers

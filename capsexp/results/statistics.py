"""Verdicts on published numbers and on published claims: the formulas, each with its source.

Values y_ks, of network k and seed s, are accuracies in percent, or natural logarithms of first epochs, of one data set
in one setting. Network k has n_k of them, with the mean m_k.

Spread. Networks of one data set and setting spread alike, but not equally (empirical Bayes; Smyth 2004):

    v_k   = Σ_s (y_ks − m_k)² / (n_k − 1)                      its own variance, at least the floor
    s_0²  = Σ_j (n_j − 1) v_j / ν,   ν = Σ_j (n_j − 1)         of the other networks, j ≠ k
    s_k²  = (d s_0² + (n_k − 1) v_k) / (d + n_k − 1),   1/d = 1/D + 1/ν,   D = 4

with d + n_k − 1 degrees of freedom. D and the floor are declared here: the floor of an accuracy is a quarter of the
variance of a binomial proportion. (The standard deviations after whole trainings here, pooled by data set, are 0.2 to
1.2 of that proportion's standard error; two seeds can agree by chance.)

An effect is Σ_k w_k m_k: a difference, a mean of differences, a slope. Its variance is Σ_k w_k² s_k²/n_k, its degrees
of freedom are Welch's and Satterthwaite's 1946, at most those of the best known s_k. Interval and p-value are those of
Student's distribution. Where another experimenter's test images would be others, their variance is added: for networks
of which each image is known, with d_i = Σ_k w_k · (share of the seeds of k that are right on image i), and N images,

    (Σ_i d_i² + Σ_k w_k²/2 − (Σ_i d_i)² / (N + 2)) / (N + 2)²           paired (Agresti and Min 2005)
    Σ_k w_k² p_k (1 − p_k) / (N + 2),   p_k = (x_k + 1) / (N + 2)       else (Agresti and Caffo 2000)

A spread itself, where one is claimed, is compared as ln s of each network's values, of which the variance is
ψ'((n − 1) / 2) / 4 (Bartlett and Kendall 1946); its interval is that of the normal distribution.

Which verdict an interval gives is in docs/verdicts.md. A printed effect, or number, is one run per network (r runs, if
the source says so), of the same spread: the variance is Σ_k w_k² s_k² (1/n_k + 1/r), and where test images are others,
theirs count twice (a prediction interval; Hahn and Meeker 1991). That two are the same, within a margin, are two
one-sided tests (Schuirmann 1987). "None above x" is a test of its own: where the truth is 0, only "supported" and
"contradicted" are wrong, where it is x or more only "none above x", so that the two need no correction for each other.

The p-values of all claims of a source with the same evidence are corrected by Holm 1979. A claim that is "none above x"
stays among those that the others are corrected for: that there is no effect isn't rejected of it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from statistics import mean, stdev
from typing import Literal, get_args

from capsexp.results.measures import MEASURES
from capsexp.results.runs import Run

LEVEL = 0.95
ALPHA = 1 - LEVEL
ONE_SIDED = 2 * LEVEL - 1  # the two-sided interval whose one limit has the level
PRIOR = 4.0  # D: degrees of freedom by which the networks of a data set share one spread
FLOOR = 0.5  # of a seed's standard deviation, in standard errors of a binomial proportion
POWER = 0.8
MAX_SEEDS = 100
#: By how many standard deviations the better of two normal values is expected higher than one.
BETTER_OF_TWO = 1 / math.sqrt(math.pi)
#: Published numbers went through single precision (99.71 is printed as 99.70999908), and ours may have.
SINGLE_PRECISION = 2.0**-23
ZERO = 1e-10  # what double precision leaves of a difference of 0 between numbers up to 10⁵

PoolKey = tuple[str, ...]
Interval = tuple[float, float]
Direction = Literal["increase", "decrease"]
Verdict = Literal["supported", "no difference, shown", "contradicted", "none above", "ceiling", "open"]
#: What our prediction interval says of a printed number: it contains it, lies below or above it.
Agreement = Literal["compatible", "lower", "higher"]


@dataclass(frozen=True)
class Spread:
    """A variance with its degrees of freedom."""

    variance: float
    degrees: float


@dataclass(frozen=True)
class Term:
    """The values of a network, how they spread, and their weight in an effect."""

    weight: float
    values: Sequence[float]
    spread: Spread


@dataclass(frozen=True)
class Estimate:
    """A value and its variance, the degrees of freedom of that variance."""

    value: float
    variance: float
    degrees: float

    def interval(self, level: float = LEVEL) -> Interval:
        """The two-sided interval of this level."""
        half = _quantile(level, self.degrees) * math.sqrt(self.variance) if self.variance else 0.0
        return self.value - half, self.value + half

    def p_value(self, value: float) -> float:
        """The smallest α at which the interval of level 1 − α excludes a value, two-sided."""
        from scipy.special import stdtr

        if abs(self.value - value) <= ZERO:
            return 1.0
        return 2 * float(stdtr(self.degrees, -abs(self.value - value) / math.sqrt(self.variance or ZERO**2)))


def key_of(run: Run) -> PoolKey:
    """Key of a pool: the data set and its split, training, files, precision and protocol."""
    return (run.dataset, *run.trained[1:], run.protocol)


class Pools:
    """The pools of all runs, whatever study they belong to, each calculated once.

    Accuracies are pooled in percent, first epochs as natural logarithms, costs per machine, as logarithms where they
    are compared by ratio. A network is what was trained; a seed counts once. Runs that didn't learn, far from the
    others, are in none.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: dict[PoolKey, list[Run]] = {}
        learned = [run for run in runs if run.status == "finished" and run.learned is not False]
        finished = sorted(learned, key=lambda run: (run.started, run.key))
        once = {(run.trained, run.protocol, run.seed): run for run in reversed(finished)}  # the first, as in tables
        for run in once.values():
            self._runs.setdefault(key_of(run), []).append(run)
        self._spreads: dict[tuple[PoolKey, str, str, bool], dict[str, Spread]] = {}

    def spread(
        self, runs: Sequence[Run], measure: str, values: Sequence[float], machine: str = "", ratio: bool = False
    ) -> Spread | None:
        """The spread of a row's runs, with these values on the scale of `Measure.scaled`; None if nothing is known.

        Args:
            machine: of costs; see `Run.machine`.
            ratio: of logarithms, as those of first epochs always are.
        """
        key, networks = key_of(runs[0]), {run.trained.condition for run in runs}
        pool = self._pool(key, measure, machine, ratio)
        others = [spread for network, spread in pool.items() if network not in networks]
        return moderated(own_spread(values, self._least(key, measure, values)), others)

    def _pool(self, key: PoolKey, measure: str, machine: str, ratio: bool) -> dict[str, Spread]:
        """v_k and n_k − 1 of each network, by condition, without lower bounds of epochs."""
        asked = key, measure, machine, ratio
        if asked not in self._spreads:
            values: dict[str, list[float]] = {}
            for run in self._runs.get(key, ()):
                bound = measure == "first_epoch" and run.censored
                if measure in run.measures and not bound and run.machine(measure) == machine:
                    scaled = MEASURES[measure].scaled(run.measures[measure], ratio)
                    values.setdefault(run.trained.condition, []).append(scaled)
            known = {name: own_spread(own, self._least(key, measure, own)) for name, own in values.items()}
            self._spreads[asked] = {name: spread for name, spread in known.items() if spread}
        return self._spreads[asked]

    def _least(self, key: PoolKey, measure: str, values: Sequence[float]) -> float:
        """The least variance of scaled values: of accuracies by the test images, of epochs that of rounding to one."""
        images = self._runs[key][0].images if key in self._runs else None
        if MEASURES[measure].scale == "percent" and images:
            return least_variance(mean(values), images)
        return math.exp(-2 * mean(values)) / 12 if MEASURES[measure].scale == "epochs" else 0.0


def own_spread(values: Sequence[float], floor: float) -> Spread | None:
    """v_k and n_k − 1; None for a single value, and for equal ones without a floor: rounding can make them equal."""
    if len(values) < 2:
        return None
    centre, degrees = mean(values), len(values) - 1
    variance = max(sum((value - centre) ** 2 for value in values) / degrees, floor)
    return Spread(variance, degrees) if variance else None


def moderated(own: Spread | None, others: Iterable[Spread]) -> Spread | None:
    """s_k² of a network's own spread and those of the others; None if nothing is known of it."""
    shared = _mean_spread(others)
    limited = shared and replace(shared, degrees=1 / (1 / PRIOR + 1 / shared.degrees))
    return _mean_spread(filter(None, (own, limited)))


def _mean_spread(spreads: Iterable[Spread]) -> Spread | None:
    """The mean by degrees of freedom; None without any."""
    known = [*spreads]
    degrees = sum(spread.degrees for spread in known)
    return Spread(sum(spread.degrees * spread.variance for spread in known) / degrees, degrees) if known else None


def least_variance(accuracy: float, images: int) -> float:
    """The floor of an accuracy's variance over seeds, in percent²: at least that of rounding to whole images."""
    return max(FLOOR**2 * accuracy * (100 - accuracy) / images, (100 / images) ** 2 / 12)


def effect(terms: Sequence[Term], runs: int | None = None, sampling: float = 0.0) -> Estimate:
    """Σ_k w_k m_k.

    Args:
        runs: of a printed effect, a network: its variance is added.
        sampling: the variance that the test images add.
    """
    value = sum(term.weight * mean(term.values) for term in terms)
    printed = 1 / runs if runs else 0.0
    parts = [(t.weight**2 * t.spread.variance * (1 / len(t.values) + printed), t.spread.degrees) for t in terms]
    seeds = sum(part for part, _ in parts)
    if not seeds:
        return Estimate(value, sampling, math.inf)
    inverse = sum(part**2 / degrees for part, degrees in parts)
    degrees = min(seeds**2 / inverse if inverse else math.inf, max(degrees for _, degrees in parts))
    return Estimate(value, seeds + sampling, degrees * ((seeds + sampling) / seeds) ** 2)


def paired_images(differences: Sequence[float], weights: Sequence[float]) -> float:
    """The variance, in percent², that N test images give to an effect on them, from each image's part in it."""
    n = len(differences) + 2
    squares = sum(one**2 for one in differences) + sum(weight**2 for weight in weights) / 2
    return 100**2 * (squares - sum(differences) ** 2 / n) / n**2


def independent_images(terms: Sequence[Term], images: int) -> float:
    """The variance, in percent², that N test images a network give to an effect."""
    right = [(mean(term.values) * images / 100 + 1) / (images + 2) for term in terms]
    return sum(100**2 * t.weight**2 * p * (1 - p) / (images + 2) for t, p in zip(terms, right, strict=True))


def log_spread(values: Sequence[float]) -> float:
    """ln s of a network's values; NaN of one value or of equal ones."""
    return math.log(stdev(values) or math.nan) if len(values) > 1 else math.nan


def spread_term(weight: float, values: Sequence[float], seeds: int) -> Term:
    """A network's ln s in an effect, with its variance by the number of seeds."""
    from scipy.special import polygamma

    return Term(weight, values, Spread(float(polygamma(1, (seeds - 1) / 2)) / 4, math.inf))


def slope_weights(xs: Sequence[float]) -> list[float]:
    """w_k = (x_k − x̄) / Σ (x − x̄)²: Σ w_k y_k is the least-squares slope."""
    centre = mean(xs)
    total = sum((x - centre) ** 2 for x in xs)
    return [(x - centre) / total for x in xs]


def judge_printed(predicted: Estimate, printed: Interval) -> tuple[Agreement, float]:
    """How ours compares with a printed number, which was rounded to this interval; and the p-value of their difference.

    Args:
        predicted: with the variance of a printed number.
    """
    low, high = predicted.interval()
    slack = SINGLE_PRECISION * max(map(abs, (low, high, *printed)))
    nearest = min(max(predicted.value, printed[0]), printed[1])
    p_value = predicted.p_value(nearest)
    if high < printed[0] - slack:
        return "lower", p_value
    return ("higher" if low > printed[1] + slack else "compatible"), p_value


def judge_direction(
    estimate: Estimate, direction: Direction, *, ceiling: bool = False, least: float | None = None
) -> tuple[Verdict, float]:
    """Whether there is the claimed increase or decrease, and the p-value of the test that decides it.

    Args:
        ceiling: the baseline leaves no room for it.
        least: the smallest effect that matters; None where none is declared.
    """
    towards = _towards(estimate, direction)
    low, high = towards.interval()
    if low > ZERO or high < -ZERO or ceiling:
        return "supported" if low > ZERO else "contradicted" if high < -ZERO else "ceiling", estimate.p_value(0)
    if least is not None and towards.interval(ONE_SIDED)[1] < least:
        return "none above", towards.p_value(least) / 2
    return "open", estimate.p_value(0)


def judge_absence(estimate: Estimate, excluded: Direction, margin: float) -> tuple[Verdict, float]:
    """Whether there is no increase, or no decrease, and the p-value: one-sided, but for the contrary."""
    towards = _towards(estimate, excluded)
    half = towards.p_value(margin) / 2
    if towards.interval(ONE_SIDED)[1] <= margin:
        return "supported", half
    if towards.interval()[0] > margin:
        return "contradicted", 2 * half
    return "open", half if towards.value <= margin else 1 - half


def judge_sameness(estimate: Estimate, margin: float) -> tuple[Verdict, float]:
    """Whether there is neither an increase nor a decrease, and the p-value of the test that decides it, the greater."""
    both = [judge_absence(estimate, excluded, margin) for excluded in get_args(Direction)]
    answer, p_value = max(both, key=lambda one: (one[1], one[0] != "supported"))
    return "no difference, shown" if answer == "supported" else answer, p_value


def seeds_to_decide(size: float, terms: Sequence[Term], sampling: float, level: float) -> int | None:
    """The seeds per network that find an effect of this size with a probability of 80 %; 0 where no number does, since
    the test images are too few; None for over 100.

    Args:
        sampling: the variance that the test images add, however many the seeds.
        level: α, two-sided.
    """
    if (_quantile(1 - level, math.inf) + _quantile(2 * POWER - 1, math.inf)) * math.sqrt(sampling) > abs(size):
        return 0
    for seeds in range(2, MAX_SEEDS + 1):
        grown = [
            replace(term, values=[0.0] * seeds, spread=replace(term.spread, degrees=term.spread.degrees + more))
            for term in terms
            for more in [max(0, seeds - len(term.values))]
        ]
        future = effect(grown, sampling=sampling)
        both = _quantile(1 - level, future.degrees) + _quantile(2 * POWER - 1, future.degrees)
        if both * math.sqrt(future.variance) <= abs(size):
            return seeds
    return None


def holm(p_values: Mapping[object, float], staying: Collection[object] = ()) -> dict[object, float]:
    """Adjusted p-values: p_(i) times the number of hypotheses from the i-th smallest on, monotone, at most 1.

    Args:
        staying: those that are counted on, since they reject another hypothesis than that there is no effect.
    """
    ranked = sorted(p_values, key=p_values.__getitem__)
    before = accumulate((key not in staying for key in ranked), initial=0)
    products = (min(1.0, (len(ranked) - passed) * p_values[key]) for key, passed in zip(ranked, before, strict=False))
    return dict(zip(ranked, accumulate(products, max), strict=True))


def _towards(estimate: Estimate, direction: Direction) -> Estimate:
    """An effect, positive in this direction."""
    return estimate if direction == "increase" else replace(estimate, value=-estimate.value)


@cache
def _quantile(level: float, degrees: float) -> float:
    """Student's two-sided quantile: |t| stays below it with probability `level`."""
    from scipy.special import ndtri, stdtrit  # takes a quarter of a second to import

    return float(ndtri((1 + level) / 2) if math.isinf(degrees) else stdtrit(degrees, (1 + level) / 2))

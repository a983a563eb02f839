"""Intervals and verdicts, against arithmetic by hand, against scipy and against simulated runs.

Three values a unit apart have s = 1 with 2 degrees of freedom. With t(0.975, 2) = 4.302653 one more run falls into
mean ± 4.302653 · sqrt(4/3) = mean ± 4.968276, and the difference of two such cells into ± 4.302653 · sqrt(2/3).
"""

import math
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from capsexp.results.statistics import (
    Estimate,
    Sample,
    Spread,
    clopper_pearson,
    effect,
    holm,
    judge_absence,
    judge_direction,
    judge_number,
    judge_sameness,
    judge_size,
    one_more_run,
    pool,
    seed_effect,
    slope_weights,
)
from capsexp.study.studies import Published, published_number

UNIT = Spread(1.0, 2)
NAN, INF = float("nan"), float("inf")


def cells(*values: list[float]) -> dict[str, dict[int, float]]:
    """Cells named 0, 1, … with seeds 0, 1, …"""
    return {str(place): dict(enumerate(of_cell)) for place, of_cell in enumerate(values)}


def exact(value: float, half: float = 1.0) -> Estimate:
    """An effect whose 95 % interval is value ± half."""
    return Estimate(value, (half / stats.norm.ppf(0.975)) ** 2)


def printed(text: str) -> Published:
    found = published_number(text)
    assert found is not None
    return found


# --- the spread


def test_the_spread_is_pooled_by_hand() -> None:
    """Sums of squares 2, 0.5 and 0, with 2, 1 and 0 degrees of freedom."""
    found = pool(cells([1, 2, 3], [10, 11], [50])).spread
    assert found == Spread(2.5 / 3, 3)


def test_the_spread_is_that_of_an_analysis_of_variance() -> None:
    groups = [np.random.default_rng(seed).normal(seed, 1, 4).tolist() for seed in range(5)]
    spread = pool(cells(*groups)).spread
    assert spread is not None
    between = 4 * np.var([np.mean(group) for group in groups], ddof=1)
    assert between / spread.variance == pytest.approx(stats.f_oneway(*groups).statistic)


def test_single_runs_have_no_spread() -> None:
    assert pool(cells([1], [2])).spread is None
    assert one_more_run([1], None) is None
    assert effect({"a": [1], "b": [2]}, {"a": -1, "b": 1}, None) is None


def test_equal_seeds_are_resolved_to_one_image() -> None:
    """All of 72 images in all seeds: s is that of rounding to 100/72 points, not 0."""
    spread = pool(cells([100, 100, 100]), images=72).spread
    assert spread is not None
    assert spread.variance == pytest.approx((100 / 72) ** 2 / 12)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_values_are_finite(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        pool(cells([1, value]))


def test_a_collapsed_seed_makes_its_cell_unstable() -> None:
    """jiao's CapsNet5: it stays out of the spread, even where only one other cell has several seeds."""
    steady = [[97.59, 97.68, 97.61], [97.78], [97.73]]
    found = pool(cells(*steady, [96.21, 97.01, 17.95]), images=10_000)
    assert found.unstable == {"3"}
    assert found.spread == pool(cells(*steady), images=10_000).spread is not None
    several = pool(cells([80, 80.3, 80.1], [81, 81.2, 81.1], [79, 79.2, 79.3], [80, 10, 80], [81, 80, 10]))
    assert several.unstable == {"3", "4"}  # they don't hide each other


def test_ordinary_cells_are_stable() -> None:
    draw = np.random.default_rng(0)
    found = [pool(cells(*draw.normal(80, 0.3, (5, 3)).tolist())).unstable for _ in range(300)]
    assert sum(map(len, found)) <= 10  # of 1,500
    assert not pool(cells([99.3, 100, 98.6], [100, 100, 100]), images=144).unstable  # two images
    wide = cells(*[[90, 91]] * 10, [90, 84, 90])
    assert not pool(wide, images=100).unstable  # two standard errors of the test set
    assert pool(wide, images=10_000).unstable == {"10"}


@pytest.mark.parametrize(("width", "unstable"), [(5.0, set()), (6.5, {"60"})])
def test_a_cell_is_unstable_beyond_six_standard_deviations(width: float, unstable: set[str]) -> None:
    """Of 60 cells of two values a unit apart, s is sqrt(1/2)."""
    s = math.sqrt(0.5)
    assert pool(cells(*[[80, 81]] * 60, [80, 80 + width * s / 2, 80 + width * s])).unstable == unstable


def test_seeds_are_paired_where_they_matter() -> None:
    shifts = np.array([-2.0, 0.0, 1.0, 3.0])
    noise = np.random.default_rng(1).normal(0, 0.1, (4, 4))
    steady = [80 + k + shifts + noise[k] for k in range(4)]
    paired = pool(cells(*steady)).paired
    assert pool(cells(*steady, [80, 10, 80, 80])).paired == paired  # the unstable cell says nothing of seeds
    assert paired is not None
    assert paired.degrees == 9  # (4 − 1) · (4 − 1)
    assert paired.variance < 0.05
    assert pool(cells(*np.random.default_rng(2).normal(80, 1, (4, 4)))).paired is None


def test_the_seed_effect_is_that_of_two_way_analysis_of_variance() -> None:
    values = np.random.default_rng(3).normal(size=(3, 4))
    rows, columns = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    residual = ((values - rows - columns + values.mean()) ** 2).sum() / 6
    ratio = 3 * ((columns - values.mean()) ** 2).sum() / 3 / residual
    spread, p = seed_effect(cells(*values))
    assert spread is not None
    assert (spread.variance, spread.degrees) == (pytest.approx(residual), 6)
    assert p == pytest.approx(stats.f.sf(ratio, 3, 6))


# --- intervals


def test_intervals_by_hand() -> None:
    future = one_more_run([1, 2, 3], UNIT)
    assert future is not None
    assert future.interval() == pytest.approx((2 - 4.968276, 2 + 4.968276), abs=1e-6)
    difference = effect({"a": [1, 2, 3], "b": [4, 5, 6]}, {"a": -1, "b": 1}, UNIT)
    assert difference is not None
    half = 4.302653 * math.sqrt(2 / 3)
    assert difference.interval() == pytest.approx((3 - half, 3 + half), abs=1e-6)


def test_a_difference_is_students() -> None:
    draw = np.random.default_rng(4)
    for _ in range(20):
        a, b = draw.normal(0, 1, int(draw.integers(2, 6))).tolist(), draw.normal(1, 1, 4).tolist()
        made = pool(cells(a, b))
        if made.unstable:
            continue
        found = effect({"0": a, "1": b}, {"0": -1, "1": 1}, made.spread)
        assert found is not None
        theirs = stats.ttest_ind(b, a)
        assert found.p_value(0) == pytest.approx(theirs.pvalue, rel=1e-4)
        assert found.interval() == pytest.approx(tuple(theirs.confidence_interval()), abs=1e-9)


def test_a_slope_is_least_squares() -> None:
    weights = slope_weights([1, 2, 3])
    assert weights == pytest.approx([-0.5, 0, 0.5])
    ys = np.random.default_rng(5).normal(size=6).tolist()
    xs = [1, 2, 4, 5, 7, 8]
    total = sum(weight * y for weight, y in zip(slope_weights(xs), ys, strict=True))
    assert total == pytest.approx(stats.linregress(xs, ys).slope)
    with pytest.raises(ValueError, match="two different"):
        slope_weights([2, 2])


@pytest.mark.parametrize(("right", "images"), [(72, 72), (0, 72), (71, 72), (9_966, 10_000), (790, 1_952)])
def test_limits_of_a_proportion_are_scipys(right: int, images: int) -> None:
    theirs = stats.binomtest(right, images).proportion_ci(method="exact")
    assert clopper_pearson(100 * right / images, images) == pytest.approx((100 * theirs.low, 100 * theirs.high))


def test_72_of_72_images_are_95_to_100_percent() -> None:
    assert clopper_pearson(100, 72) == (pytest.approx(95.0, abs=0.01), 100.0)
    with pytest.raises(ValueError, match="101 %"):
        clopper_pearson(101, 72)


def test_the_test_sets_error_is_added_by_squares() -> None:
    """Both sides' test sets, and the seeds: lengths to the limits 3 and 4 give 5."""
    low, high = clopper_pearson(90, 200)
    alone = Estimate(0.0, 0.0, math.inf, (Sample(90, 200),))
    assert alone.interval() == pytest.approx((low - 90, high - 90))
    found = effect({"a": [90.0], "b": [90.0]}, {"a": -1, "b": 1}, Spread(0.0, 1), images=200)
    assert found is not None
    half = math.hypot(90 - low, high - 90)
    assert found.interval() == pytest.approx((-half, half))
    mean_of_pairs = effect({"a": [90.0], "b": [90.0]}, {"a": -0.5, "b": 0.5}, Spread(0.0, 1), images=200)
    assert mean_of_pairs is not None
    assert mean_of_pairs.interval() == pytest.approx((-half / 2, half / 2))
    future = one_more_run([90.0], Spread(0.0, 1), images=200)  # on another test set than the first
    assert future is not None
    assert future.interval() == pytest.approx((90 - math.sqrt(2) * (90 - low), 90 + math.sqrt(2) * (high - 90)))
    with_seeds = Estimate(0.0, (4 / stats.norm.ppf(0.975)) ** 2, math.inf, (Sample(90, 200),))
    assert with_seeds.interval() == pytest.approx((-math.hypot(4, 90 - low), math.hypot(4, high - 90)))


# --- verdicts on numbers


@pytest.mark.parametrize(
    ("published", "precise", "expected"),
    [
        ("2.0", True, "reproduced"),
        ("2.0", False, "compatible, imprecise"),
        ("3.04", True, "reproduced"),  # from 3.035, the interval ends at 3.04
        ("3.05", True, "ours is lower"),
        ("3.1", True, "ours is lower"),
        ("3", True, "reproduced"),
        ("4", True, "ours is lower"),
        ("0.96", True, "reproduced"),
        ("0.95", True, "ours is higher"),
    ],
)
def test_verdicts_at_the_ends_of_the_interval(published: str, precise: bool, expected: str) -> None:
    assert judge_number((0.96, 3.04), printed(published), precise) == expected


def test_published_numbers_went_through_single_precision() -> None:
    assert judge_number((99.71, 99.71), printed("99.70999908"), True) == "reproduced"


def test_72_of_72_images_do_not_exclude_98_38() -> None:
    """Three seeds with all images right: the interval is the test set's."""
    spread = pool(cells([100, 100, 100]), images=72).spread
    future = one_more_run([100, 100, 100], spread, images=72)
    assert future is not None
    assert judge_number(future.interval(), printed("98.38"), precise=False) == "compatible, imprecise"


# --- verdicts on claims


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [
        (-1.5, 1.0, "contradicted"),
        (-0.5, 1.0, "refuted"),  # −1.5 to 0.5, below 1
        (0.0, 0.9, "refuted"),
        (0.0, 1.1, "open"),  # reaches 1, half of the claimed 2
        (0.5, 0.4, "smaller than claimed"),
        (1.0, 0.9, "supported"),
        (3.0, 0.5, "supported"),
        (0.9, 1.0, "open"),
    ],
)
def test_a_size_is_judged_against_half_of_it(value: float, half: float, expected: str) -> None:
    assert judge_size(exact(value, half), 2)[0] == expected
    assert judge_size(exact(-value, half), -2)[0] == expected


def test_smaller_than_claimed_says_two_things_and_has_the_p_value_of_the_weaker() -> None:
    """Of a claimed 10: 1.05 ± 1 is hardly above 0, 4 ± 0.95 hardly below 5."""
    for estimate, bound in ((exact(1.05), 0), (exact(4.0, 0.95), 5)):
        verdict, p = judge_size(estimate, 10)
        assert (verdict, p) == ("smaller than claimed", estimate.p_value(bound))
        assert 0.01 < p < 0.05


def test_noise_around_a_claimed_gain_does_not_refute_it() -> None:
    """0.00 ± 1.73 contains the claimed +1.16; where nothing can be gained, the claim is at the ceiling."""
    assert judge_size(exact(0.0, 1.73), 1.16)[0] == "open"
    assert judge_size(exact(0.0, 1.73), 1.16, room=0.46)[0] == "ceiling"
    assert judge_size(exact(0.0, 1.73), 1.16, room=1.15)[0] == "ceiling"
    assert judge_size(exact(0.0, 1.73), 1.16, room=1.16)[0] == "open"
    assert judge_size(exact(-1.0, 0.5), -1.16, room=0.46)[0] == "supported"  # a loss has no ceiling


def test_an_exact_effect_is_judged_against_its_printed_size() -> None:
    assert judge_size(Estimate(math.log(4.31)), math.log(4), interest=math.log(3.5))[0] == "supported"
    assert judge_size(Estimate(math.log(3.4)), math.log(4), interest=math.log(3.5))[0] == "smaller than claimed"


def test_a_size_of_0_is_no_size() -> None:
    with pytest.raises(ValueError, match="must be same"):
        judge_size(exact(0), 0)


@pytest.mark.parametrize(
    ("value", "verdict"), [(1.1, "supported"), (0.9, "open"), (-0.9, "open"), (-1.1, "contradicted")]
)
def test_a_direction(value: float, verdict: str) -> None:
    assert judge_direction(exact(value), "increase")[0] == verdict
    assert judge_direction(exact(-value), "decrease")[0] == verdict


def test_the_p_value_is_that_of_the_interval() -> None:
    assert judge_direction(exact(1.0), "increase")[1] == pytest.approx(0.05, abs=1e-6)
    assert judge_size(exact(-0.001, 1.0), 2)[1] == pytest.approx(0.05, abs=1e-3)  # of the test against half of it
    assert exact(0.0).p_value(0) == 1


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.0, "no difference, shown"),
        (1.15, "no difference, shown"),
        (1.2, "open"),
        (2.9, "open"),
        (3.1, "contradicted"),
    ],
)
def test_sameness_needs_a_margin(value: float, verdict: str) -> None:
    """The 90 % interval is ± 0.84 where the 95 % interval is ± 1."""
    assert judge_sameness(exact(value), 2)[0] == judge_sameness(exact(-value), 2)[0] == verdict
    with pytest.raises(ValueError, match="not positive"):
        judge_sameness(exact(value), 0)


def test_the_p_value_of_sameness_is_of_the_nearer_bound() -> None:
    half = stats.norm.ppf(0.95) / stats.norm.ppf(0.975)  # of the 90 % interval
    assert judge_sameness(exact(2 - half), 2)[1] == judge_sameness(exact(half - 2), 2)[1] == pytest.approx(0.05)
    for sign in (1, -1):
        assert judge_sameness(exact(sign * 3.0), 2) == ("open", pytest.approx(0.975))  # outside of the margin
        assert judge_sameness(exact(sign * 3.0 + sign * 1e-6), 2) == ("contradicted", pytest.approx(0.05, abs=1e-4))


@pytest.mark.parametrize(
    ("value", "verdict"), [(-9, "supported"), (0.0, "supported"), (1.2, "contradicted"), (0.9, "open")]
)
def test_no_increase_and_no_decrease(value: float, verdict: str) -> None:
    assert judge_absence(exact(value), "increase", 1)[0] == verdict
    assert judge_absence(exact(-value), "decrease", 1)[0] == verdict


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 · 0.01, 2 · 0.03, then not less
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


# --- simulated runs


def simulated(shifts: list[float], n: int, draw: np.random.Generator) -> dict[str, dict[int, float]]:
    """Four cells of n seeds with a standard deviation of 0.3."""
    return cells(*(draw.normal(80 + shift, 0.3, n).tolist() for shift in shifts))


def compared(found: dict[str, dict[int, float]]) -> Estimate | None:
    """Cell 1 less cell 0."""
    made = pool(found)
    if made.unstable & {"0", "1"}:
        return None
    return effect({name: [*of.values()] for name, of in found.items()}, {"0": -1, "1": 1}, made.paired or made.spread)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5])
def test_intervals_hold_what_they_promise(n: int) -> None:
    """One more run, a difference, and the same as a log-ratio: 93 to 97 % of the intervals contain the truth."""
    draw = np.random.default_rng(n)
    inside = Counter[str]()
    for _ in range(repeats := 2_000):
        found = simulated([0, 0.5, 0, 0], n, draw)
        future, difference = one_more_run([*found["0"].values()], pool(found).spread), compared(found)
        assert future is not None
        inside["run"] += future.interval()[0] <= draw.normal(80, 0.3) <= future.interval()[1]
        inside["difference"] += difference is None or difference.interval()[0] <= 0.5 <= difference.interval()[1]
        epochs = {
            name: {seed: np.log(np.exp(value - 80) * 20) for seed, value in of.items()} for name, of in found.items()
        }
        ratio = compared(epochs)
        inside["log-ratio"] += ratio is None or ratio.interval()[0] <= 0.5 <= ratio.interval()[1]
    assert all(0.93 <= count / repeats <= 0.97 for count in inside.values()), inside


@pytest.mark.slow
@pytest.mark.parametrize(("n", "power"), [(3, 0.9), (5, 0.98)])
def test_a_true_effect_is_found_and_hardly_ever_refuted(n: int, power: float) -> None:
    """A true gain of 1 point, 3.3 standard deviations of a seed, as claimed."""
    draw = np.random.default_rng(10 + n)
    found = [estimate for _ in range(1_000) if (estimate := compared(simulated([0, 1, 0, 0], n, draw)))]
    verdicts = Counter(judge_size(estimate, 1.0)[0] for estimate in found)
    assert verdicts["supported"] / 1_000 >= power
    assert (verdicts["refuted"] + verdicts["contradicted"] + verdicts["smaller than claimed"]) / 1_000 <= 0.05


@pytest.mark.slow
def test_nothing_is_hardly_ever_supported() -> None:
    draw = np.random.default_rng(20)
    found = [estimate for _ in range(1_000) if (estimate := compared(simulated([0, 0, 0, 0], 3, draw)))]
    verdicts = Counter(judge_size(estimate, 1.0)[0] for estimate in found)
    assert verdicts["supported"] / 1_000 <= 0.05
    assert verdicts["refuted"] / 1_000 >= 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("accuracy", "images"), [(99, 72), (99.6, 432), (79, 1_952)])
def test_another_test_set_is_covered(accuracy: float, images: int) -> None:
    """All seeds of ours on one drawn test set, another run on another; near 100 % the interval is wider than needed."""
    draw, inside = np.random.default_rng(images), 0
    for _ in range(repeats := 500):
        ours, theirs = 100 * draw.binomial(images, accuracy / 100, 2) / images
        future = one_more_run([ours] * 3, pool(cells([ours] * 3, [ours] * 3), images=images).spread, images)
        assert future is not None
        inside += future.interval()[0] - 1e-9 <= theirs <= future.interval()[1] + 1e-9
    assert inside / repeats >= 0.93


def test_scipy_is_imported_when_it_is_needed() -> None:
    program = "import sys, capsexp.results.statistics; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_every_process_gives_the_same_bits() -> None:
    """Whatever the order of a set of names is there."""
    program = (
        "from capsexp.results.statistics import pool\n"
        "print(pool({name: {0: 0.1 * i, 1: 0.3 + i / 7, 2: i / 3} for i, name in enumerate('abcdefgh')}).spread)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in "1234"
    }
    assert len(printed) == 1

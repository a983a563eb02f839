"""Intervals and verdicts, against arithmetic by hand, against scipy and against simulated runs.

Three values a unit apart have s = 1. With t(0.975, 2) = 4.302653 their prediction interval is
mean ± 4.302653 · sqrt(4/3) = mean ± 4.968276, and the confidence interval of the mean is
mean ± 4.302653 / sqrt(3) = mean ± 2.484138.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from capsexp.results.statistics import (
    Spread,
    claim,
    confidence_interval,
    describe,
    difference,
    prediction_interval,
    relative_change,
    slope,
    verdict,
)
from capsexp.study.studies import Published

NAN, INF = float("nan"), float("inf")


def normal_samples(cases: int, seed: int) -> list[list[float]]:
    """Samples of 2 to 9 values, each sample with a mean and a deviation of its own."""
    draw = np.random.default_rng(seed)
    return [draw.normal(draw.normal(), draw.uniform(0.1, 2), draw.integers(2, 10)).tolist() for _ in range(cases)]


def judged(values: list[float], published: str) -> str:
    return verdict(values, Published.parse(published), comparable=True)


def claimed(estimates: list[float], size: str) -> str:
    return claim(estimates, Published.parse(size), comparable=True).verdict


# --- spread and intervals


def test_spread() -> None:
    assert describe([1, 2, 3]) == Spread(3, 2.0, 1.0)  # sqrt((1 + 0 + 1) / 2)
    assert describe([1, 3]) == Spread(2, 2.0, math.sqrt(2))  # sqrt((1 + 1) / 1)
    assert describe([79.5]) == Spread(1, 79.5, None)


@pytest.mark.parametrize("value", [99.7, 0.1, 1 / 3, 1e-9, 98.79])
@pytest.mark.parametrize("n", [3, 7, 10])
def test_equal_values_have_no_spread_at_all(value: float, n: int) -> None:
    assert describe([value] * n) == Spread(n, value, 0.0)
    assert prediction_interval([value] * n) == (value, value) == confidence_interval([value] * n)


def test_intervals_by_hand() -> None:
    assert prediction_interval([1, 2, 3]) == pytest.approx((2 - 4.968276, 2 + 4.968276), abs=1e-6)
    assert confidence_interval([1, 2, 3]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    # t(0.975, 1) = 12.706205 and s = sqrt(2): 2 ± 12.706205 · sqrt(2) · sqrt(3/2), 2 ± 12.706205 · sqrt(2) / sqrt(2)
    assert prediction_interval([1, 3]) == pytest.approx((2 - 22.007792, 2 + 22.007792), abs=1e-6)
    assert confidence_interval([1, 3]) == pytest.approx((2 - 12.706205, 2 + 12.706205), abs=1e-6)
    # t(0.95, 2) = 2.919986: 2 ± 2.919986 · sqrt(4/3), 2 ± 2.919986 / sqrt(3)
    assert prediction_interval([1, 2, 3], 0.9) == pytest.approx((2 - 3.371709, 2 + 3.371709), abs=1e-6)
    assert confidence_interval([1, 2, 3], 0.9) == pytest.approx((2 - 1.685854, 2 + 1.685854), abs=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_intervals_are_scipys(level: float) -> None:
    for values in normal_samples(30, seed=1):
        n, mean, deviation = len(values), np.mean(values), np.std(values, ddof=1)
        interval = stats.ttest_1samp(values, 0).confidence_interval(level)
        assert confidence_interval(values, level) == pytest.approx((interval.low, interval.high), abs=1e-9)
        interval = stats.t.interval(level, n - 1, loc=mean, scale=deviation * np.sqrt(1 + 1 / n))
        assert prediction_interval(values, level) == pytest.approx(interval, abs=1e-9)


@pytest.mark.parametrize("n", [3, 5])
def test_the_prediction_interval_holds_95_percent_of_one_more_run(n: int) -> None:
    runs = np.random.default_rng(0).normal(99.0, 0.2, (4000, n + 1)).tolist()
    inside = 0
    for *ours, one_more in runs:
        interval = prediction_interval(ours)
        assert interval is not None
        inside += interval[0] <= one_more <= interval[1]
    assert inside / len(runs) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert prediction_interval(values) is None
    assert confidence_interval(values) is None


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, NAN])
def test_a_level_is_a_probability(level: float) -> None:
    for interval in (prediction_interval, confidence_interval):
        with pytest.raises(ValueError, match="not between 0 and 1"):
            interval([1, 2, 3], level)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_values_are_finite(value: float) -> None:
    for function in (describe, prediction_interval, confidence_interval):
        with pytest.raises(ValueError, match="not finite"):
            function([1, 2, value])
    with pytest.raises(ValueError, match="not finite"):
        judged([1, 2, value], "2")
    with pytest.raises(ValueError, match="not finite"):
        claim([1, 2, value], "increase", comparable=True)


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        describe([])


# --- verdicts on numbers


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ("2", "reproduced"),
        ("6.96", "reproduced"),
        ("6.97", "reproduced"),  # from 6.965, below 6.968276
        ("6.98", "published higher"),  # from 6.975
        ("7.0", "reproduced"),  # from 6.95
        ("7.1", "published higher"),  # from 7.05
        ("7", "reproduced"),  # from 6.5
        ("8", "published higher"),  # from 7.5
        ("99.70999908", "published higher"),
        ("-2.96", "reproduced"),
        ("-2.97", "reproduced"),  # to -2.965, above -2.968276
        ("-2.98", "published lower"),  # to -2.975
        ("-3", "reproduced"),  # to -2.5
        ("-4", "published lower"),  # to -3.5
    ],
)
def test_verdicts_at_the_ends_of_the_prediction_interval(published: str, expected: str) -> None:
    assert judged([1, 2, 3], published) == expected
    assert judged([3, 1, 2], published) == expected


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [
        (99.7, "99.70", "reproduced"),
        (99.7, "99.7", "reproduced"),
        (99.7, "99.71", "published higher"),
        (99.7, "99.69", "published lower"),
        (99.7, "100", "reproduced"),
        (99.7, "99", "published lower"),
        (99.71, "99.70999908", "reproduced"),  # 99.71 in single precision
        (99.71, "99.70", "published lower"),
        (99.75, "99.7", "reproduced"),  # rounded up or down, a tie is printed as either
        (99.75, "99.8", "reproduced"),
        (0.15, "0.1", "reproduced"),
        (0.15, "0.2", "reproduced"),
        (0.35, "0.3", "reproduced"),
        (0.35, "0.4", "reproduced"),  # 0.4 - 0.05 is above 0.35 in floating point
        (99.751, "99.7", "published lower"),
        (99.749, "99.8", "published higher"),
        (0, "0.00", "reproduced"),
        (100, "100.00", "reproduced"),
    ],
)
def test_seeds_that_agree_are_judged_by_their_one_value(ours: float, published: str, expected: str) -> None:
    for n in (3, 5, 10):
        assert judged([ours] * n, published) == expected


@pytest.mark.parametrize("values", [[], [2.0], [2.0, 2.0], [1.0, 3.0]])
def test_fewer_than_three_seeds_decide_nothing(values: list[float]) -> None:
    assert judged(values, "2") == "undecided"
    assert judged(values, "1000") == "undecided"


def test_what_was_not_measured_as_published_decides_nothing() -> None:
    for published in ("2", "1000", "-1000"):
        assert verdict([1, 2, 3], Published.parse(published), comparable=False) == "undecided"


# --- estimates of an effect


def test_difference_and_relative_change() -> None:
    assert difference(2, 5) == 3
    assert relative_change(80, 40) == -50  # 100 · (40 - 80) / 80
    assert relative_change(40, 80) == 100
    assert relative_change(99.7, 99.7) == 0
    assert relative_change(5, 0) == -100
    with pytest.raises(ValueError, match="from 0"):
        relative_change(0, 1)


def test_slope_by_hand() -> None:
    # x - 2 is -1, 0, 1, y - 5 is -3, 1, 2: (3 + 0 + 2) / (1 + 0 + 1)
    assert slope([1, 2, 3], [2, 6, 7]) == pytest.approx(2.5)
    assert slope([3, 1, 2], [7, 2, 6]) == pytest.approx(2.5)
    assert slope([1, 3], [5, 4]) == pytest.approx(-0.5)


def test_slope_is_scipys() -> None:
    draw = np.random.default_rng(2)
    for n in range(2, 20):
        xs, ys = draw.normal(size=(2, n)).tolist()
        assert slope(xs, ys) == pytest.approx(stats.linregress(xs, ys).slope)


@pytest.mark.parametrize(
    ("xs", "ys"),
    [
        ([], []),
        ([1], [1]),
        ([2, 2, 2], [1, 2, 3]),
        ([0.1, 0.1, 0.1], [1, 2, 3]),
        ([1, 2], [1, 2, 3]),
        ([1, 2, 3], [1, 2]),
        ([1, 2], []),
        ([1, NAN], [1, 2]),
        ([1, 2], [1, INF]),
    ],
)
def test_what_has_no_slope(xs: list[float], ys: list[float]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        slope(xs, ys)


# --- verdicts on claims


def test_a_claim_comes_with_its_interval() -> None:
    result = claim([2, 3, 4], "increase", comparable=True)
    assert (result.n, result.mean, result.verdict) == (3, 3.0, "confirmed")
    assert result.half_width == pytest.approx(2.484138, abs=1e-6)
    result = claim([1, 3], "increase", comparable=True)
    assert (result.n, result.mean, result.verdict) == (2, 2.0, "undecided")
    assert result.half_width == pytest.approx(12.706205, abs=1e-6)
    result = claim([2], "increase", comparable=True)
    assert (result.n, result.mean, result.half_width, result.verdict) == (1, 2.0, None, "undecided")


@pytest.mark.parametrize(
    ("mean", "increase", "decrease", "same"),
    [
        (3.0, "confirmed", "contradicted", "contradicted"),
        (2.4842, "confirmed", "contradicted", "contradicted"),  # 2.4842 - 2.484138 is above 0
        (2.4841, "not reproduced", "not reproduced", "no difference shown"),
        (0.0, "not reproduced", "not reproduced", "no difference shown"),
        (-2.4841, "not reproduced", "not reproduced", "no difference shown"),
        (-2.4842, "contradicted", "confirmed", "contradicted"),
        (-3.0, "contradicted", "confirmed", "contradicted"),
    ],
)
def test_a_direction_is_judged_by_the_confidence_interval(mean: float, increase: str, decrease: str, same: str) -> None:
    estimates = [mean - 1, mean, mean + 1]
    assert claim(estimates, "increase", comparable=True).verdict == increase == claimed(estimates, "0.01")
    assert claim(estimates, "decrease", comparable=True).verdict == decrease == claimed(estimates, "-0.01")
    assert claim(estimates, "same", comparable=True).verdict == same


@pytest.mark.parametrize(
    ("mean", "size", "expected"),
    [
        (3, "3", "confirmed"),
        (3, "7.97", "confirmed"),  # from 7.965, below 3 + 4.968276
        (3, "7.98", "smaller than claimed"),  # from 7.975
        (3, "8", "confirmed"),  # from 7.5
        (3, "9", "smaller than claimed"),
        (11, "6.03", "confirmed"),  # to 6.035, above 11 - 4.968276
        (11, "6.02", "larger than claimed"),  # to 6.025
        (11, "6", "confirmed"),  # to 6.5
        (11, "5", "larger than claimed"),
        (11, "-11", "contradicted"),
        (11, "-99", "contradicted"),
        (2, "2", "not reproduced"),
        (2, "99", "not reproduced"),
        (2, "-2", "not reproduced"),
    ],
)
def test_a_size_is_judged_by_the_prediction_interval(mean: float, size: str, expected: str) -> None:
    assert claimed([mean - 1, mean, mean + 1], size) == expected
    mirrored = size.removeprefix("-") if size.startswith("-") else f"-{size}"
    assert claimed([-mean - 1, -mean, -mean + 1], mirrored) == expected


@pytest.mark.parametrize(
    ("estimate", "size", "expected"),
    [
        (0.05, "0.05", "confirmed"),
        (99.75 - 99.70, "0.05", "confirmed"),
        (0.055, "0.05", "confirmed"),  # a tie
        (99.755 - 99.70, "0.05", "confirmed"),
        (0.045, "0.05", "confirmed"),
        (0.044, "0.05", "smaller than claimed"),
        (0.056, "0.05", "larger than claimed"),
        (-0.05, "0.05", "contradicted"),
        (-0.05, "-0.05", "confirmed"),
        (-0.044, "-0.05", "smaller than claimed"),
        (-0.056, "-0.05", "larger than claimed"),
        (0.0, "0.05", "not reproduced"),
    ],
)
def test_estimates_that_agree_are_judged_by_their_one_value(estimate: float, size: str, expected: str) -> None:
    for n in (3, 5, 10):
        assert claimed([estimate] * n, size) == expected


def test_directions_of_estimates_that_agree() -> None:
    verdicts = {
        0.01: ("confirmed", "contradicted", "contradicted"),
        0.0: ("not reproduced", "not reproduced", "no difference shown"),
        0.1 + 0.2 - 0.3: ("not reproduced", "not reproduced", "no difference shown"),  # 0, and what rounding left
        -0.01: ("contradicted", "confirmed", "contradicted"),
    }
    for estimate, expected in verdicts.items():
        for direction, one in zip(("increase", "decrease", "same"), expected, strict=True):
            result = claim([estimate] * 3, direction, comparable=True)
            assert (result.mean, result.half_width, result.verdict) == (estimate, 0.0, one)


def test_paired_claims_agree_with_the_paired_t_test() -> None:
    draw, shown = np.random.default_rng(3), 0
    for _ in range(100):
        n = int(draw.integers(3, 10))
        a = draw.normal(90, 1, n)
        b = a + draw.normal(draw.uniform(-2, 2), 1, n)
        estimates = (b - a).tolist()
        significant = stats.ttest_rel(b, a).pvalue < 0.05
        shown += significant
        assert (claim(estimates, "same", comparable=True).verdict == "contradicted") == significant
        direction = "increase" if np.mean(b) > np.mean(a) else "decrease"
        assert (claim(estimates, direction, comparable=True).verdict == "confirmed") == significant
    assert 30 < shown < 70  # both happen


@pytest.mark.parametrize("estimates", [[5.0], [5.0, 5.0], [5.0, 5.1]])
def test_fewer_than_three_estimates_decide_nothing(estimates: list[float]) -> None:
    for effect in ("increase", "decrease", "same", Published.parse("5"), Published.parse("-99")):
        assert claim(estimates, effect, comparable=True).verdict == "undecided"


def test_estimates_not_measured_as_published_decide_nothing() -> None:
    for effect in ("increase", "decrease", "same", Published.parse("5"), Published.parse("-99")):
        assert claim([5, 5, 5], effect, comparable=False).verdict == "undecided"


@pytest.mark.parametrize("estimates", [[5.0], [5.0, 5.0, 5.0]])
def test_claims_that_are_none(estimates: list[float]) -> None:
    for size in ("0", "0.00", "-0.0"):
        with pytest.raises(ValueError, match="must be same"):
            claimed(estimates, size)
    for word in ("grows", "2.52", ""):
        with pytest.raises(ValueError, match="one of increase, decrease, same"):
            claim(estimates, word, comparable=True)  # type: ignore[arg-type]


def test_no_estimates_are_no_claim() -> None:
    with pytest.raises(ValueError, match="no values"):
        claim([], "increase", comparable=False)


def test_scipy_is_imported_when_it_is_needed() -> None:
    program = "import sys, capsexp.results.statistics; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0

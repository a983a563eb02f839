"""Spreads, intervals and answers, against arithmetic by hand, against scipy and against simulated runs."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support import process

from capsexp.results.statistics import (
    Estimate,
    Spread,
    Term,
    effect,
    holm,
    independent_images,
    judge_absence,
    judge_direction,
    judge_printed,
    judge_sameness,
    least_variance,
    moderated,
    own_spread,
    paired_images,
    seeds_to_decide,
    slope_weights,
)

INF = float("inf")


def spread(values: list[float], *others: list[float], floor: float = 0.0) -> Spread | None:
    """How a network spreads beside others."""
    return moderated(own_spread(values, floor), filter(None, (own_spread(other, floor) for other in others)))


def exact(value: float, half: float = 1.0) -> Estimate:
    """An effect whose 95 % interval is value ± half."""
    return Estimate(value, (half / stats.norm.ppf(0.975)) ** 2, INF)


UNIT = Spread(1.0, 2)


def terms(*values: list[float], spread: Spread = UNIT) -> list[Term]:
    """The difference of two networks."""
    return [Term(weight, of_network, spread) for weight, of_network in zip((-1.0, 1.0), values, strict=True)]


# --- the spread


def test_a_spread_by_hand() -> None:
    """v is 1, 0.5 and unknown. Others of the first: s₀² 0.5, ν 1, d 0.8; of the last: 2.5/3, ν 3, d 12/7."""
    first, second, last = [1.0, 2.0, 3.0], [10.0, 11.0], [50.0]
    assert spread(first, second, last) == Spread(pytest.approx((0.8 * 0.5 + 2) / 2.8), pytest.approx(2.8))
    assert spread(last, first, second) == Spread(pytest.approx(2.5 / 3), pytest.approx(12 / 7))
    assert spread(first, last) == Spread(1.0, 2)
    assert spread([1.0], [2.0]) is None
    assert spread([99.6, 99.6], [99.7, 99.8]) == spread([99.6], [99.7, 99.8])  # rounding can make two equal
    assert spread([99.7, 99.7], [99.6, 99.6]) is None


def test_no_spread_is_below_the_floor() -> None:
    """Half a standard error of 9,350 right of 10,000; of all of 72 images, that of rounding to one of them."""
    assert least_variance(93.5, 10_000) == pytest.approx(0.25 * 93.5 * 6.5 / 10_000)
    assert least_variance(100, 72) == pytest.approx((100 / 72) ** 2 / 12)
    assert spread([5.0] * 3, [6.0] * 2, floor=0.1) == Spread(pytest.approx(0.1), 2.8)


# --- effects


def test_an_effect_by_hand() -> None:
    """t(0.975, 2) is 4.302653; both networks have 2 degrees of freedom, Welch's 4 are no more."""
    found = effect(terms([1, 2, 3], [4, 5, 6]))
    half = 4.302653 * math.sqrt(2 / 3)
    assert found.interval() == (pytest.approx(3 - half, abs=1e-6), pytest.approx(3 + half, abs=1e-6))
    printed = effect(terms([1, 2, 3], [4, 5, 6]), 3)  # beside a printed difference of three runs a network
    assert printed.variance == pytest.approx(2 * (1 / 3 + 1 / 3))
    assert effect(terms([1, 2, 3], [4, 5, 6]), sampling=1.0).variance == pytest.approx(2 / 3 + 1)


def test_unequal_spreads_are_welchs() -> None:
    draw = np.random.default_rng(4)
    a, b = draw.normal(0, 1, 10).tolist(), draw.normal(1, 10, 4).tolist()
    found = effect([Term(w, y, Spread(float(np.var(y, ddof=1)), len(y) - 1)) for w, y in ((-1.0, a), (1.0, b))])
    theirs = stats.ttest_ind(b, a, equal_var=False)
    assert found.p_value(0) == pytest.approx(theirs.pvalue)
    assert found.interval() == pytest.approx(tuple(theirs.confidence_interval()))


def test_an_effect_without_an_error_has_no_interval() -> None:
    counted = Estimate(2.0, 0.0, INF)
    assert counted.interval() == (2.0, 2.0)
    assert (counted.p_value(2.0), counted.p_value(1.0)) == (1.0, 0.0)


def test_what_double_precision_leaves_of_0_is_0() -> None:
    for left in (-1e-11, 1e-11):  # 0.3 − 0.1 · 3, of numbers up to 10⁵
        nothing = Estimate(left, 0.0, INF)
        assert judge_direction(nothing, "increase") == ("open", 1.0)


def test_a_slope_is_least_squares() -> None:
    assert slope_weights([1, 2, 3]) == pytest.approx([-0.5, 0, 0.5])
    ys, xs = np.random.default_rng(5).normal(size=6).tolist(), [1, 2, 4, 5, 7, 8]
    total = sum(weight * y for weight, y in zip(slope_weights(xs), ys, strict=True))
    assert total == pytest.approx(stats.linregress(xs, ys).slope)


def test_the_test_images_error_by_hand() -> None:
    """Of 100 images, 10 only the second network has right, 4 only the first: Agresti and Min. Alone: Agresti, Caffo."""
    differences = [1.0] * 10 + [-1.0] * 4 + [0.0] * 86
    assert paired_images(differences, [-1, 1]) == pytest.approx(1e4 * (14 + 1 - 36 / 102) / 102**2)
    shares = [81 / 102, 87 / 102]
    alone = independent_images(terms([80.0], [86.0]), 100)
    assert alone == pytest.approx(1e4 * sum(p * (1 - p) / 102 for p in shares))
    assert paired_images(differences, [-1, 1]) < alone
    assert paired_images([0.0] * 216, [-1, 1]) > 0  # all 216 right in both: still not known of others


@pytest.mark.slow
@pytest.mark.parametrize(("both", "only"), [(0.9, 0.02), (0.7, 0.1), (0.98, 0.005)])
def test_the_test_images_error_covers_the_truth(both: float, only: float) -> None:
    """Two networks on the same 500 drawn images, each right alone on a share of them."""
    draw, inside = np.random.default_rng(7), Counter[str]()
    for _ in range(repeats := 2_000):
        kinds = draw.multinomial(500, [both, only, only, 1 - both - 2 * only])
        accuracies = [(kinds[0] + kinds[1]) / 5, (kinds[0] + kinds[2]) / 5]
        differences = [-1.0] * kinds[1] + [1.0] * kinds[2] + [0.0] * (kinds[0] + kinds[3])
        paired = Estimate(accuracies[1] - accuracies[0], paired_images(differences, [-1, 1]), INF)
        alone = Estimate(paired.value, independent_images(terms(accuracies[:1], accuracies[1:]), 500), INF)
        for name, one in (("paired", paired), ("alone", alone)):
            inside[name] += one.interval()[0] <= 0 <= one.interval()[1]
    assert 0.93 <= inside["paired"] / repeats <= 0.98
    assert inside["alone"] >= inside["paired"]


# --- answers


@pytest.mark.parametrize(
    ("value", "printed", "place"),
    [
        (2.0, (2.5, 2.5), "compatible"),
        (2.0, (3.0, 3.0), "compatible"),
        (2.0, (3.01, 3.01), "lower"),
        (2.0, (2.995, 3.05), "compatible"),  # rounded to 3.0225 ± 0.0275
        (2.0, (0.9, 0.95), "higher"),
    ],
)
def test_printed_numbers_beside_the_interval(value: float, printed: tuple[float, float], place: str) -> None:
    assert judge_printed(exact(value), printed)[0] == place


def test_published_numbers_went_through_single_precision() -> None:
    assert judge_printed(Estimate(99.71, 0.0, INF), (99.709999075, 99.709999085))[0] == "compatible"


@pytest.mark.parametrize(
    ("value", "answer"), [(1.1, "supported"), (0.9, "open"), (-0.9, "open"), (-1.1, "contradicted")]
)
def test_a_direction(value: float, answer: str) -> None:
    assert judge_direction(exact(value), "increase")[0] == answer
    assert judge_direction(exact(-value), "decrease")[0] == answer
    at_the_ceiling = "ceiling" if answer == "open" else answer
    assert judge_direction(exact(value), "increase", ceiling=True)[0] == at_the_ceiling


def test_the_p_value_is_that_of_the_interval() -> None:
    assert judge_direction(exact(1.0), "increase")[1] == pytest.approx(0.05)


def test_no_effect_above_the_least_that_matters_is_an_answer_of_one_side() -> None:
    """The 90 % interval of 0 ± 1 ends at 0.839; the p-value is that of the least effect, one-sided."""
    (low, p_low), (high, p_high) = (judge_direction(exact(0.0), "increase", least=least) for least in (0.83, 0.85))
    assert (low, high) == ("open", "none above")
    assert (p_low, p_high) == (1.0, pytest.approx(stats.norm.sf(0.85 * stats.norm.ppf(0.975))))
    assert judge_direction(exact(-0.9), "decrease", least=2.0)[0] == "none above"
    assert judge_direction(exact(1.1), "increase", least=9.0)[0] == "supported"
    assert judge_direction(exact(0.0), "increase", ceiling=True, least=9.0)[0] == "ceiling"


def test_what_isnt_above_the_least_stays_counted_by_holm() -> None:
    p_values = {"absent": 0.001, "effect": 0.03}
    assert holm(p_values)["effect"] == 0.03
    assert holm(p_values, {"absent"}) == {"absent": 0.002, "effect": 0.06}


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (0.0, "no difference, shown"),
        (1.15, "no difference, shown"),
        (1.2, "open"),
        (2.9, "open"),
        (3.1, "contradicted"),
    ],
)
def test_sameness_needs_a_margin(value: float, answer: str) -> None:
    """The 90 % interval is ± 0.84 where the 95 % interval is ± 1."""
    assert judge_sameness(exact(value), 2)[0] == judge_sameness(exact(-value), 2)[0] == answer
    counted = "contradicted" if value > 2 else "no difference, shown"
    assert {judge_sameness(Estimate(sign * value, 0.0, INF), 2)[0] for sign in (1, -1)} == {counted}


def test_the_p_value_of_sameness_is_of_the_nearer_bound() -> None:
    half = stats.norm.ppf(0.95) / stats.norm.ppf(0.975)  # of the 90 % interval
    assert judge_sameness(exact(2 - half), 2)[1] == judge_sameness(exact(half - 2), 2)[1] == pytest.approx(0.05)
    for sign in (1, -1):
        assert judge_sameness(exact(sign * 3.0), 2) == ("open", pytest.approx(0.975))  # outside of the margin
        assert judge_sameness(exact(sign * 3.0 + sign * 1e-6), 2) == ("contradicted", pytest.approx(0.05, abs=1e-4))


@pytest.mark.parametrize(
    ("value", "answer"), [(-9, "supported"), (0.1, "supported"), (0.2, "open"), (1.9, "open"), (2.1, "contradicted")]
)
def test_no_increase_and_no_decrease_have_a_margin_on_both_sides(value: float, answer: str) -> None:
    """With a margin of 1; the 90 % interval is ± 0.84. Within the margin nothing is contradicted."""
    assert judge_absence(exact(value), "increase", 1)[0] == answer
    assert judge_absence(exact(-value), "decrease", 1)[0] == answer


def test_no_increase_is_tested_by_one_side_and_its_contrary_by_two() -> None:
    """All values are 1.5 from the margin, or 0.5."""
    for value, answer, tail in ((-0.5, "supported", 1), (2.5, "contradicted", 2), (0.5, "open", 1), (1.5, "open", -1)):
        expected = abs(tail) * stats.norm.sf(abs(value - 1) / math.sqrt(exact(value).variance))
        found = judge_absence(exact(value), "increase", 1)
        assert found == (answer, pytest.approx(expected if tail > 0 else 1 - expected))


def test_holm_by_hand() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert found == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})  # 3 · 0.01, 2 · 0.03, then not less
    assert holm({}) == {}
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_the_seeds_that_decide_are_those_of_the_normal_distribution_where_the_spread_is_known() -> None:
    """2 (1.960 + 0.842)² = 15.7 seeds for a difference of one standard deviation; a level of 0.01 needs 23.4."""
    known = terms([0.0], [0.0], spread=Spread(1.0, 1e9))
    assert seeds_to_decide(1.0, known, 0.0, 0.05) == 16
    assert seeds_to_decide(1.0, known, 0.0, 0.01) == 24
    assert seeds_to_decide(0.1, known, 0.0, 0.05) is None
    assert seeds_to_decide(1.0, known, 1.0, 0.05) == 0  # more seeds don't help against few test images
    assert (seeds_to_decide(1.0, terms([0.0, 0.0], [0.0, 0.0]), 0.0, 0.05) or 0) > 16  # nor is the spread known


# --- simulated runs


def simulated(
    spreads: tuple[float, float], seeds: tuple[int, int], others: list[float], draw: np.random.Generator
) -> tuple[list[Term], float]:
    """The terms of a difference whose true value is 0, and a printed difference of one run a network."""
    values = [draw.normal(80, sd, n).tolist() for sd, n in zip(spreads, seeds, strict=True)]
    beside = [draw.normal(80, sd, 2).tolist() for sd in others]
    estimated = spread(values[0], values[1], *beside), spread(values[1], values[0], *beside)
    compared = [Term(w, y, s) for w, y, s in zip((-1.0, 1.0), values, estimated, strict=True) if s]
    return compared, float(draw.normal(0, spreads[1]) - draw.normal(0, spreads[0]))


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize("seeds", [(2, 2), (2, 3), (3, 3)])
def test_intervals_hold_what_they_promise(seeds: tuple[int, int], ratio: float) -> None:
    """Networks that spread up to `ratio` times as much as others, alone and beside one, two or six others.

    Of the intervals 93 to 97 % contain the truth; of effects that don't exist at most 2.5 % are supported, and as many
    contradicted; of printed effects that differ by chance at most 5 % are called smaller or larger; of effects of the
    least size that matters at most 5 % are said not to be there.
    """
    draw, counts, repeats = np.random.default_rng(ratio), Counter[str](), 0
    for number in (0, 1, 2, 6):
        others = [1.0 if place % 2 else ratio for place in range(number)]
        for spreads in ((1, 1), (1, ratio), (ratio, 1), (ratio, ratio)):
            for _ in range(1_000):
                compared, printed = simulated(spreads, seeds, others, draw)
                repeats += 1
                low, high = (estimate := effect(compared)).interval()
                counts["inside"] += low <= 0 <= high
                counts[judge_direction(estimate, "increase")[0]] += 1
                moved = replace(estimate, value=estimate.value + 1.0)
                counts["none above"] += judge_direction(moved, "increase", least=1.0)[0] == "none above"
                counts["size"] += judge_printed(effect(compared, 1), (printed, printed))[0] != "compatible"
    shares = {name: count / repeats for name, count in counts.items()}
    assert 0.93 <= shares["inside"] <= 0.97, shares
    assert max(shares["supported"], shares["contradicted"]) <= 0.025, shares
    assert max(shares["size"], shares["none above"]) <= 0.05, shares


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "power"), [(3, 0.75), (5, 0.97)])
def test_a_true_effect_is_found_and_its_size_is_not_called_another(seeds: int, power: float) -> None:
    """A true gain of 3.3 standard deviations of a seed beside four networks; at half of it, at most 5 % are larger."""
    draw, answers, sizes = np.random.default_rng(seeds), Counter[str](), Counter[str]()
    for _ in range(1_000):
        compared, printed = simulated((1, 1), (seeds, seeds), [1, 1, 1, 1], draw)
        moved = [compared[0], Term(1.0, [value + 3.3 for value in compared[1].values], compared[1].spread)]
        answers[judge_direction(effect(moved), "increase")[0]] += 1
        sizes[judge_printed(effect(moved, 1), (3.3 + printed, 3.3 + printed))[0]] += 1
    assert answers["supported"] / 1_000 >= power
    assert answers["contradicted"] == 0
    assert sizes["compatible"] / 1_000 >= 0.95


def test_scipy_is_imported_when_it_is_needed() -> None:
    program = "import sys, capsexp.results.statistics; sys.exit('scipy' in sys.modules)"
    assert process("-c", program).returncode == 0

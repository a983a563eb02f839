"""Claims, tested on made-up runs: which rows are compared, in which setting, and what is known without a run."""

import dataclasses
import json
from math import exp, log, pi, sqrt
from pathlib import Path

import pytest
from made import CBAM, PLAIN, SHORT, SWEPT, cell, claim, results, row, run, runs, study
from scipy import stats

from capsexp.errors import InputError
from capsexp.results import steps
from capsexp.results.claims import MeasuredClaim
from capsexp.results.contrast import Contrast, Effect
from capsexp.results.runs import run_of
from capsexp.results.statistics import effect
from capsexp.results.study import measure
from capsexp.run.records import Record, packed
from capsexp.study import studies
from capsexp.study.selection import select
from capsexp.study.studies import EFFECTS, Setting, Study

SPREAD = [98.9, 99.0, 99.1]  # s = 0.1
OTHER = f"{PLAIN} routing.iterations=1"
ROWS = [row("A", PLAIN), row("B", CBAM), row("C", OTHER)]
PAIRS = [["A", "B"], ["A", "C"]]
THREE_MORE = [f"{PLAIN} routing.iterations={iterations}" for iterations in (2, 4, 5)]


def measured(made: Study, found: list[Record], *typed: str) -> MeasuredClaim:
    """The only claim of a study."""
    (one,) = results(made, found, typed).claims
    return one


def moved(values: list[float], by: float) -> list[float]:
    return [each + by for each in values]


# The effect and its interval


def test_a_difference_by_hand() -> None:
    """A: v = 0.01, B: v = 0.04, both with 2 degrees of freedom: each borrows 4/3 from the other."""
    one = measured(study(claims=[claim()]), [*runs(PLAIN, SPREAD), *runs(CBAM, [99.3, 99.5, 99.7])])
    assert one.effect.value == pytest.approx(0.5)
    a, b = ((4 / 3 * other + 2 * own) / (10 / 3) for own, other in ((0.01, 0.04), (0.04, 0.01)))
    half = stats.t.ppf(0.975, 10 / 3) * sqrt((a + b) / 3)  # Welch's degrees of freedom are more than one network's
    assert one.effect.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert (one.verdict, one.so_far, one.runs, one.reason) == ("supported", False, 6, "")
    assert one.last.value == one.effect.value  # of one epoch


def three(mean: float, deviation: float = 0.1) -> list[float]:
    return [mean - deviation, mean, mean + deviation]


FULL = [99.7, 99.7, 99.8]  # 0.8/3 below 100, which binary numbers miss


@pytest.mark.parametrize(
    ("claimed", "a", "b", "verdict", "size"),
    [
        ("+1.57", three(97), three(97.84), "supported", "smaller"),
        ("+1", three(97), three(97.84), "supported", "compatible"),
        ("+0.1", three(97), three(97.84), "supported", "larger"),
        ("-1", three(97), three(97.84), "contradicted", "smaller"),
        ("+0.9", three(99), three(99), "none above", "smaller"),
        ("+0.9", three(98, 1), three(98.5, 1), "open", "open"),
        ("+1.05", three(99, 0.2), three(99.5, 0.2), "supported", "open"),  # beyond ours alone, not beyond one run's
        ("+1", three(99.5), three(99), "contradicted", "smaller"),
        ("+1", three(99.5), three(99.5), "ceiling", None),  # there is room for half of it
        ("+0.4", three(99.5), three(99.5), "none above", "open"),
        ("increase", [100.0] * 3, [100.0] * 3, "ceiling", None),  # not one image is left
        ("+0.8", three(99), three(99.5), "supported", "open"),
        ("+1", three(98.5, 1), three(99.5), "open", "open"),  # the room is that of the first row
        (f"+{0.8 / 3:.16f}", FULL, FULL, "none above", "open"),
        ("same", three(99), three(99), "no difference, shown", None),
        ("no decrease", three(99), three(99), "supported", None),
        ("no increase", three(98, 1), three(98, 1), "open", None),
    ],
)
def test_the_verdict_on_an_effect_and_on_its_size(
    claimed: str, a: list[float], b: list[float], verdict: str, size: str | None
) -> None:
    margin = 0.5 if claimed in EFFECTS[2:] else None
    one = measured(study(claims=[claim(claimed=claimed, margin=margin)]), [*runs(PLAIN, a), *runs(CBAM, b)])
    assert (one.verdict, one.size, one.decided_size) == (verdict, size, size)
    assert (one.p_value is None) == (verdict == "ceiling")  # nothing is tested


def test_the_seeds_that_would_decide_are_more_than_there_are() -> None:
    """Two seeds would find a point among spreads of 0.1; there are three, and they don't show it."""
    made = study(claims=[claim(claimed="+0.9")])
    shown = measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)])
    assert (shown.verdict, shown.least, shown.seeds) == ("none above", 0.45, None)
    wide = [*runs(PLAIN, three(98, 1)), *runs(CBAM, three(98.5, 1))]
    assert measured(made, wide).seeds == 22  # 2 (1.96 + 0.84)² / 0.81 = 19.4, and the spread isn't known exactly
    assert (measured(made, [*runs(PLAIN, [97.0, 99.0]), *runs(CBAM, [97.5, 99.5])]).seeds or 0) > 2


def test_a_printed_mean_of_many_runs_has_little_noise() -> None:
    found = [*runs(PLAIN, three(99, 0.2)), *runs(CBAM, three(99.5, 0.2))]
    assert measured(study(claims=[claim(claimed="+1.05")], printed_runs=30), found).size == "smaller"


@pytest.mark.parametrize(
    ("curve", "learned", "reason"),
    [
        ([10.0, 50.0, 70.0, 80.0, 81.9], True, ""),
        ([10.0, 50.0, 70.0, 80.0, 82.1], True, "B still gained 2.1 points in the last fifth of its epochs"),
        ([10.0, 50.0, 82.0, 80.0, 81.0], True, ""),
        ([9.0, 10.0, 11.0, 10.0, 10.0], False, "3 of 3 runs of B didn't learn"),
    ],
)
def test_a_row_that_isnt_ready_decides_nothing(curve: list[float], learned: bool, reason: str) -> None:
    found = [*runs(PLAIN, [95.0, 95.1, 94.9]), *(run(CBAM, seed, curve, chance_accuracy=10.0) for seed in range(3))]
    assert {run_of(one).learned for one in found[3:]} == {learned}
    one = measured(study(claims=[claim()]), found)
    assert (one.verdict, one.reason, one.p_value is None) == (
        ("open", reason, True) if reason else ("contradicted", "", False)
    )
    assert one.effect.interval is not None


@pytest.mark.parametrize("measure", ["first_epoch", "level_epoch", "reconstruction"])
def test_a_run_that_didnt_learn_decides_no_claim_on_epochs_or_images(measure: str) -> None:
    """Not even where it has no number to compare."""
    curve = [10.0, 60.0, *[90.0] * 99]
    found = [run(words, seed, curve) for words in (PLAIN, CBAM) for seed in range(3)]
    found = [
        dataclasses.replace(one, epochs=[{**each, "test_reconstruction": 9 + at / 10} for each in one.epochs])
        for at, one in enumerate(found)
    ]
    flat = dataclasses.replace(found[5], epochs=[{**each, "test_accuracy": 10.0} for each in found[5].epochs])
    made = study(claims=[claim("relative", "no increase", measure=measure, margin=50)])
    assert measured(made, found).verdict == "supported"
    one = measured(made, [*found[:5], dataclasses.replace(flat, chance_accuracy=10.0)])
    assert (one.verdict, one.reason) == ("open", "1 of 3 runs of B didn't learn")


def test_a_row_is_compared_with_a_reference() -> None:
    """Chance, 10 %, within 5 points: of 11 % none is shown to differ, of 43 % it does."""
    uniform = claim(claimed="same", margin=5, reference=10, rows=["A"], pairs=[])
    unlearned, learned = (runs(PLAIN, moved(SPREAD, shift)) for shift in (-88.0, -56.0))
    unlearned = [dataclasses.replace(one, chance_accuracy=11.0) for one in unlearned]
    rising = [run(PLAIN, seed, [10.0, 10.1, 9.9, 10.0, 13.0 + seed / 10]) for seed in range(3)]
    assert measured(study(claims=[uniform]), rising).verdict == "open"
    answers = [measured(study(claims=[uniform]), found) for found in (unlearned, learned)]
    assert [one.verdict for one in answers] == ["no difference, shown", "contradicted"]
    assert answers[1].effect.value == pytest.approx(SPREAD[1] - 56 - 10)
    above = claim(claimed="+33", reference=10, rows=["A"], pairs=[])
    assert measured(study(claims=[above]), learned).size == "compatible"


def test_the_means_of_rows_spread() -> None:
    """1, 2, 3 against 1, 3, 5: twice the standard deviation."""
    rows = [row(name, words) for name, words in zip("ABCDEF", [PLAIN, CBAM, OTHER, *THREE_MORE], strict=True)]
    maxima = zip([PLAIN, CBAM, OTHER, *THREE_MORE], (91.0, 92.0, 93.0, 91.0, 93.0, 95.0), strict=True)
    found = [one for words, best in maxima for one in runs(words, [best - 0.1, best + 0.1])]
    one = measured(study(*rows, claims=[claim("spread of means", pairs=[["A", "D"], ["B", "E"], ["C", "F"]])]), found)
    assert one.effect.value == pytest.approx(100.0)


def test_a_run_that_didnt_learn_is_in_no_other_networks_spread() -> None:
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(OTHER, [99.0, 99.1])]
    far = dataclasses.replace(run(OTHER, 2, [10.0]), chance_accuracy=10.0)
    alone, beside = (measured(study(*ROWS, claims=[claim()]), [*found, *more]) for more in ([], [far]))
    assert alone.effect.interval == beside.effect.interval


def test_rows_on_different_data_have_no_common_spread() -> None:
    other = PLAIN.replace("mnist", "fashion_mnist")
    found = [*runs(PLAIN, SPREAD), *runs(other, moved(SPREAD, 5))]
    one = measured(study(row("A", PLAIN), row("B", other), claims=[claim()]), found)
    assert one.effect.value == pytest.approx(5)
    assert (one.effect.interval, one.verdict) == (None, "open")


def test_one_run_decides_nothing() -> None:
    """However far it lies from any spread; two do."""
    steady, made = [*runs(CBAM, SPREAD), *runs(OTHER, SPREAD)], study(*ROWS, claims=[claim(claimed="+9.0")])
    one = measured(made, [*runs(PLAIN, [10.0]), *steady])
    assert (one.verdict, one.reason, one.so_far) == ("open", "one run of A", True)
    assert (one.effect.interval, one.p_value, one.size, one.seeds) == (None, None, None, None)
    assert measured(made, [*runs(PLAIN, [10.0, 10.1]), *steady]).verdict == "supported"


def test_pairs_of_single_runs_are_left_out_where_others_have_seeds() -> None:
    made = study(*ROWS, claims=[claim(pairs=PAIRS)])
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(OTHER, [9.0])]
    one = measured(made, found)
    assert (one.effect.value, one.so_far, one.reason) == (pytest.approx(0.5), True, "1 of 2 comparisons, one run of C")


def test_of_a_part_the_smallest_gain_that_matters_is_half_of_what_is_printed_there() -> None:
    """B gains 1 point where it is printed, C 3, which has no run."""
    rows = [row("A", PLAIN, accuracy="98"), row("B", CBAM, accuracy="99"), row("C", OTHER, accuracy="101")]
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)]
    one = measured(study(*rows, claims=[claim(pairs=PAIRS)]), found)
    assert (one.reason, one.least, one.printed) == ("1 of 2 comparisons", 0.5, Effect(1.0))


def test_first_epochs_are_compared_by_their_logarithms() -> None:
    """From 4, 2, 5 epochs to 2, 1, 3: the mean of the logarithms, not of the percentages."""
    a = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((4, 2, 5))]
    b = [run(CBAM, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((2, 1, 3))]
    one = measured(study(claims=[claim("relative", "-50", measure="first_epoch")]), [*a, *b])
    assert one.effect.value == pytest.approx(100 * (exp((log(6) - log(40)) / 3) - 1))
    assert one.verdict == "open"


def test_a_maximum_in_the_last_epoch_is_not_compared() -> None:
    found = [run(PLAIN, 0, [1.0, 9.0]), run(CBAM, 0, [9.0, 1.0]), run(CBAM, 1, [9.0, 1.0])]
    saved = claim("relative", "decrease", measure="first_epoch")
    one = measured(study(claims=[saved]), found)
    assert (one.verdict, one.reason, one.effect) == ("open", "a run's last epoch was its best", None)
    whole = [*found, run(PLAIN, 1, [1.0, 9.0])]  # the shorter training isn't taken in its place
    short = [run(f"{words} {SHORT}", seed, [9.0, 1.0]) for words in (PLAIN, CBAM) for seed in (0, 1)]
    assert measured(study(claims=[saved]), [*whole, *short]).effect is None
    # A and B alone would be selected by what is measured.
    curves = {PLAIN: [1.0, 9.0, 1.0], CBAM: [9.0, 1.0, 1.0], OTHER: [1.0, 2.0, 9.0]}
    found = [run(words, seed, curve) for words, curve in curves.items() for seed in (0, 1)]
    one = measured(study(*ROWS, claims=[dataclasses.replace(saved, pairs=PAIRS)]), found)
    assert (one.verdict, one.reason, one.effect) == ("open", "a run's last epoch was its best", None)


def test_pairs_are_averaged() -> None:
    found = [*runs(PLAIN, [1.0] * 3), *runs(CBAM, [2.0, 3.0, 4.0]), *runs(OTHER, [4.0, 5.0, 6.0])]
    one = measured(study(*ROWS, claims=[claim(pairs=PAIRS)]), found)
    assert one.effect.value == 3.0
    floor = 0.25 * 99 / 10_000  # A's own variance is less; of 4 degrees of freedom of others, each borrows 2
    a, b = (2 * 1 + 2 * floor) / 4, (2 * (1 + floor) / 2 + 2 * 1) / 4
    half = stats.t.ppf(0.975, 4) * sqrt((a + 2 * 0.25 * b) / 3)  # weights −1, 0.5, 0.5, three seeds each
    assert one.effect.interval[0] == pytest.approx(3 - half, abs=1e-5)


def test_a_slope_is_over_the_rows_in_their_order_over_a_part_so_far_and_over_one_none() -> None:
    made = study(*ROWS, claims=[claim("slope", rows=["A", "B", "C"])])
    found = [*runs(PLAIN, SPREAD), *runs(OTHER, moved(SPREAD, 1))]
    assert measured(made, [*found, *runs(CBAM, moved(SPREAD, -4))]).effect.value == pytest.approx(0.5)
    one = measured(made, found)
    assert (one.effect.value, one.so_far, one.reason) == (pytest.approx(0.5), True, "2 of 3 rows")
    assert measured(made, found[:3]).effect is None


@pytest.mark.parametrize(
    ("estimate", "size", "expected"),
    [("difference", 10.0, 10.0), ("relative", 10.0, log(1.1)), ("factor", 10.0, log(10)), ("spread", -50.0, log(0.5))],
)
def test_a_size_is_the_same_on_the_scale_and_back(estimate: str, size: float, expected: float) -> None:
    contrast = Contrast(claim(estimate), ["A", "B"])
    assert contrast.on_scale(size) == pytest.approx(expected)
    assert contrast.in_unit(contrast.on_scale(size)) == pytest.approx(size)


def test_a_spread_is_that_over_seeds() -> None:
    rows = [row(name, SWEPT.replace("1,2,3", str(i))) for i, name in enumerate("ABC", 1)]
    deviations = (6.0, 1.0, 0.5)
    found = [
        each
        for one, deviation in zip(rows, deviations, strict=True)
        for each in runs(one.run or "", [50 - deviation, 50, 50 + deviation])
    ]
    made = study(*rows, claims=[claim("spread", "decrease", pairs=[["A", "B"], ["A", "C"]])])
    one = measured(made, found)
    assert (one.effect.value, one.verdict) == (pytest.approx(100 * (1 / sqrt(6 * 12) - 1)), "supported")
    half = 1.959964 * sqrt(1.5 * pi**2 / 24)  # weights −1, 0.5, 0.5; ψ'(1) is π²/6
    assert one.effect.interval == pytest.approx([100 * (exp(sign * half) / sqrt(6 * 12) - 1) for sign in (-1, 1)])
    failed = run(rows[1].run or "", 3, failed=True)
    assert measured(made, [*found, failed]).failed == 1
    single = measured(made, [*found[:3], *found[3:9:3]])
    assert (single.effect, single.verdict) == (None, "open")


# What is compared


def test_a_part_of_a_claim_is_measured_so_far() -> None:
    """Three of five pairs have runs."""
    others = [row(name, f"{CBAM} routing.iterations={i}") for i, name in zip((1, 2, 4, 5), "CDEF", strict=True)]
    made = study(*ROWS[:2], *others, claims=[claim(pairs=[["A", name] for name in "BCDEF"])])
    found = [*runs(PLAIN, SPREAD), *(one for each in (CBAM, *(other.run for other in others[:2])) if each
                                     for one in runs(each, moved(SPREAD, 1)))]  # fmt: skip
    one = measured(made, found)
    assert (one.effect.value, one.verdict, one.so_far) == (pytest.approx(1.0), "supported", True)
    assert one.reason == "3 of 5 comparisons"


def test_a_claim_is_judged_in_the_papers_training_if_all_its_rows_have_two_seeds_there() -> None:
    made = study(*ROWS, claims=[claim(pairs=PAIRS)])
    short = [one for words in (PLAIN, CBAM, OTHER) for one in runs(f"{words} {SHORT}", moved(SPREAD, -7))]
    part = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(OTHER, [99.5])]
    laptop = measured(made, [*short, *part])
    assert (laptop.block.name, laptop.so_far, laptop.reason) == ("laptop", True, "")
    assert laptop.effect.value == pytest.approx(0)
    whole = measured(made, [*short, *part, run(OTHER, 1, [99.5])])
    assert (whole.effect.value, whole.block.name, whole.so_far) == (pytest.approx(0.5), "paper", False)
    alone = measured(made, part)
    assert (alone.block.name, alone.so_far, alone.reason) == ("paper", True, "1 of 2 comparisons, one run of C")
    assert measured(made, [*short[:6], *part]).block.name == "laptop"  # of two parts


def test_what_the_study_says_differs_is_so_far() -> None:
    made = study(claims=[claim()], differs="our own maps")
    one = measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 1))])
    assert (one.block.name, one.so_far) == ("paper", True)


def test_a_measure_of_which_a_setting_tells_as_much_is_not_so_far() -> None:
    five = "budget.epochs=5"
    curves = [run(f"{words} {five}", seed, [9.0 + seed] * 5) for words in (PLAIN, CBAM) for seed in range(3)]
    laptop = Setting("five epochs", words=five, complete=["first_five"])
    made = study(claims=[claim(measure="first_five")], laptop=laptop)
    one = measured(made, curves)
    assert (one.block.name, one.so_far) == ("laptop", False)
    whole = [run(words, 7, [9.0] * 250) for words in (PLAIN, CBAM)]  # a seed each tells less
    assert measured(made, [*curves, *whole]) == one
    assert measured(study(claims=[claim()], laptop=laptop), curves).so_far


def test_a_row_of_which_not_all_combinations_were_run_is_so_far() -> None:
    made = study(row("A", SWEPT), row("B", CBAM), claims=[claim()])
    found = [*runs(SWEPT.replace("1,2,3", "1"), SPREAD), *runs(CBAM, moved(SPREAD, 5))]
    assert measured(made, found).so_far
    rest = [one for number in "23" for one in runs(SWEPT.replace("1,2,3", number), SPREAD)]
    assert not measured(made, [*found, *rest]).so_far


def test_time_is_compared_by_alternate_steps(tmp_path: Path) -> None:
    """Rounds of +18, +20 and +22.5 %, on a machine that gets slower; those of other networks count for nothing."""
    made = study(claims=[claim("relative", measure="seconds")])
    name = steps.name_of(made.claims[0], select(made).blocks[0])
    seconds = {"A": [1.0, 2.0, 4.0], "B": [1.18, 2.4, 4.9]}
    path = tmp_path / "benchmarks" / "claims.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"device": "a processor", "claims": {name: seconds}}))
    (one,) = measure([made], [], steps=steps.read(tmp_path))[0].claims
    logarithms = [log(1.18), log(1.2), log(1.225)]
    half = stats.t.ppf(0.975, 2) * stats.sem(logarithms)
    mean = sum(logarithms) / 3
    assert one.effect.interval == pytest.approx([100 * (exp(mean + sign * half) - 1) for sign in (-1, 1)])
    assert (one.verdict, one.evidence, one.reason) == (
        "supported",
        "counted",
        "processor time of 3 rounds on a processor",
    )
    (one,) = measure([study(claims=[claim("relative", "", measure="seconds")])], [], steps=steps.read(tmp_path))[
        0
    ].claims
    assert (one.verdict, one.effect is None) == ("no verdict", False)  # a number alone
    for other in (claim("relative", measure="inference"), claim("relative", measure="seconds", pairs=[["A", "C"]])):
        (one,) = measure([study(*ROWS, claims=[other])], [], steps=steps.read(tmp_path))[0].claims
        assert one.verdict == "not run"
    for damaged in ("{}, ", '{"claims": {"a": {"b": ["c"]}}}', '{"claims": {"a": {"b": [-1.0]}}}', "[]"):
        path.write_text(damaged)
        with pytest.raises(InputError, match=r"claims.json: can't be read"):
            steps.read(tmp_path)


def test_a_partial_test_set_adds_its_error() -> None:
    """On the first 1,000 images; and less where it is known which of them each run has right."""
    part = "budget.test_images=1000"
    found = [*runs(f"{PLAIN} {part}", [90.0, 91.0, 89.0]), *runs(f"{CBAM} {part}", [91.0, 92.0, 90.0])]
    laptop = Setting("", words=part)
    made = study(claims=[claim()], laptop=laptop)
    alone = measured(made, found)
    assert alone.sampling == pytest.approx((9 + 8.19) / 10, rel=0.01)
    assert alone.effect.interval[1] - alone.effect.interval[0] > 2 * 1.96 * sqrt(2 / 3 + alone.sampling)
    bits = [packed([image < 10 * (one.max_accuracy or 0) for image in range(1_000)]) for one in found]
    right = [dataclasses.replace(one, correct={"max_accuracy": of}) for one, of in zip(found, bits, strict=True)]
    paired = measured(made, right)  # 20 images lie between the networks' best and worst
    assert 0 < paired.sampling < alone.sampling / 10
    some = measured(made, [*right[:-1], found[-1]])  # a record without bits leaves the others paired
    assert 0 < some.sampling < alone.sampling / 10
    assert measured(made, [*right[:3], *found[3:]]).sampling == alone.sampling  # a row without any
    sized = measured(study(claims=[claim(claimed="+5.00")], laptop=laptop), found)
    beside_theirs = effect(sized.terms, 1, 2 * alone.sampling)  # the source's test images are others, too
    assert sized.size_p == pytest.approx(beside_theirs.p_value(4.995))


def test_held_out_runs_are_paired_by_image_and_have_no_last_epoch() -> None:
    part, found = "budget.test_images=1000 protocol=heldout", []
    for words, correct in ((PLAIN, 900), (CBAM, 920)):
        for seed in range(3):
            bits = {"heldout_accuracy": packed([image < correct + seed for image in range(1_000)])}
            found.append(run(f"{words} {part}", seed, tested=(correct + seed) / 10, correct=bits))
    made = study(row("A", f"{PLAIN} {part}"), row("B", f"{CBAM} {part}"), claims=[claim()], laptop=None)
    one = measured(made, found)
    assert (one.decided, one.last) == ("supported", None)
    assert one.sampling < 0.2  # of 90 % of 1,000 independent images: 1.64


def test_precisions_are_not_mixed() -> None:
    alone = [*runs(PLAIN, [90.0, 91.0], precision="bf16"), *runs(CBAM, [92.0, 93.0], precision="float32")]
    assert measured(study(claims=[claim()]), alone).reason == "the rows differ in data, training, precision or protocol"


def test_rows_with_runs_in_different_settings_are_not_compared() -> None:
    found = [*runs(PLAIN, [90.0, 91.0]), *runs(f"{CBAM} {SHORT}", [90.0, 92.0])]
    one = measured(study(claims=[claim()]), found)
    assert (one.verdict, one.reason) == ("not run", "1 of 2 rows without runs")


# Without a run


def test_a_margin_in_percent_is_one_of_logarithms() -> None:
    """exp(0.098) is 10.3 % more: beyond 10 %, whose logarithm is 0.0953."""
    found = [
        run(words, seed, peak_memory_mb={"device": size + seed / 100, "host": 1.0})
        for words, size in ((PLAIN, 50.0), (CBAM, 50 * exp(0.098)))
        for seed in range(3)
    ]
    one = measured(study(claims=[claim("relative", "same", margin=10, measure="memory")]), found)
    assert (one.effect.value, one.verdict) == (pytest.approx(10.3, abs=0.01), "contradicted")


def test_operations_are_counted() -> None:
    """Sabour et al.'s CNN against CapsNet: 3.93 against 0.404 billion, as counted in the review of the texts."""
    cnn = "model=sabour_cnn data=mnist"
    made = study(*ROWS, row("CNN", cnn), claims=[claim("factor", "10", measure="operations", pairs=[["CNN", "A"]])])
    one = measured(made, [])
    assert (one.verdict, one.runs) == ("supported", 0)
    assert one.effect.value == pytest.approx(9.7, abs=0.05)


@pytest.mark.parametrize(
    ("estimate", "claimed", "b", "effect", "verdict", "size"),
    [
        ("factor", "0.2", "CNN", 1 / 5.2093, "supported", "compatible"),  # a count has no error but the rounding
        ("factor", "0.3", "CNN", 1 / 5.2093, "supported", "larger"),
        ("factor", "0.1", "CNN", 1 / 5.2093, "supported", "smaller"),
        ("factor", "4", "B", 6_804_224 / 6_812_788, "contradicted", "smaller"),
        ("relative", "no increase", "B", 0.12586, "supported", None),
    ],
)
def test_parameters_are_counted(
    estimate: str, claimed: str, b: str, effect: float, verdict: str, size: str | None
) -> None:
    margin = 1.0 if claimed == "no increase" else None
    rows = [*study().rows, row("CNN", "model=sabour_cnn data=mnist")]
    counted = claim(estimate, claimed, measure="parameters", margin=margin, pairs=[["A", b]])
    one = measured(study(*rows, claims=[counted]), [])
    assert one.effect.value == pytest.approx(effect, rel=1e-4)
    assert (one.verdict, one.size, one.runs) == (verdict, size, 0)


def test_printed_numbers_are_compared_without_a_run() -> None:
    """98.38 and 100 % differ by 1.62, not by the claimed 1.16."""
    rows = [row("A", PLAIN, accuracy="98.38"), row("B", CBAM, accuracy="100")]
    printed = measured(study(*rows, claims=[claim(claimed="+1.16")]), []).printed
    assert (printed.value, printed.interval) == (pytest.approx(1.62), None)
    epochs = [row("A", PLAIN, first_epoch="133"), row("B", CBAM, first_epoch="100")]
    saved = measured(study(*epochs, claims=[claim("relative", "-50", measure="first_epoch")]), []).printed
    assert (saved.value, saved.interval) == (pytest.approx(-24.8, abs=0.1), None)


# Claims of a source together


def test_holm_counts_each_claim_of_a_source_once() -> None:
    """Two studies state the same claim, and a third of them another: two hypotheses."""
    claims = [claim(), claim(pairs=[["A", "C"]])]
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.4)), *runs(OTHER, moved(SPREAD, 0.6))]
    made = [study(*ROWS, name=name, claims=claims[:count]) for name, count in (("one", 2), ("two", 1))]
    first, second = measure(made, [*map(run_of, found)])
    small, large = sorted(first.claims, key=lambda one: one.p_value or 1)
    assert small.adjusted == pytest.approx(2 * small.p_value)
    assert large.adjusted == pytest.approx(max(large.p_value, 2 * small.p_value))
    assert second.claims[0].adjusted == first.claims[0].adjusted


def test_long_and_short_trainings_are_corrected_by_themselves() -> None:
    """Weak claims after shorter training don't weaken a strong one; its seeds are counted at the corrected level."""
    whole = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.4))]
    short = [*runs(f"{PLAIN} {SHORT}", SPREAD), *runs(f"{OTHER} {SHORT}", moved(SPREAD, 0.1))]
    first, second = results(study(*ROWS, claims=[claim(), claim(pairs=[["A", "C"]])]), [*whole, *short]).claims
    assert (first.so_far, second.so_far) == (False, True)
    assert (first.adjusted, second.adjusted) == (first.p_value, second.p_value)
    assert (first.decided, first.is_decided, second.decided) == ("supported", True, "none above")


def sources(monkeypatch: pytest.MonkeyPatch, *made: Study) -> dict[str, Study]:
    """These studies as the only ones."""
    by_name = {one.name: one for one in made}
    monkeypatch.setattr(studies, "names", lambda: list(by_name))
    monkeypatch.setattr(studies, "load", by_name.get)
    return by_name


def test_a_study_is_corrected_for_the_claims_of_its_whole_source_whatever_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`reproduce` types a budget, and `tables` nothing: from the same records, the same p-values."""
    made = sources(
        monkeypatch,
        study(name="one", claims=[claim()]),
        study(row("A", PLAIN), row("B", OTHER), name="two", claims=[claim()]),
    )
    found = [*map(run_of, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(OTHER, moved(SPREAD, 0.3))])]
    every = [
        [(one.p_value, one.adjusted) for of_study in measure([*made.values()], found, typed) for one in of_study.claims]
        for typed in ([], ["budget=paper"], ["trainer=cpu"])
    ]
    assert every[0] == every[1] == every[2]
    for typed in ([], ["budget=paper"]):
        (alone,) = measure([made["two"]], found, typed)
        (one,) = alone.claims  # the smaller of two p-values
        assert [(one.p_value, one.adjusted)] == every[0][1:] == [(one.p_value, pytest.approx(2 * one.p_value))]


def test_a_row_alone_has_the_numbers_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sources(monkeypatch, study(*ROWS, name="one"))["one"]
    found = [*map(run_of, [*runs(PLAIN, SPREAD), *runs(CBAM, [80.0, 99.0]), *runs(OTHER, SPREAD)])]
    (whole,), (alone,) = (measure([one], found) for one in (made, dataclasses.replace(made, rows=made.rows[:1])))
    assert cell(alone, "A") == cell(whole, "A")


def test_typed_experiments_of_a_source_are_not_among_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the data set that is typed, study one compares what study three claims; study two isn't changed by it."""
    fashion = [words.replace("mnist", "fashion_mnist") for words in (PLAIN, CBAM, OTHER)]
    made = sources(
        monkeypatch,
        study(name="one", claims=[claim()]),
        study(row("A", fashion[0]), row("B", fashion[2]), name="two", claims=[claim()]),
        study(row("A", fashion[0]), row("B", fashion[1]), name="three", claims=[claim()]),
    )
    curves = zip(fashion, (0, 0.15, 0.3), strict=True)
    found = [run_of(one) for words, by in curves for one in runs(words, moved(SPREAD, by))]
    other, two = measure([made["one"], made["two"]], found, ["data=fashion_mnist"])
    assert (other.typed, two.typed) == (True, False)
    (one,) = two.claims
    assert one.adjusted == pytest.approx(2 * one.p_value)


def test_readings_and_claims_of_our_own_are_not_corrected() -> None:
    other = row("C", f"{CBAM} routing.iterations=1")
    reading = claim(text="read otherwise", pairs=[["A", "C"]], counted=False)
    made = study(*study().rows, other, claims=[claim(), reading, claim(text="ours", counted=False)])
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(other.run or "", SPREAD)]
    own, reading_too, ours = results(made, found).claims
    assert own.adjusted == own.p_value  # the only hypothesis
    assert (reading_too.adjusted, ours.adjusted) == (None, None)
    assert len({own.key, reading_too.key, ours.key}) == 3


@pytest.mark.parametrize("seeds", [1, 3])
def test_of_typed_words_there_is_an_effect_and_no_verdict(seeds: int) -> None:
    data = "fashion_mnist"
    found = [
        *runs(PLAIN.replace("mnist", data), SPREAD[:seeds]),
        *runs(CBAM.replace("mnist", data), moved(SPREAD, 1)[:seeds]),
    ]
    one = measured(study(claims=[claim(claimed="+1")]), found, f"data={data}", "paths.logs=x")
    assert (one.block.name, one.effect.value, one.so_far) == ("typed", pytest.approx(1), True)
    assert (one.verdict, one.size, one.p_value, one.seeds) == ("no verdict", None, None, None)
    assert (one.effect.interval is None) == (seeds == 1)
    counted = claim("factor", "4", measure="parameters", pairs=[["B", "A"]])
    assert measured(study(claims=[counted]), [], f"data={data}").verdict == "no verdict"

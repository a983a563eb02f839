"""Claims, tested on made-up runs: which rows are compared, in which setting, and what is known without a run."""

import dataclasses
from math import exp, log, sqrt

import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, row, run, runs, study
from scipy import stats

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import collect, collect_by_source
from capsexp.results.runs import run_of
from capsexp.results.statistics import Interval, effect
from capsexp.run.records import Record, packed
from capsexp.study import studies
from capsexp.study.studies import Study

SHORT = "budget.epochs=2"
SPREAD = [98.9, 99.0, 99.1]  # s = 0.1
OTHER = f"{PLAIN} routing.iterations=1"
ROWS = [row("A", PLAIN), row("B", CBAM), row("C", OTHER)]


def measured(made: Study, found: list[Record], *typed: str) -> MeasuredClaim:
    """The only claim of a study."""
    (one,) = results(made, found, typed).claims
    return one


def value(one: MeasuredClaim) -> float:
    assert one.measured is not None
    return one.measured.value


def interval(one: MeasuredClaim) -> Interval:
    assert one.measured is not None
    assert one.measured.interval is not None
    return one.measured.interval


def moved(values: list[float], by: float) -> list[float]:
    return [each + by for each in values]


# The effect and its interval


def test_a_difference_by_hand() -> None:
    """A: v = 0.01, B: v = 0.04, both with 2 degrees of freedom: each borrows 4/3 from the other."""
    one = measured(study(claims=[claim()]), [*runs(PLAIN, SPREAD), *runs(CBAM, [99.3, 99.5, 99.7])])
    assert value(one) == pytest.approx(0.5)
    a, b = ((4 / 3 * other + 2 * own) / (10 / 3) for own, other in ((0.01, 0.04), (0.04, 0.01)))
    half = stats.t.ppf(0.975, 10 / 3) * sqrt((a + b) / 3)  # Welch's degrees of freedom are more than one network's
    assert interval(one) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert (one.verdict, one.so_far, one.runs) == ("supported", "", 6)
    assert one.last is not None
    assert one.last.value == value(one)  # of one epoch


def test_a_size_has_two_answers() -> None:
    """+0.84 where 1.57 is claimed: yes, and smaller; where 10 is claimed, or nothing gained, no such gain."""
    found = [*runs(PLAIN, moved(SPREAD, -2)), *runs(CBAM, moved(SPREAD, -1.16))]
    answers = {
        size: (one.verdict, one.size, one.decided_size)
        for size in ("+1.57", "+1", "+0.1", "-1")
        for one in [measured(study(claims=[claim(claimed=size)]), found)]
    }
    assert answers == {
        "+1.57": ("supported", "smaller", "smaller"),
        "+1": ("supported", "as printed", "as printed"),
        "+0.1": ("supported", "larger", "larger"),
        "-1": ("contradicted", "no gain of that size", "no gain of that size"),
    }
    equal = [*runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)]
    assert measured(study(claims=[claim(claimed="+0.9")]), equal).size == "no gain of that size"
    wide = [*runs(PLAIN, [97.0, 98.0, 99.0]), *runs(CBAM, [97.5, 98.5, 99.5])]
    open_claim = measured(study(claims=[claim(claimed="+0.9")]), wide)
    assert (open_claim.verdict, open_claim.size) == ("open", "open")
    assert open_claim.seeds == 22  # 2 (1.96 + 0.84)² / 0.81 = 19.4, and the spread isn't known exactly


def test_a_printed_size_has_the_noise_of_single_runs() -> None:
    """0.5 less than printed: beyond our own interval, but not beyond what one run a network may differ by."""
    found = [*runs(PLAIN, [98.8, 99.0, 99.2]), *runs(CBAM, [99.3, 99.5, 99.7])]
    one = measured(study(claims=[claim(claimed="+1.05")]), found)
    assert interval(one)[1] < 1.05
    assert (one.verdict, one.size) == ("supported", "open")
    assert measured(study(claims=[claim(claimed="+1.05")], printed_runs=30), found).size == "smaller"


def test_the_whole_training_of_some_pairs_counts_more_than_a_shorter_one_of_all() -> None:
    short = [one for words in (PLAIN, CBAM, OTHER) for one in runs(f"{words} {SHORT}", SPREAD)]
    made = study(*ROWS, claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    one = measured(made, [*short, *runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)])
    assert one.setting is not None
    assert (one.setting.whole, one.so_far) == (True, "1 of 2 comparisons")


def test_the_ceiling_is_above_the_first_row_of_a_pair() -> None:
    found = [*runs(PLAIN, [99.4, 99.5, 99.6]), *runs(CBAM, SPREAD)]
    below = measured(study(claims=[claim(claimed="+1")]), found)
    assert (below.verdict, below.p_value is None) == ("contradicted", False)
    equal = [*runs(PLAIN, [99.4, 99.5, 99.6]), *runs(CBAM, [99.4, 99.5, 99.6])]
    at = measured(study(claims=[claim(claimed="+1")]), equal)
    assert (at.verdict, at.size, at.p_value) == ("ceiling", None, None)  # nothing is tested
    assert measured(study(claims=[claim(claimed="+0.4")]), equal).verdict == "open"
    all_right = [*runs(PLAIN, [100.0] * 3), *runs(CBAM, [100.0] * 3)]
    assert measured(study(claims=[claim()]), all_right).verdict == "ceiling"  # of a direction: not one image is left
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, [99.4, 99.5, 99.6])]
    assert measured(study(claims=[claim(claimed="+0.8")]), found).verdict == "supported"


def test_whole_trainings_of_another_length_are_another_setting() -> None:
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5))]
    made = study(claims=[claim()])
    shorter = [one for words in (PLAIN, CBAM) for one in runs(f"{words} optim.epochs=7", [98.7, 99.0, 99.3])]
    assert measured(made, [*found, *shorter]) == measured(made, found)


def test_rows_on_different_data_have_no_common_spread() -> None:
    other = PLAIN.replace("mnist", "fashion_mnist")
    found = [*runs(PLAIN, SPREAD), *runs(other, moved(SPREAD, 5))]
    one = measured(study(row("A", PLAIN), row("B", other), claims=[claim()]), found)
    assert value(one) == pytest.approx(5)
    assert one.measured is not None
    assert (one.measured.interval, one.verdict) == (None, "open")


def test_the_best_of_several_runs_is_compared_even_if_one_of_them_is_unstable() -> None:
    rows = [row("A", CBAM), row("B", SWEPT)]
    first, second, third = (SWEPT.replace("1,2,3", number) for number in "123")
    steady = [*runs(CBAM, SPREAD), *runs(second, SPREAD), *runs(third, SPREAD)]
    one = measured(study(*rows, claims=[claim()]), [*steady, *runs(first, [99.9, 20.0, 99.9])])
    assert value(one) == pytest.approx((99.9 + 99.0 + 99.9) / 3 - 99.0)
    assert "unstable" not in one.reason


def test_runs_of_protocol_heldout_are_not_in_claims() -> None:
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5))]
    heldout = [run(f"{CBAM} protocol=heldout", seed, [90.0], tested=50.0) for seed in (0, 1, 2)]
    made = study(claims=[claim()])
    assert measured(made, [*heldout, *found]) == measured(made, found)


def test_a_single_run_decides_only_an_effect_far_beyond_any_spread() -> None:
    steady = [*runs(CBAM, moved(SPREAD, -1)), *runs(OTHER, moved(SPREAD, -3))]
    near = measured(study(*ROWS, claims=[claim()]), [*runs(PLAIN, [97.5]), *steady])
    assert near.measured is not None
    assert (near.verdict, near.measured.interval, near.p_value) == ("open (one run)", None, None)
    assert (near.seeds or 2) >= 2
    far = measured(study(*ROWS, claims=[claim()]), [*runs(PLAIN, [95.0]), *steady])
    assert far.verdict == "supported"
    alone = measured(study(claims=[claim()]), [*runs(PLAIN, [10.0]), *runs(CBAM, [99.5])])
    assert alone.measured is not None
    assert (alone.verdict, alone.measured.interval, alone.p_value) == ("open (one run)", None, None)


def test_pairs_of_single_runs_are_left_out_where_others_have_seeds() -> None:
    made = study(*ROWS, claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(OTHER, [9.0])]
    one = measured(made, found)
    assert (value(one), one.so_far, one.reason) == (
        pytest.approx(0.5),
        "1 of 2 comparisons",
        "without C (one run each)",
    )


def test_first_epochs_are_compared_by_their_logarithms() -> None:
    """From 4, 2, 5 epochs to 2, 1, 3: the mean of the logarithms, not of the percentages."""
    a = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((4, 2, 5))]
    b = [run(CBAM, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((2, 1, 3))]
    one = measured(study(claims=[claim("relative", "-50", measure="first_epoch")]), [*a, *b])
    assert value(one) == pytest.approx(100 * (exp((log(6) - log(40)) / 3) - 1))
    assert one.verdict == "open"


def test_a_maximum_in_the_last_epoch_is_not_compared() -> None:
    found = [run(PLAIN, 0, [1.0, 9.0]), run(CBAM, 0, [9.0, 1.0]), run(CBAM, 1, [9.0, 1.0])]
    saved = claim("relative", "decrease", measure="first_epoch")
    one = measured(study(claims=[saved]), found)
    assert (one.verdict, one.reason, one.measured) == ("open", "still rising in the last epoch", None)
    pairs = [["A", "B"], ["A", "C"]]  # A and B alone would be selected by what is measured
    curves = {PLAIN: [1.0, 9.0, 1.0], CBAM: [9.0, 1.0, 1.0], OTHER: [1.0, 2.0, 9.0]}
    found = [run(words, seed, curve) for words, curve in curves.items() for seed in (0, 1)]
    one = measured(study(*ROWS, claims=[dataclasses.replace(saved, pairs=pairs)]), found)
    assert (one.verdict, one.reason, one.measured) == ("open", "still rising in the last epoch", None)


def test_pairs_are_averaged() -> None:
    found = [*runs(PLAIN, [1.0] * 3), *runs(CBAM, [2.0, 3.0, 4.0]), *runs(OTHER, [4.0, 5.0, 6.0])]
    one = measured(study(*ROWS, claims=[claim(pairs=[["A", "B"], ["A", "C"]])]), found)
    assert one.measured is not None
    assert (value(one), one.measured.pairs) == (3.0, (2.0, 4.0))
    floor = 0.25 * 99 / 10_000  # A's own variance is less; of 4 degrees of freedom of others, each borrows 2
    a, b = (2 * 1 + 2 * floor) / 4, (2 * (1 + floor) / 2 + 2 * 1) / 4
    half = stats.t.ppf(0.975, 4) * sqrt((a + 2 * 0.25 * b) / 3)  # weights −1, 0.5, 0.5, three seeds each
    assert interval(one)[0] == pytest.approx(3 - half, abs=1e-5)


def test_a_slope_is_over_the_rows_in_their_order() -> None:
    rows = [row(name, SWEPT.replace("1,2,3", str(i))) for i, name in enumerate("ABC", 1)]
    means = [1.0, 2.0, 6.0]
    found = [each for one, mean in zip(rows, means, strict=True) for each in runs(one.run or "", moved(SPREAD, mean))]
    assert value(measured(study(*rows, claims=[claim("slope", rows=["A", "B", "C"])]), found)) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("claimed", "margin", "verdict"),
    [("same", "0.5", "no difference, shown"), ("no decrease", "0.5", "supported"), ("no increase", "0.01", "open")],
)
def test_claims_that_there_is_nothing(claimed: str, margin: str, verdict: str) -> None:
    made = study(claims=[claim(claimed=claimed, margin=margin)])
    assert measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)]).verdict == verdict


# What is compared


def test_a_part_of_a_claim_is_measured_so_far() -> None:
    made = study(*ROWS, claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    one = measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 1))])
    assert (value(one), one.verdict, one.so_far) == (pytest.approx(1.0), "supported", "1 of 2 comparisons")


def test_an_unstable_row_has_its_own_spread_and_is_named() -> None:
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(OTHER, [97.0, 10.0, 96.0])]
    one = measured(study(*ROWS, claims=[claim(pairs=[["A", "C"]])]), found)
    assert (one.verdict, one.reason) == ("open", "C unstable, by its own spread")
    assert interval(one)[1] - interval(one)[0] > 200  # two degrees of freedom
    steady = measured(study(*ROWS, claims=[claim()]), found)
    assert steady.verdict == "supported"  # the unstable one says nothing of the others


def test_a_claim_is_tested_in_one_setting_the_papers_first() -> None:
    found = [
        *runs(PLAIN, moved(SPREAD, 5)),
        *runs(f"{PLAIN} {SHORT}", SPREAD),
        *runs(f"{CBAM} {SHORT}", moved(SPREAD, 7)),
    ]
    one = measured(study(claims=[claim()]), found)
    assert (value(one), one.verdict, one.so_far) == (pytest.approx(7.0), "supported", "2 of 250 epochs")
    whole = measured(study(claims=[claim()]), [*found, *runs(CBAM, moved(SPREAD, 5.5))])
    assert (value(whole), whole.verdict, whole.so_far) == (pytest.approx(0.5), "supported", "")


def test_what_the_study_says_differs_is_so_far() -> None:
    made = study(claims=[claim()], differs="our own maps")
    assert measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 1))]).so_far == "our own maps"


def test_five_whole_epochs_are_the_papers_first_five() -> None:
    five = "budget.epochs=5"
    curves = {words: [run(f"{words} {five}", seed, [9.0 + seed] * 5) for seed in range(3)] for words in (PLAIN, CBAM)}
    made = study(claims=[claim(measure="first_five")])
    one = measured(made, [*curves[PLAIN], *curves[CBAM]])
    assert one.so_far == ""
    whole = [run(words, 7, [9.0] * 250) for words in (PLAIN, CBAM)]  # a seed each tells less
    assert measured(made, [*curves[PLAIN], *curves[CBAM], *whole]) == one


def test_a_row_of_which_not_all_combinations_were_run_is_so_far() -> None:
    made = study(row("A", SWEPT), row("B", CBAM), claims=[claim()])
    found = [*runs(SWEPT.replace("1,2,3", "1"), SPREAD), *runs(CBAM, moved(SPREAD, 5))]
    assert measured(made, found).so_far == "1 of 3 combinations"
    rest = [one for number in "23" for one in runs(SWEPT.replace("1,2,3", number), SPREAD)]
    assert measured(made, [*found, *rest]).so_far == ""


def test_costs_are_compared_on_one_device_and_times_on_quiet_machines() -> None:
    made = study(claims=[claim(measure="memory")])
    here = [run(PLAIN, seed, peak_memory_mb={"device": 10.0 + seed, "host": 1.0}) for seed in range(3)]
    there = run(CBAM, 0, peak_memory_mb={"device": 90.0, "host": 1.0}, device="another")
    same = run(CBAM, 1, peak_memory_mb={"device": 16.0, "host": 1.0})
    one = measured(made, [*here, there, same])
    assert (value(one), one.runs, one.so_far) == (5.0, 4, "")
    times = [*runs(PLAIN, SPREAD, load=1.0, threads=1), *runs(CBAM, SPREAD, load=2.0, threads=1)]
    busy = measured(study(claims=[claim(measure="seconds")]), times)
    assert (busy.verdict, busy.reason) == ("open", "times were measured on a busy machine only")
    quiet = [*runs(PLAIN, SPREAD, load=1.0, threads=2), *runs(CBAM, SPREAD, load=2.0, threads=2)]
    assert measured(study(claims=[claim(measure="seconds")]), quiet).runs == 6


def test_a_partial_test_set_adds_its_error() -> None:
    """On the first 1,000 images; and less where it is known which of them each run has right."""
    part = "budget.test_images=1000"
    found = [*runs(f"{PLAIN} {part}", [90.0, 91.0, 89.0]), *runs(f"{CBAM} {part}", [91.0, 92.0, 90.0])]
    alone = measured(study(claims=[claim()]), found)
    assert alone.images == pytest.approx((9 + 8.19) / 10, rel=0.01)
    assert interval(alone)[1] - interval(alone)[0] > 2 * 1.96 * sqrt(2 / 3 + alone.images)
    bits = [packed([image < 10 * (one.max_accuracy or 0) for image in range(1_000)]) for one in found]
    right = [dataclasses.replace(one, correct={"max_accuracy": of}) for one, of in zip(found, bits, strict=True)]
    paired = measured(study(claims=[claim()]), right)  # 20 images lie between the networks' best and worst
    assert 0 < paired.images < alone.images / 10
    assert measured(study(claims=[claim()]), [*right[:-1], found[-1]]).images == alone.images
    sized = measured(study(claims=[claim(claimed="+5.00")]), found)
    beside_theirs = effect(sized.terms, 1, 2 * alone.images)  # the source's test images are others, too
    assert sized.size_p == pytest.approx(beside_theirs.p_value(4.995))


# Without a run


def test_a_margin_in_percent_is_one_of_logarithms() -> None:
    """exp(0.098) is 10.3 % more: beyond 10 %, whose logarithm is 0.0953."""
    found = [
        run(words, seed, peak_memory_mb={"device": size + seed / 100, "host": 1.0})
        for words, size in ((PLAIN, 50.0), (CBAM, 50 * exp(0.098)))
        for seed in range(3)
    ]
    one = measured(study(claims=[claim("relative", "same", margin="10", measure="memory")]), found)
    assert (value(one), one.verdict) == (pytest.approx(10.3, abs=0.01), "contradicted")


def test_parameters_are_counted() -> None:
    one = measured(study(claims=[claim("factor", "4", measure="parameters", pairs=[["B", "A"]])]), [])
    assert value(one) == pytest.approx(6_812_788 / 6_804_224)
    assert (one.verdict, one.size, one.runs) == ("supported", "smaller", 0)
    assert one.measured is not None
    assert one.measured.pairs == pytest.approx((value(one),))
    cnn = row("C", "model=sabour_cnn data=mnist")
    sizes = {}
    for size in ("5", "6", "4", "5.21", "5.3"):
        more = claim("factor", size, measure="parameters", pairs=[["C", "A"]])
        sizes[size] = measured(study(*study().rows, cnn, claims=[more]), [])
    assert value(sizes["5"]) == pytest.approx(5.2093, abs=1e-3)  # a count has no error but the printed rounding
    assert [one.size for one in sizes.values()] == ["as printed", "smaller", "larger", "as printed", "smaller"]
    more = measured(study(claims=[claim("relative", "no increase", measure="parameters", margin="1")]), [])
    assert (value(more), more.verdict) == (pytest.approx(0.12586, abs=1e-5), "supported")
    assert measured(study(claims=[claim("factor", "4", measure="parameters")]), []).verdict == "contradicted"


def test_printed_numbers_are_compared_without_a_run() -> None:
    """98.38 and 100 % differ by 1.62, not by the claimed 1.16; with runs, they have our spread, one run each."""
    rows = [row("A", PLAIN, accuracy="98.38"), row("B", CBAM, accuracy="100")]
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)]
    printed, measured_too = (
        measured(study(*rows, claims=[claim(claimed="+1.16")]), one).printed for one in ([], found)
    )
    assert printed is not None
    assert (printed.value, printed.interval) == (pytest.approx(1.62), None)
    assert measured_too is not None
    assert measured_too.interval is not None
    half = stats.t.ppf(0.975, 10 / 3) * 0.1 * sqrt(2)
    assert measured_too.interval == pytest.approx((1.62 - half, 1.62 + half))
    epochs = [row("A", PLAIN, first_epoch="133"), row("B", CBAM, first_epoch="100")]
    saved = measured(study(*epochs, claims=[claim("relative", "-50", measure="first_epoch")]), []).printed
    assert saved is not None
    assert (saved.value, saved.interval) == (pytest.approx(-24.8, abs=0.1), None)


# Claims of a source together


def test_holm_counts_each_claim_of_a_source_once() -> None:
    """Two studies state the same claim, and a third of them another: two hypotheses."""
    claims = [claim(), claim(pairs=[["A", "C"]])]
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(OTHER, moved(SPREAD, 0.3))]
    made = [study(*ROWS, name=name, claims=claims[:count]) for name, count in (("one", 2), ("two", 1))]
    first, second = collect(made, [*map(run_of, found)])
    small, large = sorted(first.claims, key=lambda one: one.p_value or 1)
    assert small.p_value is not None
    assert large.p_value is not None
    assert small.adjusted == pytest.approx(2 * small.p_value)
    assert large.adjusted == pytest.approx(max(large.p_value, 2 * small.p_value))
    assert second.claims[0].adjusted == first.claims[0].adjusted


def test_long_and_short_trainings_are_corrected_by_themselves() -> None:
    """Weak claims after shorter training don't weaken a strong one; its seeds are counted at the corrected level."""
    whole = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.4))]
    short = [*runs(f"{PLAIN} {SHORT}", SPREAD), *runs(f"{OTHER} {SHORT}", moved(SPREAD, 0.1))]
    first, second = results(study(*ROWS, claims=[claim(), claim(pairs=[["A", "C"]])]), [*whole, *short]).claims
    assert (first.so_far, second.so_far) == ("", "2 of 250 epochs")
    assert (first.adjusted, second.adjusted) == (first.p_value, second.p_value)
    assert (first.decided, first.holds, second.decided) == ("supported", True, "open")


def test_a_study_is_corrected_for_the_claims_of_its_whole_source_whatever_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`reproduce` types a budget, and `tables` nothing: from the same records, the same p-values."""
    made = {
        "one": study(name="one", claims=[claim()]),
        "two": study(row("A", PLAIN), row("B", OTHER), name="two", claims=[claim()]),
    }
    monkeypatch.setattr(studies, "names", lambda: list(made))
    monkeypatch.setattr(studies, "load", made.get)
    found = [*map(run_of, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(OTHER, moved(SPREAD, 0.3))])]
    every = [
        [(one.p_value, one.adjusted) for of_study in collect_by_source(chosen, found, typed) for one in of_study.claims]
        for chosen, typed in (
            ([*made.values()], []),
            ([*made.values()], ["budget=paper"]),
            ([*made.values()], ["trainer=cpu", "seed=0,1,2"]),
        )
    ]
    assert every[0] == every[1] == every[2]
    for typed in ([], ["budget=paper"]):
        (alone,) = collect_by_source([made["two"]], found, typed)
        (one,) = alone.claims  # the smaller of two p-values
        assert one.p_value is not None
        assert [(one.p_value, one.adjusted)] == every[0][1:] == [(one.p_value, pytest.approx(2 * one.p_value))]


def test_a_reading_has_the_key_of_its_claim_and_is_not_corrected() -> None:
    other = row("C", f"{CBAM} routing.iterations=1")
    rows = [*study().rows, type(other)(**{**vars(other), "reading_of": "B"})]
    made = study(
        *rows, claims=[claim(), claim(text="read otherwise", pairs=[["A", "C"]]), claim(text="ours", ours=True)]
    )
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(other.run or "", SPREAD)]
    own, reading, ours = results(made, found).claims
    assert (own.reading, reading.reading, own.key == reading.key) == (False, True, True)
    assert own.adjusted == own.p_value  # the only hypothesis
    assert (reading.adjusted, ours.adjusted) == (None, None)
    assert ours.key != own.key


def test_a_claim_on_other_data_says_so() -> None:
    data = "fashion_mnist"
    found = [*runs(PLAIN.replace("mnist", data), SPREAD), *runs(CBAM.replace("mnist", data), moved(SPREAD, 1))]
    for made in (claim(), claim("factor", "4", measure="parameters", pairs=[["B", "A"]])):
        assert measured(study(claims=[made]), found, f"data={data}", "paths.logs=x").so_far == f"data={data}"

"""Claims, tested on made-up runs: which rows are compared, in which setting, and what is known without a run."""

from math import exp, log, sqrt

import pytest
from made import CBAM, PLAIN, SWEPT, claim, frame_of, results, row, run, runs, study

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import collect, collect_by_source
from capsexp.results.statistics import Interval
from capsexp.run.records import Record
from capsexp.study import studies
from capsexp.study.studies import Study

T4 = 2.776445  # Student's two-sided 95 % quantile with four degrees of freedom, from a printed table
SHORT = "budget.epochs=2"
SPREAD = [98.9, 99.0, 99.1]  # s = 0.1


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


def test_a_difference_has_the_pooled_spread() -> None:
    """A: s² = 0.01, B: s² = 0.04, both with 2 degrees of freedom; seeds are not paired."""
    one = measured(study(claims=[claim()]), [*runs(PLAIN, SPREAD), *runs(CBAM, [99.3, 99.5, 99.7])])
    assert value(one) == pytest.approx(0.5)
    half = T4 * sqrt(0.025 * 2 / 3)
    assert interval(one) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)
    assert (one.verdict, one.so_far, one.runs) == ("supported", "", 6)


def test_seeds_are_paired_where_they_shift_all_rows_alike() -> None:
    """Four cells of four seeds; B lacks the last, and is compared with A in the other three."""
    shifts, noise = [-2.0, 0.0, 1.0, 3.0], [0.01, -0.02, 0.02, -0.01]
    conditions = [PLAIN, CBAM, f"{PLAIN} routing.iterations=1", f"{CBAM} routing.iterations=1"]
    found = [
        run(words, seed, [90 + place + shift + (-1) ** place * noise[(seed + place) % 4]])
        for place, words in enumerate(conditions)
        for seed, shift in enumerate(shifts)
        if (place, seed) != (1, 3)
    ]
    one = measured(study(claims=[claim()]), found)
    assert one.runs == 6
    low, high = interval(one)
    assert 0.9 < low < 1 < high < 1.1  # about 4 points wide without pairs


def test_the_whole_training_of_some_pairs_counts_more_than_a_shorter_one_of_all() -> None:
    third = f"{PLAIN} routing.iterations=1"
    short = [one for words in (PLAIN, CBAM, third) for one in runs(f"{words} {SHORT}", SPREAD)]
    made = study(*study().rows, row("C", third), claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    one = measured(made, [*short, *runs(PLAIN, SPREAD), *runs(CBAM, SPREAD)])
    assert one.setting is not None
    assert (one.setting.whole, one.so_far) == (True, "1 of 2 comparisons")


def test_the_ceiling_is_above_the_first_row_of_a_pair() -> None:
    found = [*runs(PLAIN, [99.4, 99.5, 99.6]), *runs(CBAM, SPREAD)]
    assert measured(study(claims=[claim(claimed="+1")]), found).verdict == "ceiling"
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, [99.4, 99.5, 99.6])]
    assert measured(study(claims=[claim(claimed="+0.8")]), found).verdict == "supported"


def test_rows_on_different_data_have_no_common_spread() -> None:
    other = PLAIN.replace("mnist", "fashion_mnist")
    found = [*runs(PLAIN, SPREAD), *runs(other, moved(SPREAD, 5))]
    one = measured(study(row("A", PLAIN), row("B", other), claims=[claim()]), found)
    assert value(one) == pytest.approx(5)
    assert one.measured is not None
    assert (one.measured.interval, one.verdict) == (None, "open")


def test_seeds_that_do_not_matter_are_all_used() -> None:
    one = measured(study(claims=[claim()]), [*runs(PLAIN, [98.9, 99.0, 99.1]), *runs(CBAM, [99.5, 99.4])])
    assert one.runs == 5
    assert value(one) == pytest.approx(99.45 - 99.0)


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


def test_a_single_run_has_the_spread_of_the_other_cells() -> None:
    rows = [row("A", PLAIN), row("B", CBAM), row("C", f"{PLAIN} routing.iterations=1")]
    found = [*runs(PLAIN, [99.0]), *runs(CBAM, [99.5]), *runs(rows[2].run or "", SPREAD)]
    one = measured(study(*rows, claims=[claim()]), found)
    half = 4.302653 * 0.1 * sqrt(2)
    assert interval(one) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)
    alone = measured(study(claims=[claim()]), found[:2])
    assert alone.measured is not None
    assert (alone.verdict, alone.measured.interval, alone.p_value) == ("open", None, None)


def test_first_epochs_are_compared_by_their_logarithms() -> None:
    """From 4, 2, 5 epochs to 2, 1, 3: the mean of the logarithms, not of the percentages."""
    a = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((4, 2, 5))]
    b = [run(CBAM, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((2, 1, 3))]
    one = measured(study(claims=[claim("relative", "-50", measure="first_epoch")]), [*a, *b])
    assert value(one) == pytest.approx(100 * (exp((log(6) - log(40)) / 3) - 1))
    assert one.verdict == "open"


def test_a_maximum_in_the_last_epoch_is_not_compared() -> None:
    found = [run(PLAIN, 0, [1.0, 9.0]), run(CBAM, 0, [9.0, 1.0]), run(CBAM, 1, [9.0, 1.0])]
    one = measured(study(claims=[claim("relative", "decrease", measure="first_epoch")]), found)
    assert (one.verdict, one.reason, one.measured) == ("open", "still rising in the last epoch", None)


def test_pairs_are_averaged() -> None:
    rows = [row("A", PLAIN), row("B", CBAM), row("C", f"{PLAIN} routing.iterations=1")]
    found = [*runs(PLAIN, [1.0] * 3), *runs(CBAM, [2.0, 3.0, 4.0]), *runs(rows[2].run or "", [4.0, 5.0, 6.0])]
    one = measured(study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "C"]])]), found)
    assert one.measured is not None
    assert (value(one), one.measured.pairs) == (3.0, (2.0, 4.0))
    variance = 4 / 6 * (1 / 3 + 2 * 0.25 / 3)  # weights −1, 0.5, 0.5, three seeds each
    half = 2.446912 * sqrt(variance)  # six degrees of freedom
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
    rows = [row("A", PLAIN), row("B", CBAM), row("C", f"{PLAIN} routing.iterations=1")]
    made = study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    one = measured(made, [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 1))])
    assert (value(one), one.verdict, one.so_far) == (pytest.approx(1.0), "supported", "1 of 2 comparisons")


def test_an_unstable_row_is_left_out() -> None:
    rows = [row("A", PLAIN), row("B", CBAM), row("C", f"{PLAIN} routing.iterations=1")]
    made = study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "C"]])])
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.5)), *runs(rows[2].run or "", [97.0, 10.0, 96.0])]
    one = measured(made, found)
    assert (value(one), one.so_far, one.reason) == (pytest.approx(0.5), "1 of 2 comparisons", "without C, unstable")
    alone = measured(study(*rows, claims=[claim(pairs=[["A", "C"]])]), found)
    assert (alone.measured, alone.verdict, alone.reason) == (None, "open", "C, unstable")


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


def test_missing_rows_are_named() -> None:
    one = measured(study(claims=[claim()]), runs(PLAIN, SPREAD))
    assert (one.verdict, one.reason, one.measured) == ("not run", "B", None)
    apart = measured(study(claims=[claim()]), [run(PLAIN, 0), run(CBAM, 0, precision="float32")])
    assert (apart.verdict, apart.reason) == ("open", "no two rows in one setting")


def test_a_row_of_which_not_all_combinations_were_run_is_so_far() -> None:
    made = study(row("A", SWEPT), row("B", CBAM), claims=[claim()])
    found = [*runs(SWEPT.replace("1,2,3", "1"), SPREAD), *runs(CBAM, moved(SPREAD, 5))]
    assert measured(made, found).so_far == "1 of 3 combinations"
    rest = [one for number in "23" for one in runs(SWEPT.replace("1,2,3", number), SPREAD)]
    assert measured(made, [*found, *rest]).so_far == ""


def test_costs_are_compared_on_one_device_and_times_say_their_load() -> None:
    made = study(claims=[claim(measure="memory")])
    here = [run(PLAIN, seed, peak_memory_mb={"device": 10.0 + seed, "host": 1.0}) for seed in range(3)]
    there = run(CBAM, 0, peak_memory_mb={"device": 90.0, "host": 1.0}, device="another")
    same = run(CBAM, 1, peak_memory_mb={"device": 16.0, "host": 1.0})
    one = measured(made, [*here, there, same])
    assert (value(one), one.runs, one.so_far) == (5.0, 4, "")
    times = [*runs(PLAIN, SPREAD, load=1.0, threads=1), *runs(CBAM, SPREAD, load=2.0, threads=1)]
    assert measured(study(claims=[claim(measure="seconds")]), times).so_far == "on a busy machine"
    quiet = [*runs(PLAIN, SPREAD, load=1.0, threads=2), *runs(CBAM, SPREAD, load=2.0, threads=2)]
    assert measured(study(claims=[claim(measure="seconds")]), quiet).so_far == ""


def test_a_partial_test_set_adds_its_error() -> None:
    """The same runs on all of the test set, and on its first 1,000 images."""
    found = {
        words: [*runs(f"{PLAIN} {words}", [90.0, 90.1, 89.9]), *runs(f"{CBAM} {words}", [91.0, 91.1, 90.9])]
        for words in ("budget=paper", "budget.test_images=1000")
    }
    widths = []
    for records in found.values():
        one = measured(study(claims=[claim()]), records)
        widths.append(interval(one)[1] - interval(one)[0])
    assert widths[0] == pytest.approx(2 * T4 * sqrt(0.01 * 2 / 3), abs=1e-5)
    assert widths[1] == pytest.approx(sqrt(widths[0] ** 2 + (2 * 1.96) ** 2 * (9 + 8.19) / 10), rel=0.03)


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
    assert (one.verdict, one.runs) == ("smaller than claimed", 0)
    assert one.measured is not None
    assert one.measured.pairs == pytest.approx((value(one),))
    cnn = row("C", "model=sabour_cnn data=mnist")
    larger = claim("factor", "10", measure="parameters", pairs=[["C", "A"]])  # more than half of it, on a log scale
    found = measured(study(*study().rows, cnn, claims=[larger]), [])
    assert 4 < value(found) < 9.5
    assert found.verdict == "smaller than claimed"  # a count has no error but the printed rounding
    more = measured(study(claims=[claim("relative", "no increase", measure="parameters", margin="1")]), [])
    assert (value(more), more.verdict) == (pytest.approx(0.12586, abs=1e-5), "supported")
    assert measured(study(claims=[claim("factor", "4", measure="parameters")]), []).verdict == "contradicted"


def test_printed_numbers_are_compared_without_a_run() -> None:
    """98.38 and 100 % differ by 1.62, not by the claimed 1.16; two tests of 10,000 images add their errors."""
    rows = [row("A", PLAIN, accuracy="98.38"), row("B", CBAM, accuracy="100")]
    printed = measured(study(*rows, claims=[claim(claimed="+1.16")]), []).printed
    assert printed is not None
    assert printed.value == pytest.approx(1.62)
    assert printed.interval is not None
    assert printed.interval[0] == pytest.approx(1.62 - 0.25, abs=0.03)
    epochs = [row("A", PLAIN, first_epoch="133"), row("B", CBAM, first_epoch="100")]
    saved = measured(study(*epochs, claims=[claim("relative", "-50", measure="first_epoch")]), []).printed
    assert saved is not None
    assert (saved.value, saved.interval) == (pytest.approx(-24.8, abs=0.1), None)


def test_an_untested_claim_says_why() -> None:
    one = measured(study(claims=[claim("difference", "", measure="accuracy", pairs=[], untested="No network.")]), [])
    assert (one.verdict, one.reason, one.measured) == ("untested", "No network.", None)


# Claims of a source together


def test_holm_counts_each_claim_of_a_source_once() -> None:
    """Two studies state the same claim, and a third of them another: two hypotheses."""
    rows = [*study().rows, row("C", f"{PLAIN} routing.iterations=1")]
    claims = [claim(), claim(pairs=[["A", "C"]])]
    found = [*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(rows[2].run or "", moved(SPREAD, 0.3))]
    made = [study(*rows, name=name, claims=claims[:count]) for name, count in (("one", 2), ("two", 1))]
    first, second = collect(made, frame_of(found))
    small, large = sorted(first.claims, key=lambda one: one.p_value or 1)
    assert small.p_value is not None
    assert large.p_value is not None
    assert small.adjusted == pytest.approx(2 * small.p_value)
    assert large.adjusted == pytest.approx(max(large.p_value, 2 * small.p_value))
    assert second.claims[0].adjusted == first.claims[0].adjusted


def test_a_study_by_its_name_is_corrected_for_the_claims_of_its_whole_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = f"{PLAIN} routing.iterations=1"
    made = {
        "one": study(name="one", claims=[claim()]),
        "two": study(row("A", PLAIN), row("B", other), name="two", claims=[claim()]),
    }
    monkeypatch.setattr(studies, "names", lambda: list(made))
    monkeypatch.setattr(studies, "load", made.get)
    found = frame_of([*runs(PLAIN, SPREAD), *runs(CBAM, moved(SPREAD, 0.15)), *runs(other, moved(SPREAD, 0.3))])
    (alone,) = collect_by_source([made["two"]], found)
    (one,) = alone.claims  # the smaller of two p-values
    assert one.p_value is not None
    assert one.adjusted == pytest.approx(2 * one.p_value)


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

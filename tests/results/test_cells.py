"""Cells: which runs belong to a row, which numbers never share a cell, and numbers against those worked out by hand."""

import dataclasses
from collections import Counter
from math import exp, log, sqrt

import pytest
from made import CBAM, PLAIN, SWEPT, cell, claim, line, results, row, run, runs, study
from scipy import stats

from capsexp.results.cells import Cell, margin_of
from capsexp.results.collect import Results
from capsexp.study import studies

T2 = 4.302653  # Student's two-sided 95 % quantile with two degrees of freedom, from a printed table
SHORT = "budget.epochs=2"


def in_all_settings(made: Results, name: str, measure: str = "accuracy") -> list[Cell]:
    """A row's cells of one measure, in their order."""
    return [one for one in made.cells if (one.row, one.measure, one.protocol) == (name, measure, "paper")]


# One cell


@pytest.mark.parametrize(
    ("published", "verdict"),
    [("98.80", "reproduced"), ("99.13", "ours is lower"), ("98.31", "ours is higher"), ("99.12", "reproduced")],
)
def test_cell_worked_out_by_hand(published: str, verdict: str) -> None:
    made = study(row("A", PLAIN, accuracy=published))
    found = cell(results(made, runs(PLAIN, [98.64, 98.72, 98.80])), "A")
    half = T2 * 0.08 * sqrt(1 + 1 / 3)
    assert (found.n, found.published) == (3, published)
    assert found.mean == pytest.approx(98.72)
    assert found.sd == pytest.approx(0.08)
    assert (found.low, found.high) == pytest.approx((98.72 - half, 98.72 + half), abs=1e-6)
    assert found.difference == pytest.approx(98.72 - float(published))
    assert found.verdict == verdict
    assert (found.seeds, found.values) == ([0, 1, 2], [98.64, 98.72, 98.80])


def test_a_single_run_has_the_spread_of_other_networks_and_no_verdict() -> None:
    found = cell(results(study(), [*runs(PLAIN, [99.75]), *runs(CBAM, [99.4, 99.6, 99.8])]), "A")
    degrees = 1 / (1 / 4 + 1 / 2)
    half = stats.t.ppf(0.975, degrees) * 0.2 * sqrt(2)
    assert (found.low, found.high) == (pytest.approx(99.75 - half, abs=1e-5), 100.0)
    assert (found.degrees, found.verdict) == (pytest.approx(degrees), "open (one run)")


def test_equal_first_epochs_spread_as_much_as_their_rounding() -> None:
    """An epoch is rounded to a whole one: a variance of 1/12, on the scale of logarithms 1 / (12 · 2²)."""
    twice = [run(PLAIN, seed, [1.0, 9.0, 2.0]) for seed in range(2)]
    found = cell(results(study(measures=["accuracy", "first_epoch"]), twice), "A", "first_epoch")
    half = stats.t.ppf(0.975, 1) * sqrt(1 / 48) * sqrt(1 + 1 / 2)
    assert (found.mean, found.high) == (2, pytest.approx(2 * exp(half)))


@pytest.mark.parametrize("other", [[], [99.8]])
def test_single_runs_have_no_spread(other: list[float]) -> None:
    found = cell(results(study(), [*runs(PLAIN, [99.7]), *runs(CBAM, other)]), "A")
    assert (found.low, found.degrees, found.verdict) == (None, None, "open (one run)")


def test_a_mean_of_several_runs_is_printed() -> None:
    """sabour's numbers are means of three trials: the interval for a mean is narrower than that for one run."""
    found = runs(PLAIN, [98.64, 98.72, 98.80])
    mean_of_three = cell(results(study(row("A", PLAIN, accuracy="98.7"), printed_runs=3), found), "A")
    assert mean_of_three.high == pytest.approx(98.72 + T2 * 0.08 * sqrt(1 / 3 + 1 / 3))


def test_100_percent_is_not_rounded_from_below() -> None:
    """Our interval ends below 100, but above 99.5."""
    found = cell(results(study(row("A", PLAIN, accuracy="100")), runs(PLAIN, [99.25, 99.3, 99.35])), "A")
    assert found.high is not None
    assert 99.5 < found.high < 99.9
    assert found.verdict == "ours is lower"


def test_a_wide_interval_is_not_called_reproduced() -> None:
    """It was, for 97.01, 17.95 and 96.21 % where 99.80 is printed."""
    steady = [*runs(CBAM, [97.6, 97.7]), *runs(f"{PLAIN} routing.iterations=1", [97.7, 97.8, 97.6])]
    found = cell(results(study(), [*runs(PLAIN, [97.01, 17.95, 96.21]), *steady]), "A")
    assert (found.verdict, found.unstable, found.mean, found.difference) == ("unstable", True, 96.21, None)
    wide = cell(results(study(), [*runs(PLAIN, [98.0, 99.0, 100.0]), *steady]), "A")
    assert wide.verdict == "compatible, imprecise"


def test_an_interval_of_accuracies_ends_at_0_and_is_never_narrower_than_the_test_set_allows() -> None:
    low = cell(results(study(), runs(PLAIN, [1.0, 2.0, 3.0])), "A")
    assert (low.low, low.high) == (0.0, pytest.approx(2 + T2 * sqrt(4 / 3)))
    equal = cell(results(study(), runs(PLAIN, [99.0, 99.0, 99.0])), "A")
    assert equal.low == pytest.approx(99 - T2 * sqrt(0.25 * 99 / 10_000 * 4 / 3))


def test_the_margin_is_half_of_the_smallest_gain_that_the_source_claims_on_the_data_set() -> None:
    """98.72 ± 0.40: within half a point, not within half of 0.1."""
    found = runs(PLAIN, [98.64, 98.72, 98.80])
    rows = [row("A", PLAIN, accuracy="98.80"), row("B", CBAM)]
    verdicts = [
        cell(results(study(*rows, claims=[claim(claimed=size) for size in sizes]), found), "A").verdict
        for sizes in ([], ["+1.2", "+0.9"], ["+1.2", "+0.1"])
    ]
    assert verdicts == ["reproduced", "reproduced", "compatible, imprecise"]
    other = row("C", CBAM.replace("mnist", "fashion_mnist"))
    elsewhere = study(*rows, other, claims=[claim(claimed="+0.1", pairs=[["C", "C"]])])
    assert cell(results(elsewhere, found), "A").verdict == "reproduced"


def test_a_number_has_one_margin_in_all_studies_of_its_source() -> None:
    """92.41 % stands in three of huang's tables, of which one claims the smaller gains."""
    name = {"huang_table1": "CapsNet 0.5 Fashion-MNIST"}
    found = set()
    for one in map(studies.load, ("huang_table1", "huang_table2", "huang_table4")):
        (of_study,) = (each for each in one.rows if each.name == name.get(one.name, "CapsNet Fashion-MNIST"))
        assert of_study.published["accuracy"] == "92.41"
        found.add(margin_of(one, of_study, "accuracy"))
    assert found == {0.40}  # half of +0.80


def test_the_margin_of_first_epochs_is_half_of_the_smallest_claimed_logarithm() -> None:
    relative = [claim("relative", size, measure="first_epoch") for size in ("-50", "-20")]
    other = claim("slope", "-0.1", measure="first_epoch")  # its unit is another
    made = study(claims=[*relative, other])
    assert margin_of(made, made.rows[0], "first_epoch") == pytest.approx(-log(0.8) / 2)
    assert margin_of(made, made.rows[0], "accuracy") == 0.5


def test_a_maximum_in_the_last_epoch_is_a_lower_bound() -> None:
    found = [run(PLAIN, 0, [1.0, 2.0, 3.0]), run(PLAIN, 1, [1.0, 3.0, 2.0])]
    steady = [run(CBAM, seed, [0.0] * seed + [9.0, 1.0]) for seed in range(3)]  # there is a spread
    made = results(study(), [*found, *steady, run(CBAM, 3, [1.0, 9.0])])
    first = cell(made, "A", "first_epoch")
    assert (first.values, first.bounds) == ([3.0, 2.0], [True, False])
    assert (first.low, first.difference, first.verdict) == (None, None, "open")
    made = results(study(), [*found, *steady, run(PLAIN, 2, [1.0, 3.0, 2.0])])
    other = cell(made, "B", "first_epoch")
    assert other.degrees == pytest.approx(2 + 1 / (1 / 4 + 1))  # B's three, and two of A's three


def test_a_first_epoch_is_judged_on_the_scale_of_logarithms() -> None:
    """4, 6 and 5 epochs: the interval is that of the logarithms."""
    found = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((4, 6, 5))]
    first = cell(results(study(), found), "A", "first_epoch")
    logs = [log(4), log(6), log(5)]
    mean = sum(logs) / 3
    half = T2 * sqrt(sum((one - mean) ** 2 for one in logs) / 2) * sqrt(4 / 3)
    assert (first.low, first.high) == pytest.approx((exp(mean - half), exp(mean + half)), rel=1e-5)
    assert first.difference == pytest.approx(100 * (5 / 7 - 1))


def test_published_text_without_a_number_is_not_compared() -> None:
    found = cell(results(study(row("A", PLAIN, accuracy="not reported")), runs(PLAIN, [1.0, 2.0, 3.0])), "A")
    assert (found.published, found.difference, found.verdict) == ("not reported", None, None)


def test_the_same_training_counts_once_and_independently_of_its_number() -> None:
    """Under another budget's name the run has another key; of a seed the first that finished counts."""
    again = f"{PLAIN} budget.name=mine budget.epochs=250"
    found = [
        run(PLAIN, 0, [90.0], started="2026-01-01"),
        run(again, 0, [99.0], started="2026-01-02"),
        run(PLAIN, 1, [99.0], started="2026-01-02"),
        run(again, 1, [91.0], started="2026-01-01"),
        run(PLAIN, 2, [1.0], started="2026-01-01", failed=True),
        run(again, 2, [92.0], started="2026-01-02"),
    ]
    made = results(study(), found)
    accuracy = cell(made, "A")
    assert (accuracy.n, accuracy.mean, accuracy.failed) == (3, 91.0, 0)
    assert accuracy.degrees == 2  # of the same three runs
    assert len(made.runs) == 6  # all of them took time


def test_the_record_tells_the_number_of_test_images_where_the_data_set_does_not() -> None:
    """A part of SVHN has no published test set, so that its sampling error is added: p (1 − p) / N on both sides."""
    words = "model=da_capsnet data=svhn attention=none"
    made = study(row("A", words, accuracy="91.36"))
    found = [run(words, seed, [*[0.0] * seed, 90.0 + seed, 1.0], note="a part") for seed in range(3)]
    assert cell(results(made, found), "A").low is None
    assert cell(results(made, found), "A", "first_epoch").low is not None  # which no test image is drawn for
    found = [dataclasses.replace(record, data={**record.data, "test_images": 500}) for record in found]
    future = cell(results(made, found), "A")
    assert future.low is not None
    assert future.high is not None
    seeds, images = 4 / 3, 2 * 91 * 9 / 500
    half = stats.t.ppf(0.975, 2 * ((seeds + images) / seeds) ** 2) * sqrt(seeds + images)
    assert (future.high - future.low) / 2 == pytest.approx(half, rel=0.01)


def test_a_study_without_runs_has_its_rows() -> None:
    made = results(study(), [])
    assert [one.row.name for one in made.lines] == ["A", "B"]
    assert [cell(made, name).published for name in "AB"] == ["99.80", "99.90"]
    assert {(one.n, one.verdict) for one in made.cells} == {(0, None)}


def test_a_row_that_cannot_be_run_stays_empty() -> None:
    made = study(row("A", PLAIN), row("C", None, note="not specified", accuracy="91.17"))
    assert cell(results(made, runs(PLAIN, [1.0])), "C").published == "91.17"


def test_costs_are_those_of_one_device() -> None:
    here = [run(PLAIN, seed, [99.0], seconds_per_epoch=10.0 + seed) for seed in (0, 1)]
    elsewhere = [run(PLAIN, 2, [99.0], seconds_per_epoch=1000.0, device="AMD EPYC")]
    made = results(study(), [*here, *elsewhere])
    seconds = cell(made, "A", "seconds")
    assert (seconds.n, seconds.mean, seconds.device) == (2, 10.5, "NVIDIA H200")
    assert (seconds.low, seconds.verdict) == (None, None)
    assert cell(made, "A").n == 3


@pytest.mark.parametrize(
    ("printed", "verdict"), [("6.8", "equal"), ("6.80", "equal"), ("6.81", "different"), ("not reported", None)]
)
def test_parameters_are_counted_without_a_run(printed: str, verdict: str | None) -> None:
    made = study(row("A", PLAIN, parameters=printed), measures=["parameters"])
    found = cell(results(made, []), "A", "parameters")
    assert (found.values, found.verdict) == ([6_804_224], verdict)
    narrow = cell(results(made, [run(f"{PLAIN} budget.width=0.5", 0)]), "A", "parameters")
    assert narrow.values == [6_804_224]  # of the whole network


def test_there_is_a_cell_for_each_row_setting_protocol_and_measure() -> None:
    found = [*runs(PLAIN, [99.0, 98.0]), *runs(f"{PLAIN} {SHORT}", [1.0]), run(f"{CBAM} protocol=heldout", 0)]
    made = results(study(), found).cells
    places = [(one.row, one.setting, one.protocol, one.measure) for one in made]
    assert len(set(places)) == len(places) == 3 * 11  # ten measures of protocol paper, one of protocol heldout
    filled = {(one.row, one.protocol, one.measure) for one in made if one.n}
    assert Counter(place[:2] for place in filled) == {
        ("A", "paper"): 8,  # all but the mean of the first five epochs and the parameters
        ("B", "heldout"): 1,
    }


# Settings and protocols


@pytest.mark.parametrize(
    "words",
    [
        f"{PLAIN} {SHORT}",
        f"{PLAIN} budget.train_images=30000",
        f"{PLAIN} budget.test_images=5000",
        f"{PLAIN} budget.width=0.5",
    ],
)
def test_reduced_runs_have_their_own_cell_and_are_judged_so_far(words: str) -> None:
    made = results(study(), [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(words, [10.0, 20.0, 30.0, 40.0])])
    main, other = cell(made, "A"), line(made, "A", main=False).cell("accuracy")
    assert (main.mean, main.n, main.verdict) == (pytest.approx(99.8), 3, "reproduced")
    share = 2 / 250 if SHORT in words else 0.5
    verdict = "not comparable" if share < 0.5 else "ours is lower"
    assert (other.mean, other.n, other.verdict, main.so_far) == (25.0, 4, verdict, "")
    assert other.so_far != ""


def test_precisions_and_states_of_the_data_have_their_own_cells() -> None:
    found = [
        *runs(PLAIN, [1.0, 1.0, 1.0]),
        *runs(PLAIN, [2.0, 2.0, 2.0], precision="float32"),
        *runs(PLAIN, [3.0, 3.0, 3.0, 3.0], note="lossy copy"),
    ]
    cells = in_all_settings(results(study(), found), "A")
    assert [(one.mean, one.main, one.verdict) for one in cells] == [
        (1.0, True, "ours is lower"),
        (2.0, False, "ours is lower"),
        (3.0, False, "open"),
    ]


def test_the_setting_of_most_rows_is_the_main_one_so_that_they_can_be_compared() -> None:
    longer = runs(f"{PLAIN} budget.epochs=20", [3.0] * 3)
    found = [*runs(f"{PLAIN} {SHORT}", [1.0]), *runs(f"{CBAM} {SHORT}", [2.0]), *longer]
    made = results(study(), found)
    assert [cell(made, name).mean for name in "AB"] == [1.0, 2.0]
    assert line(made, "A", main=False).cell("accuracy").mean == 3.0
    whole = results(study(), [*found, *runs(PLAIN, [4.0])])
    assert cell(whole, "A").mean == 4.0  # the paper's training comes before all others


def test_all_epochs_on_a_part_of_the_data_come_before_the_setting_of_most_rows() -> None:
    part = f"{PLAIN} budget.train_images=600"
    found = [*runs(f"{part} {SHORT}", [1.0] * 3), *runs(f"{CBAM} budget.train_images=600 {SHORT}", [2.0] * 3)]
    assert [cell(results(study(), found), name).mean for name in "AB"] == [1.0, 2.0]
    assert [cell(results(study(), [*found, *runs(part, [4.0])]), name).mean for name in "AB"] == [4.0, 2.0]


def test_the_most_training_is_the_main_setting() -> None:
    found = [
        run(f"{PLAIN} budget.epochs=100 budget.train_images=6000", 0, [1.0]),  # 10 epochs of all
        run(f"{PLAIN} budget.epochs=40 budget.width=0.5", 0, [2.0]),  # 20
        run(f"{PLAIN} budget.epochs=15", 0, [3.0]),
        *runs(f"{PLAIN} budget.epochs=2", [4.0, 4.0, 4.0]),
        run(PLAIN, 0, [], note="first 600 of 60,000", failed=True),  # 2.5
    ]
    assert [one.mean for one in in_all_settings(results(study(), found), "A")] == [2.0, 3.0, 1.0, 4.0, None]


def test_of_equal_training_the_setting_of_most_seeds_is_the_main_one_then_bf16() -> None:
    found = [*runs(PLAIN, [1.0]), *runs(PLAIN, [2.0, 2.0], precision="float32")]
    assert cell(results(study(), found), "A").mean == 2.0
    assert cell(results(study(), found[:2]), "A").mean == 1.0


def test_a_setting_that_failed_is_not_the_main_one_because_other_rows_have_it() -> None:
    failed = run(f"{PLAIN} budget.epochs=3", 0, failed=True)
    made = results(study(), [*runs(f"{PLAIN} {SHORT}", [1.0]), failed, *runs(f"{CBAM} budget.epochs=3", [2.0])])
    assert cell(made, "A").mean == 1.0


def test_the_papers_protocol_comes_before_more_training() -> None:
    heldout = run(f"{PLAIN} protocol=heldout", 0, [50.0], tested=51.0)
    assert cell(results(study(), [*runs(f"{PLAIN} {SHORT}", [1.0]), heldout]), "A").mean == 1.0


def test_the_papers_whole_training_is_the_main_setting_even_if_it_failed() -> None:
    made = results(study(), [run(PLAIN, 0, failed=True), *runs(f"{PLAIN} {SHORT}", [99.0])])
    main = cell(made, "A")
    assert (main.failed, main.runs, main.mean) == (1, 1, None)
    assert line(made, "A", main=False).cell("accuracy").mean == 99.0


def test_protocols_have_their_own_cells() -> None:
    heldout = [run(f"{PLAIN} protocol=heldout", seed, [50.0], tested=51.0 + seed) for seed in range(2)]
    made = results(study(), [*runs(PLAIN, [99.7, 99.8, 99.9]), *heldout])
    paper, tested = cell(made, "A"), cell(made, "A", protocol="heldout")
    assert (paper.n, paper.mean) == (3, pytest.approx(99.8))
    assert (tested.n, tested.mean, tested.seeds) == (2, 51.5, [0, 1])
    only = results(study(), heldout)
    assert [cell(only, "A", measure).mean for measure in ("accuracy", "last", "first_epoch")] == [None, None, None]


# Rows with several combinations of options

JOBS = {i: SWEPT.replace("1,2,3", str(i)) for i in (1, 2, 3)}


def test_of_several_combinations_the_best_of_each_seed_is_taken() -> None:
    found = [
        run(JOBS[1], 0, [10.0, 9.0]),
        run(JOBS[2], 0, [8.0, 12.0]),
        run(JOBS[3], 0, [11.0]),
        run(JOBS[1], 1, [20.0]),
        run(JOBS[2], 1, [20.0, 19.0]),
        run(JOBS[3], 1, [19.0]),
    ]
    made = results(study(row("A", SWEPT, accuracy="15")), found)
    accuracy = cell(made, "A")
    assert accuracy.best_of == "best of 3 (routing.iterations=1,2,3), selected on the test set"
    assert (accuracy.runs, accuracy.n, accuracy.mean, cell(made, "A", "first_epoch").mean) == (6, 2, 16.0, 1.5)
    assert cell(made, "A", "last").values == [12.0, 20.0]  # of equals the first


def test_the_best_of_fewer_combinations_is_so_far() -> None:
    found = [run(JOBS[i], seed, [10.0 + seed]) for i in (1, 2, 3) for seed in range(3)]
    made = study(row("A", SWEPT, accuracy="11"))
    assert cell(results(made, found), "A").so_far == ""
    fewer = cell(results(made, found[1:]), "A")
    assert (fewer.n, fewer.so_far) == (3, "2 of 3 combinations")
    assert fewer.best_of.startswith("best of 2 to 3 of 3 ")
    two = study(row("A", SWEPT.replace("1,2,3", "1,2")))
    assert cell(results(two, found), "A").best_of.startswith("best of 2 (")


def test_a_best_combination_is_judged_though_it_is_unstable_in_other_seeds() -> None:
    unstable = [run(JOBS[1], seed, [maximum]) for seed, maximum in enumerate((99.2, 10.0, 50.0))]
    steady = [run(JOBS[i], seed, [99.0 + seed / 10 - i / 5]) for i in (2, 3) for seed in range(3)]
    made = results(study(row("A", SWEPT, accuracy="99")), [*unstable, *steady, *runs(CBAM, [99.0, 99.1, 99.2])])
    accuracy = cell(made, "A")
    assert (accuracy.unstable, accuracy.mean) == (False, pytest.approx((99.2 + 98.7 + 98.8) / 3))


def test_under_heldout_the_combination_is_selected_on_the_held_out_images() -> None:
    found = [run(f"{JOBS[1]} protocol=heldout", 0, [80.0], tested=70.0)]
    found += [run(f"{JOBS[2]} protocol=heldout", 0, [79.0], tested=99.0)]
    tested = cell(results(study(row("A", SWEPT)), found), "A", protocol="heldout")
    assert tested.mean == 70.0
    assert tested.best_of.endswith(", selected on the held-out images")


# Words typed in place of the rows' own


def test_other_data_in_place_of_the_rows_own() -> None:
    found = [*runs(PLAIN, [99.0] * 3), *runs(PLAIN.replace("mnist", "fashion_mnist"), [88.0, 89.0, 90.0])]
    made = results(study(), found, ["data=fashion_mnist", "seed=0,1,2"])
    accuracy = cell(made, "A")
    assert made.replaced
    assert (accuracy.mean, accuracy.n, accuracy.so_far, accuracy.best_of) == (89.0, 3, "data=fashion_mnist", "")
    assert line(made, "B").setting is None


def test_a_width_is_a_setting_not_another_experiment() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(f"{PLAIN} budget.width=0.25", [90.0])]
    made = results(study(), found, ["budget.width=0.25"])
    assert (made.replaced, cell(made, "A").mean) == (False, 90.0)
    assert cell(results(study(), found, ["trainer=cpu", "paths.results=x"]), "A").n == 3


def test_a_key_in_which_the_rows_differ_selects_rows() -> None:
    left = results(study(claims=[claim()]), runs(CBAM, [99.9, 99.9, 99.9]), ["attention=cbam"])
    assert [found.name for found in left.study.rows] == ["B"]
    assert (left.replaced, cell(left, "B").verdict, left.study.claims) == (False, "reproduced", [])


def test_one_of_a_rows_combinations_is_not_the_best_of_them() -> None:
    made = study(row("A", SWEPT, accuracy="99"), row("B", CBAM, accuracy="99"))
    accuracy = cell(results(made, runs(JOBS[2], [98.0, 99.0, 100.0]), ["routing.iterations=2"]), "A")
    assert accuracy.best_of.startswith("best of 1 of 3 ")
    assert accuracy.so_far == "1 of 3 combinations"


@pytest.mark.parametrize(("measure", "counted"), [("accuracy", 0), ("parameters", 1)])
def test_parameters_are_counted_where_the_study_prints_them_or_a_claim_is_about_them(
    measure: str, counted: int
) -> None:
    made = study(claims=[claim(measure=measure)])
    assert cell(results(made, []), "A", "parameters").n == counted


def test_on_other_data_parameters_are_not_the_papers() -> None:
    made = study(row("A", PLAIN, parameters="6.8"), measures=["parameters"])
    found = cell(results(made, [], ["data=fashion_mnist"]), "A", "parameters")
    assert (found.values, found.verdict) == ([6_804_224], None)

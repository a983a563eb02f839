"""Cells: which runs belong to a row, which numbers never share a cell, and numbers against those worked out by hand."""

import dataclasses
from math import exp, log, sqrt

import pytest
from made import CBAM, PLAIN, SHORT, SWEPT, cell, claim, results, row, run, runs, study
from scipy import stats

from capsexp.run.records import Record
from capsexp.study.studies import Setting, Study

T2 = 4.302653  # Student's two-sided 95 % quantile with two degrees of freedom, from a printed table


# One cell


@pytest.mark.parametrize(
    ("published", "verdict"),
    [("98.80", "compatible"), ("99.13", "lower"), ("98.31", "higher"), ("99.12", "compatible")],
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
    assert (found.degrees, found.verdict) == (pytest.approx(degrees), None)


def test_equal_first_epochs_spread_as_much_as_their_rounding() -> None:
    """An epoch is rounded to a whole one: a variance of 1/12, on the scale of logarithms 1 / (12 · 2²)."""
    twice = [run(PLAIN, seed, [1.0, 9.0, 2.0]) for seed in range(2)]
    found = cell(results(study(measures=["accuracy", "first_epoch"]), twice), "A", "first_epoch")
    half = stats.t.ppf(0.975, 1) * sqrt(1 / 48) * sqrt(1 + 1 / 2)
    assert (found.mean, found.high) == (2, pytest.approx(2 * exp(half)))


@pytest.mark.parametrize("other", [[], [99.8]])
def test_single_runs_have_no_spread(other: list[float]) -> None:
    found = cell(results(study(), [*runs(PLAIN, [99.7]), *runs(CBAM, other)]), "A")
    assert (found.low, found.degrees, found.verdict) == (None, None, None)


def test_a_mean_of_several_runs_is_printed() -> None:
    """sabour's numbers are means of three trials: the interval for a mean is narrower than that for one run."""
    found = runs(PLAIN, [98.64, 98.72, 98.80])
    mean_of_three = cell(results(study(row("A", PLAIN, accuracy="98.7"), printed_runs=3), found), "A")
    assert mean_of_three.high == pytest.approx(98.72 + T2 * 0.08 * sqrt(1 / 3 + 1 / 3))


def test_100_percent_is_not_rounded_from_below() -> None:
    """Our interval ends below 100, but above 99.5."""
    found = cell(results(study(row("A", PLAIN, accuracy="100")), runs(PLAIN, [99.25, 99.3, 99.35])), "A")
    assert 99.5 < found.high < 99.9
    assert found.verdict == "lower"


def test_an_interval_of_accuracies_ends_at_0_and_is_never_narrower_than_the_test_set_allows() -> None:
    low = cell(results(study(), runs(PLAIN, [1.0, 2.0, 3.0])), "A")
    assert (low.low, low.high) == (0.0, pytest.approx(2 + T2 * sqrt(4 / 3)))
    equal = cell(results(study(), runs(PLAIN, [99.0, 99.0, 99.0])), "A")
    assert equal.low == pytest.approx(99 - T2 * sqrt(0.25 * 99 / 10_000 * 4 / 3))


def test_a_maximum_in_the_last_epoch_is_a_lower_bound() -> None:
    found = [run(PLAIN, 0, [1.0, 2.0, 3.0]), run(PLAIN, 1, [1.0, 3.0, 2.0])]
    steady = [run(CBAM, seed, [0.0] * seed + [9.0, 1.0]) for seed in range(3)]  # there is a spread
    made = results(study(), [*found, *steady, run(CBAM, 3, [1.0, 9.0])])
    first = cell(made, "A", "first_epoch")
    assert (first.values, first.bounds) == ([3.0, 2.0], [True, False])
    assert (first.low, first.difference, first.verdict) == (None, None, None)
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
    assert first.difference == pytest.approx(100 * (exp(mean) / 7 - 1))
    assert first.mean == pytest.approx(exp(mean))


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
    assert len(made.runs) == 3


def test_the_record_tells_the_number_of_test_images_where_the_data_set_does_not() -> None:
    """A part of SVHN has no published test set, so that its sampling error is added: p (1 − p) / N on both sides."""
    words = "model=da_capsnet data=svhn attention=none"
    made = study(row("A", words, accuracy="91.36"))
    found = [run(f"{words} {SHORT}", seed, [*[0.0] * seed, 90.0 + seed, 1.0], note="a part") for seed in range(3)]
    assert cell(results(made, found), "A", setting="laptop").low is None
    assert (
        cell(results(made, found), "A", "first_epoch", setting="laptop").low is not None
    )  # which no test image is drawn for
    found = [dataclasses.replace(record, data={**record.data, "test_images": 500}) for record in found]
    future = cell(results(made, found), "A", setting="laptop")
    seeds, images = 4 / 3, 2 * 91 * 9 / 500
    half = stats.t.ppf(0.975, 2 * ((seeds + images) / seeds) ** 2) * sqrt(seeds + images)
    assert (future.high - future.low) / 2 == pytest.approx(half, rel=0.01)
    whole = [run(words, seed, [90.0 + seed], data=found[0].data) for seed in range(3)]  # to 95.97, of two to 96.53
    judged = [cell(results(study(row("A", words, accuracy=text)), whole), "A") for text in ("96.45", "96.65")]
    assert [(one.verdict, one.if_better_of_two) for one in judged] == [("lower", "compatible"), ("lower", "lower")]


def test_costs_are_those_of_one_device() -> None:
    here = [run(PLAIN, seed, [99.0], seconds_per_epoch=10.0 + seed) for seed in (0, 1)]
    elsewhere = [run(PLAIN, 2, [99.0], seconds_per_epoch=1000.0, device="AMD EPYC")]
    made = results(study(), [*here, *elsewhere])
    seconds = cell(made, "A", "seconds")
    assert (seconds.n, seconds.mean, seconds.device) == (2, 10.5, "NVIDIA H200")
    assert (seconds.low, seconds.verdict) == (None, None)
    assert cell(made, "A").n == 3


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        ("6.8", "equal"),
        ("6.81", "equal"),
        ("6.813", "equal"),  # rounded
        ("6.812", "equal"),  # the other digits cut off
        ("6.811", "different"),
        ("6.814", "different"),
        ("not reported", None),
    ],
)
def test_parameters_are_counted_without_a_run(printed: str, verdict: str | None) -> None:
    made = study(row("A", CBAM, parameters=printed), measures=["parameters"])
    found = cell(results(made, []), "A", "parameters")
    assert (found.values, found.verdict) == ([6_812_788], verdict)
    assert cell(results(made, []), "A", "parameters", setting="laptop").n == 0  # which may be of a narrower network


def test_combinations_that_differ_in_size_have_no_number_of_parameters() -> None:
    counted = claim("factor", "2", measure="parameters")
    made = results(
        study(row("A", f"{PLAIN} model.class_pose=8,16"), row("B", CBAM), claims=[counted], measures=["parameters"]), []
    )
    assert (cell(made, "A", "parameters").n, cell(made, "B", "parameters").n) == (0, 1)
    assert (made.claims[0].verdict, made.claims[0].reason) == ("not run", "the combinations of A differ in it")


# Settings and protocols


def counted(made: Study, found: list[Record], setting: str, name: str = "A") -> list[float]:
    """The accuracies of a row in a setting."""
    return cell(results(made, found), name, setting=setting).values


@pytest.mark.parametrize(
    "words", ["budget.epochs=3", "budget.train_images=30000", "budget.test_images=5000", "budget.width=0.5"]
)
def test_a_row_has_the_runs_of_its_command_with_the_settings_words_and_no_others(words: str) -> None:
    found = [*runs(PLAIN, [1.0, 2.0]), *runs(f"{PLAIN} {SHORT}", [3.0, 4.0, 5.0])]
    others = [*runs(f"{PLAIN} {words}", [9.0] * 4), *runs(f"{PLAIN} {SHORT} {words}", [9.0] * 4)]
    made = results(study(), [*found, *others])
    assert [cell(made, "A", setting=name).values for name in ("paper", "laptop")] == [[1.0, 2.0], [3.0, 4.0, 5.0]]
    assert len(made.runs) == 5


def test_the_precision_of_a_setting_is_that_of_its_runs_and_auto_that_of_most() -> None:
    found = [*runs(PLAIN, [1.0, 2.0]), run(PLAIN, 1, [3.0], precision="float32")]
    float32 = study(paper=Setting("", words="trainer.precision=float32"))
    assert (counted(study(), found, "paper"), counted(float32, found, "paper")) == ([1.0, 2.0], [3.0])


def test_a_data_set_has_its_own_words_in_a_setting() -> None:
    svhn = PLAIN.replace("mnist", "svhn")
    laptop = Setting("", words=SHORT, data={"svhn": "budget.epochs=3"})
    found = [run(f"{words} budget.epochs={n}", 0, [n]) for words in (PLAIN, svhn) for n in (2, 3)]
    made = study(row("A", PLAIN), row("B", svhn), laptop=laptop)
    assert [counted(made, found, "laptop", name) for name in "AB"] == [[2.0], [3.0]]


def test_another_version_of_the_files_stands_in_the_laptops_block_alone() -> None:
    norb, lossy = "model=da_capsnet data=smallnorb attention=none", "lossy copy, left camera"
    made = study(row("A", norb), row("B", norb.replace("none", "cbam")))
    found = [run(words, 0, [1.0], note=lossy) for words in (norb, f"{norb} {SHORT}")]
    assert [counted(made, found, name) for name in ("paper", "laptop")] == [[], [1.0]]
    assert results(made, found).blocks[1].files == [lossy]
    published = run(f"{norb.replace('none', 'cbam')} {SHORT}", 0, [2.0])
    assert [counted(made, [*found, published], "laptop", name) for name in "AB"] == [[], [2.0]]


def test_a_row_that_trains_alike_in_both_settings_stands_in_the_papers_alone() -> None:
    made = results(study(laptop=Setting("", data={"mnist": "budget=paper"})), runs(PLAIN, [1.0]))
    assert [len(block.lines) for block in made.blocks] == [2, 0]
    assert cell(made, "A").values == [1.0]


def test_only_the_papers_training_is_judged() -> None:
    short = [*runs(f"{PLAIN} {SHORT}", [9.0, 9.1, 9.2])]
    assert cell(results(study(), short), "A", setting="laptop").verdict is None
    whole = runs(PLAIN, [9.0, 9.1, 9.2])
    assert cell(results(study(), whole), "A").verdict == "lower"
    assert cell(results(study(differs="our own maps"), whole), "A").verdict is None
    reading = dataclasses.replace(row("A", PLAIN, accuracy="99.80"), counted=False)
    assert cell(results(study(reading), whole), "A").verdict is None


def test_a_cell_has_the_runs_of_its_settings_protocol() -> None:
    heldout = [run(f"{PLAIN} protocol=heldout", seed, [50.0], tested=51.0 + seed) for seed in range(2)]
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), *heldout]
    assert cell(results(study(), found), "A").values == [99.7, 99.8, 99.9]
    tested = results(study(paper=Setting("", words="protocol=heldout")), found)
    assert (cell(tested, "A").protocol, cell(tested, "A").values) == ("heldout", [51.0, 52.0])
    assert [cell(tested, "A", measure).mean for measure in ("last", "first_epoch")] == [None, None]


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
    assert accuracy.best_of == "best of 3 combinations, selected on the test set"
    assert (accuracy.runs, accuracy.n, accuracy.mean, cell(made, "A", "first_epoch").values) == (6, 2, 16.0, [2, 1])
    assert cell(made, "A", "last").values == [12.0, 20.0]  # of equals the first
    more = results(study(row("A", SWEPT)), [*found, run(JOBS[1], 2, [1.0]), run(JOBS[1], 3, failed=True)])
    assert cell(more, "A").values == accuracy.values  # seed 2 would be the best of one


def test_the_best_of_fewer_combinations_is_not_judged() -> None:
    found = [run(JOBS[i], seed, [10.0 + seed]) for i in (1, 2, 3) for seed in range(3)]
    made = study(row("A", SWEPT, accuracy="11"))
    assert cell(results(made, found), "A").verdict == "compatible"
    fewer = cell(results(made, found[3:]), "A")
    assert (fewer.n, fewer.verdict) == (3, None)
    assert fewer.best_of == "best of 2 of 3 combinations, selected on the test set"


def test_under_heldout_the_combination_is_selected_on_the_held_out_images() -> None:
    found = [run(f"{JOBS[1]} protocol=heldout", 0, [80.0], tested=70.0)]
    found += [run(f"{JOBS[2]} protocol=heldout", 0, [79.0], tested=99.0)]
    tested = cell(results(study(row("A", SWEPT), paper=Setting("", words="protocol=heldout")), found), "A")
    assert tested.mean == 70.0
    assert tested.best_of.endswith(", selected on the held-out images")


# Words typed in place of the rows' own


def test_one_of_a_rows_combinations_is_not_the_best_of_them() -> None:
    made = study(row("A", SWEPT, accuracy="99"), row("B", CBAM, accuracy="99"))
    accuracy = cell(results(made, runs(JOBS[2], [98.0, 99.0, 100.0]), ["routing.iterations=2"]), "A")
    assert accuracy.best_of.startswith("best of 1 of 3 ")
    assert (accuracy.mean, accuracy.verdict) == (99.0, None)


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


def test_long_runs_have_an_epoch_at_the_level_below_the_lowest_maximum_of_those_that_train_alike() -> None:
    """Maxima of 90 and 95: the level is 89, which A has in its last epoch and B in epoch 31."""
    a, b = [80.0] * 49 + [90.0], [70.0] * 30 + [89.0] * 19 + [95.0]
    made = results(study(), [run(PLAIN, 0, a), run(CBAM, 0, b), run(f"{PLAIN} {SHORT}", 0, [10.0, 20.0])])
    assert [cell(made, name, "level_epoch").values for name in "AB"] == [[50.0], [31.0]]
    assert cell(made, "A", "level_epoch", setting="laptop").values == []  # too short

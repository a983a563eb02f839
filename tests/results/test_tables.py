"""Tables: which runs belong to a row, what never meets in a cell, and the numbers against those worked out by hand."""

import re
from math import sqrt

import pytest
from made import CBAM, PLAIN, SWEPT, claim, line, row, run, runs, study, table

from capsexp.config.compose import CONF
from capsexp.errors import InputError
from capsexp.results import tables
from capsexp.study.setting import IMAGES, Setting

T2 = 4.302653  # Student's two-sided 95 % quantile with two degrees of freedom, from a printed table
SHORT = "budget.epochs=2"


@pytest.mark.parametrize(
    ("published", "verdict"),
    [("99.80", "reproduced"), ("99.83", "published higher"), ("99.61", "published lower"), ("99.62", "reproduced")],
)
def test_a_cell_worked_out_by_hand(published: str, verdict: str) -> None:
    made = study(row("A", PLAIN, accuracy=published))
    cell = line(table(made, runs(PLAIN, [99.70, 99.72, 99.74])), "A")
    half = T2 * 0.02 * sqrt(1 + 1 / 3)
    assert (cell["accuracy_n"], cell["accuracy_published"]) == (3, published)
    assert cell["accuracy_mean"] == pytest.approx(99.72)
    assert cell["accuracy_sd"] == pytest.approx(0.02)
    assert (cell["accuracy_low"], cell["accuracy_high"]) == pytest.approx((99.72 - half, 99.72 + half), abs=1e-6)
    assert cell["accuracy_difference"] == pytest.approx(99.72 - float(published))
    assert cell["accuracy_verdict"] == verdict
    assert cell["paper_seeds"] == [0, 1, 2]


def test_two_seeds_decide_nothing() -> None:
    assert line(table(study(), runs(PLAIN, [99.7, 99.8])), "A")["accuracy_verdict"] == "undecided"


def test_what_is_not_a_number_is_not_compared() -> None:
    cell = line(table(study(row("A", PLAIN, accuracy="not reported")), runs(PLAIN, [1.0, 2.0, 3.0])), "A")
    assert (cell["accuracy_published"], cell["accuracy_difference"], cell["accuracy_verdict"]) == (
        *("not reported", None),
        None,
    )


@pytest.mark.parametrize(
    "words",
    [
        f"{PLAIN} {SHORT}",
        f"{PLAIN} budget.train_images=30000",
        f"{PLAIN} budget.test_images=5000",
        f"{PLAIN} budget.width=0.5",
    ],
)
def test_reduced_runs_stand_apart_and_decide_nothing(words: str) -> None:
    made = table(study(), [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(words, [10.0, 20.0, 30.0, 40.0])])
    main, other = line(made, "A"), line(made, "A", main=False)
    assert (main["accuracy_mean"], main["accuracy_n"], main["accuracy_verdict"]) == (
        *(pytest.approx(99.8), 3),
        "reproduced",
    )
    assert (other["accuracy_mean"], other["accuracy_n"], other["accuracy_verdict"]) == (25.0, 4, "undecided")


def test_precisions_and_states_of_the_data_stand_apart() -> None:
    found = [
        *runs(PLAIN, [1.0, 1.0, 1.0]),
        *runs(PLAIN, [2.0, 2.0], precision="float32"),
        *runs(PLAIN, [3.0, 3.0, 3.0, 3.0], note="lossy copy"),
    ]
    cells = table(study(), found).cells
    of_a = cells[cells.name == "A"]
    assert of_a.accuracy_mean.tolist() == [1.0, 2.0, 3.0]
    assert of_a.main.tolist() == [True, False, False]
    assert of_a.accuracy_verdict.tolist() == ["published higher", "undecided", "undecided"]


def test_the_setting_of_most_rows_stands_in_the_main_table_so_that_they_can_be_compared() -> None:
    longer = runs(f"{PLAIN} budget.epochs=20", [3.0] * 3)
    found = [*runs(f"{PLAIN} {SHORT}", [1.0]), *runs(f"{CBAM} {SHORT}", [2.0]), *longer]
    made = table(study(), found)
    assert [line(made, name)["accuracy_mean"] for name in "AB"] == [1.0, 2.0]
    assert line(made, "A", main=False)["accuracy_mean"] == 3.0
    whole = table(study(), [*found, *runs(PLAIN, [4.0])])
    assert line(whole, "A")["accuracy_mean"] == 4.0  # the paper's training stands before all others


def test_the_most_training_stands_in_the_main_table() -> None:
    found = [
        run(f"{PLAIN} budget.epochs=100 budget.train_images=6000", 0, [1.0]),  # 10 epochs of all
        run(f"{PLAIN} budget.epochs=40 budget.width=0.5", 0, [2.0]),  # 20
        run(f"{PLAIN} budget.epochs=15", 0, [3.0]),
        *runs(f"{PLAIN} budget.epochs=2", [4.0, 4.0, 4.0]),
        run(PLAIN, 0, [], note="first 600 of 60,000", failed=True),  # 2.5
    ]
    cells = table(study(), found).cells
    assert cells[cells.name == "A"].accuracy_mean.tolist() == [2.0, 3.0, 1.0, 4.0, None]


def test_of_equal_training_the_most_seeds() -> None:
    found = [*runs(PLAIN, [1.0]), *runs(PLAIN, [2.0, 2.0], precision="float32")]
    assert line(table(study(), found), "A")["accuracy_mean"] == 2.0


def test_the_papers_whole_training_stands_first_even_failed() -> None:
    made = table(study(), [run(PLAIN, 0, failed=True), *runs(f"{PLAIN} {SHORT}", [99.0])])
    main = line(made, "A")
    assert (main["paper_failed"], main["paper_runs"], main["accuracy_mean"]) == (1, 1, None)
    assert line(made, "A", main=False)["accuracy_mean"] == 99.0


def test_protocols_stand_apart() -> None:
    heldout = [run(f"{PLAIN} protocol=heldout", seed, [50.0], tested=51.0 + seed) for seed in range(2)]
    cell = line(table(study(), [*runs(PLAIN, [99.7, 99.8, 99.9]), *heldout]), "A")
    assert (cell["accuracy_n"], cell["accuracy_mean"]) == (3, pytest.approx(99.8))
    assert (cell["heldout_n"], cell["heldout_mean"], cell["heldout_seeds"]) == (2, 51.5, [0, 1])
    only = line(table(study(), heldout), "A")
    assert (only["accuracy_mean"], only["last_mean"], only["first_epoch_mean"]) == (None, None, None)


def test_failed_runs_are_counted_and_not_averaged() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), run(PLAIN, 3, [10.0], failed=True)]
    cell = line(table(study(), found), "A")
    assert (cell["paper_failed"], cell["paper_runs"], cell["accuracy_n"]) == (1, 4, 3)
    assert cell["accuracy_mean"] == pytest.approx(99.8)
    assert cell["accuracy_verdict"] == "reproduced"


def test_the_same_training_counts_once_and_not_by_its_number() -> None:
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
    made = table(study(), found)
    cell = line(made, "A")
    assert (cell["accuracy_n"], cell["accuracy_mean"], cell["paper_failed"]) == (3, 91.0, 0)
    assert len(made.found) == 6  # the hours were spent all the same


def test_trials_are_left_out() -> None:
    assert line(table(study(), [run(f"{PLAIN} budget=smoke", 0)]), "A")["setting"] is None


def test_a_study_without_runs_has_its_rows() -> None:
    cells = table(study(), []).cells
    assert cells.name.tolist() == ["A", "B"]
    assert cells.accuracy_published.tolist() == ["99.80", "99.90"]
    assert not cells.accuracy_n.any()
    assert not any(cells.accuracy_verdict)


def test_a_row_that_cannot_be_run_stays_empty() -> None:
    made = study(row("A", PLAIN), row("C", None, note="not specified", accuracy="91.17"))
    assert line(table(made, runs(PLAIN, [1.0])), "C")["accuracy_published"] == "91.17"


def test_a_row_with_several_jobs_takes_the_best_of_each_seed() -> None:
    jobs = {i: SWEPT.replace("1,2,3", str(i)) for i in (1, 2, 3)}
    found = [
        run(jobs[1], 0, [10.0, 9.0]),
        run(jobs[2], 0, [8.0, 12.0]),
        run(jobs[3], 0, [11.0]),
        run(jobs[1], 1, [20.0]),
        run(jobs[2], 1, [20.0, 19.0]),
        run(jobs[3], 1, [19.0]),
    ]
    made = table(study(row("A", SWEPT, accuracy="15")), found)
    cell = line(made, "A")
    assert (cell["jobs"], cell["paper_jobs"], cell["paper_runs"]) == (3, (3, 3), 6)
    assert (cell["accuracy_n"], cell["accuracy_mean"], cell["first_epoch_mean"]) == (2, 16.0, 1.5)
    assert made.best["last"].tolist() == [12.0, 20.0]  # of equals the first


def test_a_best_of_fewer_jobs_is_undecided() -> None:
    jobs = {i: SWEPT.replace("1,2,3", str(i)) for i in (1, 2, 3)}
    found = [run(jobs[i], seed, [10.0 + seed]) for i in (1, 2, 3) for seed in range(3)]
    made = study(row("A", SWEPT, accuracy="11"))
    assert line(table(made, found), "A")["accuracy_verdict"] == "reproduced"
    fewer = line(table(made, found[1:]), "A")
    assert (fewer["accuracy_n"], fewer["paper_jobs"], fewer["accuracy_verdict"]) == (3, (2, 3), "undecided")


def test_under_heldout_the_held_out_images_choose_the_job() -> None:
    jobs = {i: SWEPT.replace("1,2,3", str(i)) + " protocol=heldout" for i in (1, 2)}
    found = [run(jobs[1], 0, [80.0], tested=70.0), run(jobs[2], 0, [79.0], tested=99.0)]
    assert line(table(study(row("A", SWEPT)), found), "A")["heldout_mean"] == 70.0


def test_measures_of_one_run() -> None:
    record = run(PLAIN, 0, [90.0, 98.94, 99.0, 99.05, 98.0, 99.05])
    found = tables.measured(record)
    assert (found["accuracy"], found["last"], found["first_epoch"]) == (99.05, 99.05, 4)
    assert found["within"] == 3  # 99.0; 98.94 is more than 0.1 below 99.05
    assert found["first_five"] == pytest.approx((90 + 98.94 + 99 + 99.05 + 98) / 5)
    assert found["inference"] == pytest.approx(128 * 10 / 10_000 * 1000)  # 10 s for 10,000 images
    assert (found["memory"], found["host"], found["seconds"]) == (1000.0, 2000.0, 60.0)
    assert found["hours"] == pytest.approx(0.1)
    assert tables.measured(run(PLAIN, 0, [90.0] * 4))["first_five"] is None
    assert tables.measured(run(PLAIN, 0, [90.0, 89.9]))["within"] == 1
    assert tables.measured(run(f"{PLAIN} budget.test_images=500", 0))["inference"] == pytest.approx(128 / 50 * 1000)
    assert tables.measured(run(PLAIN, 0, note="a part"))["inference"] is None


def test_costs_are_those_of_one_device() -> None:
    here = [run(PLAIN, seed, [99.0], seconds_per_epoch=10.0 + seed) for seed in (0, 1)]
    elsewhere = [run(PLAIN, 2, [99.0], seconds_per_epoch=1000.0, device="AMD EPYC")]
    cell = line(table(study(), [*here, *elsewhere]), "A")
    assert (cell["seconds_n"], cell["seconds_mean"], cell["device"]) == (2, 10.5, "NVIDIA H200")
    assert cell["accuracy_n"] == 3


@pytest.mark.parametrize(
    ("ours", "printed", "words", "verdict"),
    [
        (6_804_224, "6.8", PLAIN, "equal"),
        (6_804_224, "6.80", PLAIN, "equal"),
        (6_804_224, "6.81", PLAIN, "different"),
        (35_445_522, "34.4", PLAIN, "different"),
        (6_804_224, "not reported", PLAIN, None),
        (6_804_224, "6.8", f"{PLAIN} budget.width=0.5", None),
        (6_804_224, "6.8", f"{PLAIN} {SHORT}", "equal"),
    ],
)
def test_parameters_are_exact(ours: int, printed: str, words: str, verdict: str | None) -> None:
    made = study(row("A", PLAIN, parameters=printed), measures=["parameters"])
    cell = line(table(made, [run(words, 0, parameters=ours)]), "A")
    assert (cell["parameters"], cell["parameters_verdict"]) == ([ours], verdict)


def test_a_setting_says_what_is_reduced_and_how_to_ask_for_it() -> None:
    record = run(f"{PLAIN} {SHORT} budget.width=0.25 budget.train_images=1000", 0, precision="float32", note="a part")
    setting = Setting.of(record.identity)
    assert str(setting) == "2 of 250 epochs, 25 % of the channels, 1,000 training images, a part, float32"
    asked = run(f"{PLAIN} {' '.join(setting.overrides)}", 0, precision="float32", note="a part")
    assert Setting.of(asked.identity) == setting
    assert not setting.whole
    whole = Setting.of(run(PLAIN, 0).identity)
    assert (str(whole), whole.whole) == ("the paper's whole training, bf16", True)
    assert whole.overrides == ["trainer.precision=bf16"]  # left to itself, another device has another


@pytest.mark.parametrize("path", sorted((CONF / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_images_of_every_data_set_are_known(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    printed = re.search(r"([\d,]+)\s+(?:# )?(?:new )?training(?: images)?.*? ([\d,]+) test", text, re.DOTALL)
    train, test = IMAGES[path.stem]  # type: ignore[attr-defined]
    if path.stem not in ("coil20", "affine_mnist"):  # type: ignore[attr-defined]
        assert printed is not None
        assert (f"{train:,}", f"{test:,}") == printed.groups()


# What is typed


def test_other_data_in_place_of_the_rows_own() -> None:
    found = [*runs(PLAIN, [99.0] * 3), *runs(PLAIN.replace("mnist", "fashion_mnist"), [88.0, 89.0, 90.0])]
    made = table(study(), found, ["data=fashion_mnist", "seed=0,1,2"])
    cell = line(made, "A")
    assert made.replaced
    assert (cell["accuracy_mean"], cell["accuracy_n"], cell["accuracy_verdict"]) == (89.0, 3, "undecided")
    assert cell["jobs"] == 1
    assert line(made, "B")["setting"] is None


def test_a_width_is_a_setting_not_another_experiment() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(f"{PLAIN} budget.width=0.25", [90.0])]
    made = table(study(), found, ["budget.width=0.25"])
    assert (made.replaced, line(made, "A")["accuracy_mean"]) == (False, 90.0)
    assert line(table(study(), found, ["trainer=cpu", "paths.results=x"]), "A")["accuracy_n"] == 3


def test_a_key_in_which_the_rows_differ_selects_rows() -> None:
    made = study(claims=[claim()])
    left = table(made, runs(CBAM, [99.9, 99.9, 99.9]), ["attention=cbam"])
    assert [row.name for row in left.study.rows] == ["B"]
    assert (left.replaced, line(left, "B")["accuracy_verdict"], left.study.claims) == (False, "reproduced", [])


def test_one_of_a_rows_jobs_is_not_the_best_of_them() -> None:
    made = study(row("A", SWEPT, accuracy="99"), row("B", CBAM, accuracy="99"))
    cell = line(table(made, runs(SWEPT.replace("1,2,3", "2"), [98.0, 99.0, 100.0]), ["routing.iterations=2"]), "A")
    assert (cell["jobs"], cell["paper_jobs"], cell["accuracy_verdict"]) == (3, (1, 1), "undecided")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("attention.cbam=true", "makes A and B of made_table1 the same"),
        ("attention=dual", "no row of made_table1 has it"),
        ("dta=mnist", "did you mean data?"),
    ],
)
def test_what_can_not_be_typed(typed: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        table(study(), [], [typed])

"""Claims, tested on made-up runs: which are paired, in which setting, and what leaves them undecided."""

from math import sqrt

import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, row, run, runs, study

T2 = 4.302653  # Student's two-sided 95 % quantile with two degrees of freedom, from a printed table
SHORT = "budget.epochs=2"


def test_a_difference_is_paired_by_seed() -> None:
    """Seeds 1, 2, 3 are common: B − A is 1, 2, 3 there: 2 ± T2 · 1 / √3. Means alone would give another number."""
    a = [run(PLAIN, seed, [value]) for seed, value in ((0, 1.0), (1, 10.0), (2, 20.0), (3, 30.0))]
    b = [run(CBAM, seed, [value]) for seed, value in ((1, 11.0), (2, 22.0), (3, 33.0), (4, 99.0))]
    (one,) = results(study(claims=[claim()]), [*a, *b]).claims
    assert one.result is not None
    assert (one.result.n, one.result.mean) == (3, 2.0)
    assert one.result.half_width == pytest.approx(T2 / sqrt(3), abs=1e-5)
    assert (one.result.verdict, one.reason) == ("not reproduced", "")  # 2.48 > 2


def test_a_relative_change_is_taken_seed_by_seed() -> None:
    """From epoch 4, 2, 5 to epoch 2, 1, 4: −50, −50, −20 %: −40 ± T2 · √300 / √3 = ± 43.03."""
    a = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0]) for seed, first in enumerate((4, 2, 5))]
    b = [run(CBAM, seed, [0.0] * (first - 1) + [9.0]) for seed, first in enumerate((2, 1, 4))]
    claimed = claim("relative", "-50", measure="first_epoch")
    (one,) = results(study(claims=[claimed]), [*a, *b]).claims
    assert one.result is not None
    assert one.result.mean == pytest.approx(-40)
    assert one.result.half_width == pytest.approx(T2 * 10, abs=1e-4)
    assert one.result.verdict == "not reproduced"


def test_pairs_are_averaged_within_a_seed() -> None:
    """(B − A + C − A) / 2 is 2, 3, 4 in the three seeds."""
    rows = [row("A", PLAIN), row("B", CBAM), row("C", f"{PLAIN} routing.iterations=1")]
    found = [*runs(PLAIN, [1.0] * 3), *runs(CBAM, [2.0, 3.0, 4.0]), *runs(rows[2].run or "", [4.0, 5.0, 6.0])]
    (one,) = results(study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "C"]])]), found).claims
    assert one.result is not None
    assert (one.result.mean, one.result.half_width) == (3.0, pytest.approx(T2 / sqrt(3), abs=1e-5))


def test_a_slope_is_over_the_rows_in_their_order() -> None:
    """Over 1, 2, 3: of (1, 2, 6) it is 2.5, of (0, 1, 1) 0.5, of (5, 0, 8) 1.5; their mean is 1.5, their spread 1."""
    rows = [row(name, SWEPT.replace("1,2,3", str(i))) for i, name in enumerate("ABC", 1)]
    values = [[1.0, 0.0, 5.0], [2.0, 1.0, 0.0], [6.0, 1.0, 8.0]]
    found = [record for one, maxima in zip(rows, values, strict=True) for record in runs(one.run or "", maxima)]
    (one,) = results(study(*rows, claims=[claim("slope", rows=["A", "B", "C"])]), found).claims
    assert one.result is not None
    assert one.result.mean == pytest.approx(1.5)
    assert one.result.half_width == pytest.approx(T2 / sqrt(3), abs=1e-5)


def test_a_part_of_a_claim_is_measured_and_undecided() -> None:
    rows = [
        row("A", PLAIN),
        row("B", CBAM),
        *(row(name, SWEPT.replace("1,2,3", number)) for name, number in zip("CD", "12", strict=True)),
    ]
    found = [*runs(PLAIN, [1.0] * 5), *runs(CBAM, [2.0] * 5), *runs(rows[2].run or "", [9.0, 10.0])]
    (one,) = results(study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "D"]])]), found).claims
    assert one.result is not None
    assert (one.result.mean, one.result.n) == (1.0, 5)
    assert (one.part, one.reason, one.result.verdict) == ("1 of 2 pairs", "not all was run", "undecided")
    (one,) = results(study(*rows, claims=[claim("slope", rows=["A", "D", "C"])]), found).claims
    assert one.result is not None
    assert [one.result.mean, one.result.n] == [pytest.approx(4.25), 2]  # (9 − 1) / 2 and (10 − 1) / 2
    assert one.part == "2 of 3 rows"
    whole, two = (
        runs(f"{rows[3].run} {SHORT}", [5.0]),
        [*runs(f"{PLAIN} {SHORT}", [1.0]), *runs(f"{CBAM} {SHORT}", [1.5])],
    )
    (one,) = results(study(*rows, claims=[claim(pairs=[["A", "B"], ["A", "D"]])]), [*found, *whole, *two]).claims
    assert (one.part, one.setting and one.setting.whole) == ("1 of 2 pairs", True)  # rather than all of it, short
    left = [claim(pairs=[["D", "B"]]), claim("slope", rows=["A", "D"])]
    for one in results(study(*rows, claims=left), found).claims:
        assert (one.verdict, one.reason, one.result) == ("not run", "D", None)


def test_a_claim_is_tested_in_one_setting() -> None:
    """A was run whole and short, B short: only the short runs may be compared, and the claim is undecided."""
    found = [*runs(PLAIN, [99.0] * 5), *runs(f"{PLAIN} {SHORT}", [1.0, 2.0, 3.0]), *runs(f"{CBAM} {SHORT}", [9.0] * 3)]
    (one,) = results(study(claims=[claim()]), found).claims
    assert one.result is not None
    assert one.setting is not None
    assert (one.result.mean, one.setting.epochs, one.result.verdict, one.reason) == (
        *(7.0, (2, 250)),
        *("undecided", "reduced training"),
    )
    whole = [*found, *runs(CBAM, [99.5] * 3)]
    (one,) = results(study(claims=[claim()]), whole).claims
    assert one.result is not None
    assert (one.result.mean, one.result.verdict) == (0.5, "confirmed")


def test_a_claim_is_tested_on_the_papers_training_however_few_seeds_it_has() -> None:
    found = [*runs(f"{PLAIN} {SHORT}", [1.0, 2.0, 3.0]), *runs(f"{CBAM} {SHORT}", [9.0] * 3)]
    (one,) = results(study(claims=[claim()]), [*found, *runs(PLAIN, [50.0]), *runs(CBAM, [51.0])]).claims
    assert one.result is not None
    assert (one.result.n, one.result.mean) == (1, 1.0)


def test_a_claim_is_about_runs_of_the_papers_protocol() -> None:
    heldout = [run(f"{words} protocol=heldout", 0) for words in (PLAIN, CBAM)]
    (one,) = results(study(claims=[claim(measure="parameters")]), heldout).claims
    assert (one.verdict, one.reason, one.result) == ("not run", "", None)


def test_a_claim_with_missing_rows_or_seeds_is_not_tested() -> None:
    made, apart = study(claims=[claim()]), "no seed that its rows have in one setting"
    (one,) = results(made, runs(PLAIN, [99.0] * 3)).claims
    assert (one.verdict, one.reason, one.result) == ("not run", "B", None)
    (one,) = results(made, [run(PLAIN, 0), run(CBAM, 1), run(CBAM, 0, failed=True)]).claims
    assert (one.verdict, one.result) == (apart, None)
    (one,) = results(made, [run(PLAIN, 0), run(CBAM, 0, precision="float32")]).claims
    assert (one.verdict, one.result) == (apart, None)


def test_a_claim_about_some_of_a_rows_jobs_is_undecided() -> None:
    made = study(row("A", SWEPT), row("B", CBAM), claims=[claim()])
    found = [*runs(SWEPT.replace("1,2,3", "1"), [1.0, 1.0, 1.0]), *runs(CBAM, [5.0, 5.0, 5.0])]
    (one,) = results(made, found).claims
    assert one.result is not None
    assert (one.result.verdict, one.reason) == ("undecided", "not all runs of A")


def test_a_claim_about_cost_is_tested_on_one_device() -> None:
    made = study(claims=[claim(measure="memory", claimed="increase")])
    found = [
        *[run(PLAIN, seed, peak_memory_mb={"device": 10.0, "host": 1.0}) for seed in range(3)],
        *[run(CBAM, seed, peak_memory_mb={"device": 12.0, "host": 1.0}, device="another") for seed in range(2)],
        run(CBAM, 2, peak_memory_mb={"device": 15.0, "host": 1.0}),
    ]
    (one,) = results(made, found).claims
    assert one.result is not None
    assert (one.result.n, one.result.mean) == (1, 5.0)


def test_parameters_do_not_depend_on_the_training() -> None:
    made = study(claims=[claim("relative", "-75", measure="parameters")])
    found = [
        *[run(f"{PLAIN} {SHORT}", seed, parameters=11_220_132) for seed in range(3)],
        *[run(f"{CBAM} {SHORT}", seed, parameters=2_799_629) for seed in range(3)],
    ]
    (one,) = results(made, found).claims
    assert one.result is not None
    assert one.result.verdict == "confirmed"


def test_a_claim_on_other_data_is_undecided() -> None:
    data = "fashion_mnist"
    found = [*runs(PLAIN.replace("mnist", data), [1.0] * 3), *runs(CBAM.replace("mnist", data), [2.0] * 3)]
    (one,) = results(study(claims=[claim()]), found, [f"data={data}"]).claims
    assert one.result is not None
    assert (one.result.verdict, one.reason) == ("undecided", "not the paper's experiment")

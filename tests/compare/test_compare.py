"""Two sides of runs: what a side can be, and that the verdict is the tables' own."""

from pathlib import Path
from typing import Any

import pytest
from made import CBAM, PLAIN, claim, project, results, run, runs, study, write

from capsexp.compare import Comparison, compare, differences
from capsexp.compare.__main__ import main
from capsexp.errors import InputError, RunError
from capsexp.run.records import Record

MAXIMA = [99.0, 99.1, 99.2], [99.5, 99.6, 99.7]
FOUND = [*runs(PLAIN, MAXIMA[0]), *runs(CBAM, MAXIMA[1])]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder of results with the runs of FOUND."""
    write(tmp_path, FOUND)
    return tmp_path


def compared(recorded: Path, a: str, b: str, claimed: str | None = None, margin: str | None = None) -> Comparison:
    found, problems = compare((a, b), recorded, claimed, margin)
    assert not problems
    return found


def lines(found: Comparison) -> dict[str, list[str]]:
    """The lines of the table, by measure: A, B, B − A, verdict, p, from."""
    return {measure: rest for measure, *rest in differences(found).rows}


def test_the_difference_is_that_of_a_claim_of_a_study(recorded: Path) -> None:
    """The same effect, interval and p-value as of a study with these two rows and that claim."""
    (own, *_) = compared(recorded, PLAIN, CBAM).results.claims
    (theirs,) = results(study(claims=[claim()]), FOUND).claims
    assert (own.measured, own.p_value, own.setting) == (theirs.measured, theirs.p_value, theirs.setting)
    a, b, difference, verdict, p_value, origin = lines(compared(recorded, PLAIN, CBAM))["maximum accuracy, %"]
    assert (a, b) == ("99.10 ± 0.10 (3)", "99.60 ± 0.10 (3)")
    assert difference == "+0.50 points (+0.25 to +0.75)"
    assert (verdict, p_value, origin) == ("B is higher", "0.006", "6 runs, all 250 epochs, bf16")
    assert lines(compared(recorded, CBAM, PLAIN))["maximum accuracy, %"][3] == "B is lower"


@pytest.mark.parametrize(
    ("claimed", "margin", "verdict"),
    [
        ("+0.6", None, "supported"),
        ("+1.2", None, "supported; smaller than printed"),
        ("decrease", None, "contradicted"),
        ("same", "1", "no diff"),
    ],
)
def test_a_claimed_difference_has_the_verdict_of_a_claim(
    recorded: Path, claimed: str, margin: str | None, verdict: str
) -> None:
    assert lines(compared(recorded, PLAIN, CBAM, claimed, margin))["maximum accuracy, %"][3].startswith(verdict)


QUIET = {"load": 1.0, "threads": 2}


def slow(**changed: Any) -> list[Record]:
    """Two runs with CBAM that take twice as long as others, and half of the memory."""
    memory = {"device": 500.0, "host": 1.0}
    made = [run(CBAM, seed, [90.0], seconds_per_epoch=120.0, peak_memory_mb=memory, **changed) for seed in (0, 1)]
    for one in made:
        one.epochs[0].update(train_seconds=110.0)
    return made


@pytest.mark.parametrize(
    ("fast", "changed", "why"),
    [
        ({"load": 1.0, "threads": 1}, QUIET, "threads=1, NVIDIA H200, "),
        (QUIET, {"load": 2.6, "threads": 2}, "times were measured on a busy machine only"),
        (QUIET, QUIET | {"device": "NVIDIA H100"}, "different machines: NVIDIA H100, "),
        (QUIET, {"load": None, "threads": 2}, "whether the machine was busy isn't known"),
    ],
)
def test_seconds_of_unlike_or_busy_machines_have_no_verdict(
    fast: dict[str, Any], changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """Both means stand there, and why they are not compared."""
    write(tmp_path, [*runs(PLAIN, [90.0, 90.1], **fast), *slow(**changed)])
    *shown, origin = lines(compared(tmp_path, PLAIN, CBAM))["seconds an epoch"]
    assert shown == ["60.0 ± 0.0 (2)", "120.0 ± 0.0 (2)", "", "open", ""]
    assert why in origin


def test_sides_of_different_settings_have_their_means_and_the_key_that_differs(tmp_path: Path) -> None:
    short = runs(f"{CBAM} budget.epochs=2", MAXIMA[1], precision="float32")
    write(tmp_path, [*runs(PLAIN, MAXIMA[0]), *short, *runs(f"{PLAIN} routing.iterations=1", [97.0], note="a part")])
    trained = "all 250 epochs, bf16, and 2 of 250 epochs, float32"
    why = f"budget.epochs and trainer.precision differ: {trained}"
    means = ["99.10 ± 0.10 (3)", "99.60 ± 0.10 (3)", "", "open", ""]
    assert lines(compared(tmp_path, PLAIN, CBAM))["maximum accuracy, %"] == [*means, why]
    part = lines(compared(tmp_path, PLAIN, f"{PLAIN} routing.iterations=1"))["maximum accuracy, %"]
    assert part[-1] == "data.note differs: all 250 epochs, bf16, and a part, bf16"


def test_costs_are_compared_by_their_ratio(tmp_path: Path) -> None:
    write(tmp_path, [*runs(PLAIN, [90.0, 90.1], **QUIET), *slow(**QUIET)])
    found = lines(compared(tmp_path, PLAIN, CBAM))
    assert found["seconds an epoch"][:2] == ["60.0 ± 0.0 (2)", "120.0 ± 0.0 (2)"]
    assert found["seconds an epoch"][2].startswith("+100.0 %")
    assert found["MB on the device"][2].startswith("−50.0 %")


def test_a_side_can_be_a_row_or_a_single_run(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(recorded, monkeypatch, mine=CBAM)
    single = FOUND[0]
    path = next((recorded / "runs").glob(f"*{single.key}.json"))
    for side in (single.key, single.key[:8], path.stem, str(path)):
        a, b, *_ = lines(compared(recorded, side, "mine:A"))["maximum accuracy, %"]
        assert (a, b) == ("99.00 (1)", "99.60 ± 0.10 (3)")


def test_two_folders_are_compared_in_all_that_both_trained(tmp_path: Path) -> None:
    other = [*runs(PLAIN, [98.0, 98.1, 98.2]), *runs(CBAM, [99.5]), *runs(f"{PLAIN} routing.iterations=1", [97.0])]
    write(tmp_path / "here", FOUND)
    write(tmp_path / "there", other)
    table = differences(compared(tmp_path, str(tmp_path / "here"), str(tmp_path / "there")))
    assert {row[0] for row in table.rows} == {"capsnet on mnist, dynamic 3", "capsnet on mnist, dynamic 3, CBAM"}
    accuracy = next(row for row in table.rows if row[1].startswith("maximum"))
    assert accuracy[2:5] == ["99.10 ± 0.10 (3)", "98.10 ± 0.10 (3)", "−1.00 points (−1.23 to −0.77)"]
    with pytest.raises(InputError, match="a folder is compared with a folder"):
        compare((str(tmp_path / "here"), PLAIN), tmp_path / "here")
    write(tmp_path / "empty", runs(f"{PLAIN} routing.iterations=2", [97.0]))
    with pytest.raises(InputError, match="no run that both have"):
        compare((str(tmp_path / "here"), str(tmp_path / "empty")), tmp_path)


@pytest.mark.parametrize("first", [0, 3])
def test_each_folder_has_its_own_spread(first: int, tmp_path: Path) -> None:
    """A: s² = 0.01, B: s² = 0.09, whichever seeds they have."""
    write(tmp_path / "here", runs(PLAIN, [97.0, 97.1, 97.2]))
    write(tmp_path / "there", [run(PLAIN, first + seed, [98.0 + 0.3 * seed]) for seed in range(3)])
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    effects = [lines(compared(tmp_path, *sides))["maximum accuracy, %"][2] for sides in ((here, there), (there, here))]
    assert effects == ["+1.20 points (+0.65 to +1.75)", "−1.20 points (−1.75 to −0.65)"]


def test_runs_are_not_compared_with_themselves(recorded: Path) -> None:
    with pytest.raises(InputError, match="have runs in common, capsnet-mnist-"):
        compare((PLAIN, f"{PLAIN} budget=paper"), recorded)


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (CBAM, "both sides are the same"),
        ("model=capsnett data=mnist", "did you mean capsnet?"),
        ("model=capsnet data=svhn", "no finished run .*; a side is a command line"),
        ("jiao_table2:CapsNet11", "jiao_table2 has no row CapsNet11; did you mean CapsNet1?"),
        ("capsnet-mnist", "6 runs begin like that"),
        ("nothing", "no finished run"),
    ],
)
def test_a_side_that_makes_no_sense_is_one_line(recorded: Path, a: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        compare((a, CBAM), recorded)


def test_a_folder_is_not_compared_with_itself(recorded: Path) -> None:
    with pytest.raises(InputError, match="both sides are the same"):
        compare((str(recorded), f"{recorded}/"), recorded)


def test_held_out_accuracies_are_not_compared(tmp_path: Path) -> None:
    heldout: list[Record] = [run(f"{PLAIN} protocol=heldout", 0, [90.0], tested=91.0)]
    write(tmp_path, [*heldout, *runs(CBAM, [90.0])])
    with pytest.raises(InputError, match="protocol=heldout only"):
        compare((PLAIN, CBAM), tmp_path)


def test_the_command_prints_the_table_and_draws_the_curves(
    recorded: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main([PLAIN, CBAM, f"--results={recorded}", f"--plot={tmp_path / 'both.svg'}"])
    printed = capsys.readouterr().out
    assert printed.startswith("model=capsnet data=mnist\nmeasure ")
    assert "A: attention=none" in printed.splitlines()[1]
    assert printed.endswith(f"wrote {tmp_path / 'both.svg'}\n")
    assert f">{CBAM}<" in (tmp_path / "both.svg").read_text()
    (recorded / "runs" / "broken.json").write_text("{")
    with pytest.raises(RunError, match="1 record can't be used"):
        main([PLAIN, CBAM, f"--results={recorded}"])
    with pytest.raises(InputError, match="must end in"):
        main([PLAIN, CBAM, "--plot=both.gif"])

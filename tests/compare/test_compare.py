"""Two sides of runs: what a side can be, and that the verdict is the tables' own."""

import re
from pathlib import Path
from typing import Any

import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, run, runs, study, write

from capsexp.compare.command import main
from capsexp.compare.comparison import compare
from capsexp.errors import InputError, RunError
from capsexp.run.records import Record
from capsexp.tables.table import Table
from capsexp.tables.texts import effect

MAXIMA = [99.0, 99.1, 99.2], [99.5, 99.6, 99.7]
FOUND = [*runs(PLAIN, MAXIMA[0]), *runs(CBAM, MAXIMA[1])]
ACCURACY = "best test accuracy, %"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A folder of results with the runs of FOUND."""
    write(tmp_path, FOUND)
    return tmp_path


def compared(recorded: Path, a: str, b: str) -> Table:
    table, problems = compare((a, b), recorded)
    assert not problems
    return table


def lines(table: Table) -> dict[str, list[str]]:
    """The lines of the table, by measure: A, B, B − A, verdict."""
    return {measure: rest for measure, *rest in table.rows}


def training(recorded: Path, a: str, b: str) -> str:
    """What the table says that was compared, without the networks and the place."""
    return re.sub(r"(\d runs?) of [^,.]+(, dynamic \d)?(, CBAM)?", r"\1", compared(recorded, a, b).notes[0]).split(
        ", in "
    )[0]


def test_the_difference_is_that_of_a_claim_of_a_study(recorded: Path) -> None:
    """The same effect and interval as of a study with these two rows and that claim."""
    (theirs,) = results(study(claims=[claim()]), FOUND).claims
    a, b, difference, verdict = lines(compared(recorded, PLAIN, CBAM))[ACCURACY]
    assert (a, b) == ("99.10 ± 0.10", "99.60 ± 0.10")
    assert difference == "+0.50 points"
    assert effect(claim(), theirs.effect) == "+0.50 points (+0.25 to +0.75)"
    assert f"{ACCURACY}: +0.50 points (+0.25 to +0.75); " in compared(recorded, PLAIN, CBAM).notes[1]
    assert verdict == "B is higher"
    assert lines(compared(recorded, CBAM, PLAIN))[ACCURACY][3] == "B is lower"
    long = " ".join([PLAIN, *["trainer.progress=none"] * 20])  # longer than a file's name may be
    assert lines(compared(recorded, long, CBAM))[ACCURACY][2] == "+0.50 points"


def test_the_words_of_both_sides_are_the_title_and_what_differs_the_heads(recorded: Path) -> None:
    table = compared(recorded, PLAIN, f"{CBAM} budget=paper")
    assert table.title == "model=capsnet data=mnist"
    assert table.columns == ["measure", "A: attention=none", "B: attention=cbam budget=paper", "B − A", "verdict"]
    runs_of = "A: 3 runs of capsnet mnist, dynamic 3, B: 3 runs of capsnet mnist, dynamic 3, CBAM"
    assert table.notes[0] == f"Trained: 250 epochs, bf16; {runs_of}, in {recorded / 'runs'}."


def test_without_a_budget_the_training_that_both_have_with_most_seeds_is_taken(tmp_path: Path) -> None:
    """However many runs a swept side has of one seed."""
    short = [one for words in (PLAIN, CBAM) for one in runs(f"{words} budget.epochs=2", MAXIMA[0])]
    more = [run(f"{PLAIN} routing.iterations={n} budget.epochs=5", seed) for n in (1, 2) for seed in (0, 1)]
    more += runs(f"{CBAM} budget.epochs=5", [98.0] * 2)
    write(tmp_path, [*runs(PLAIN, [99.0] * 9), *runs(CBAM, [99.0] * 2), *short, *more])
    assert training(tmp_path, PLAIN, CBAM) == "Trained: 2 of 250 epochs, bf16; A: 3 runs, B: 3 runs"
    assert training(tmp_path, SWEPT, CBAM).startswith("Trained: 2 of 250 epochs, bf16; A: 3 runs")


def test_with_a_typed_budget_only_that_is_compared(tmp_path: Path) -> None:
    short = [one for words in (PLAIN, CBAM) for one in runs(f"{words} budget.epochs=2", MAXIMA[0])]
    write(tmp_path, [*runs(PLAIN, [99.0] * 2), *runs(CBAM, [99.0] * 2), *short])
    assert training(tmp_path, f"{PLAIN} budget=paper", CBAM) == "Trained: 250 epochs, bf16; A: 2 runs, B: 2 runs"
    with pytest.raises(InputError, match="no finished run"):
        compare((f"{PLAIN} budget.epochs=3", CBAM), tmp_path)


def test_a_typed_precision_leaves_the_budget_open(tmp_path: Path) -> None:
    words = [f"{words} budget.epochs=2" for words in (PLAIN, CBAM)]
    single = [one for one in words for one in runs(one, MAXIMA[0], precision="float32")]
    write(tmp_path, [*single, *(one for one in words for one in runs(one, [99.0] * 9))])
    sides = (f"{PLAIN} trainer.precision=float32", CBAM)
    assert training(tmp_path, *sides) == "Trained: 2 of 250 epochs, float32; A: 3 runs, B: 3 runs"


def test_sides_without_a_common_training_are_refused_with_what_each_has(tmp_path: Path) -> None:
    short = runs(f"{CBAM} budget.epochs=2", MAXIMA[1], precision="float32")
    write(tmp_path, [*runs(PLAIN, MAXIMA[0]), *runs(PLAIN, [97.0], note="a part"), *short])
    with pytest.raises(InputError) as raised:
        compare((PLAIN, CBAM), tmp_path)
    assert str(raised.value) == (
        f"no training that both sides have: {PLAIN} has 250 epochs, a part, bf16, protocol=paper; "
        f"250 epochs, bf16, protocol=paper, {CBAM} has 2 of 250 epochs, float32, protocol=paper"
    )


def test_a_swept_side_is_the_best_of_each_seed(tmp_path: Path) -> None:
    swept = [run(SWEPT.replace("1,2,3", str(n)), seed, [90.0 + n + 2 * seed]) for n in (1, 2, 3) for seed in (0, 1)]
    write(tmp_path, [*swept, *runs(CBAM, [94.0, 95.0])])
    table = compared(tmp_path, SWEPT, CBAM)
    assert lines(table)[ACCURACY][:2] == ["94.00 ± 1.41", "94.50 ± 0.71"]
    assert training(tmp_path, SWEPT, CBAM).endswith("A: 2 runs, the best of each seed among 6, B: 2 runs")


def test_a_side_can_be_a_single_run(recorded: Path) -> None:
    single = FOUND[0]
    path = next((recorded / "runs").glob(f"*{single.key}.json"))
    for side in (single.key, single.key[:8], path.stem, str(path)):
        line = lines(compared(recorded, side, CBAM))[ACCURACY]
        assert line == ["99.00", "99.60 ± 0.10", "+0.60 points", "open, one run of A"]


def test_networks_of_other_widths_and_papers_are_compared_after_as_many_epochs(tmp_path: Path) -> None:
    short = "data=mnist budget.epochs=3"
    sides = f"model=capsnet {short} budget.width=0.125", f"model=huang_cnn {short} budget.width=0.285"
    write(tmp_path, [one for side, maxima in zip(sides, MAXIMA, strict=True) for one in runs(side, maxima)])
    table = compared(tmp_path, *sides)
    assert lines(table)[ACCURACY][2:] == ["+0.50 points", "B is higher"]
    assert table.notes[0].startswith("Trained: 3 epochs, bf16; A: 3 runs of capsnet mnist, dynamic 3 (3 of 250 ")


def test_a_side_can_be_a_row_of_a_study(tmp_path: Path) -> None:
    words = [f"data=mnist model=capsnet routing.iterations=3 attention={name}" for name in ("none", "cbam")]
    both = zip(words, (90.0, 91.0), strict=True)
    write(tmp_path, [one for of_row, best in both for one in runs(of_row, [best] * 2, precision="float32")])
    table = compared(tmp_path, "jiao_table2:CapsNet3", "jiao_table2:CapsNet3_CBAM")
    assert lines(table)[ACCURACY][2] == "+1.00 points"


def test_a_side_can_be_words_that_one_kind_of_runs_has_in_its_commands(tmp_path: Path) -> None:
    words = [f"model=capsnet data=coil20 attention={name}" for name in ("none", "cbam")]
    write(tmp_path, [one for of_row, best in zip(words, MAXIMA, strict=True) for one in runs(of_row, best)])
    assert lines(compared(tmp_path, "attention=none", "attention=cbam"))[ACCURACY][2] == "+0.50 points"
    with pytest.raises(InputError, match=r"^model=capsnet: runs of several kinds have it: capsnet coil20, dyn"):
        compare(("model=capsnet", "attention=cbam"), tmp_path)


# Costs

QUIET = {"load": 1.0, "threads": 2}


def slow(**changed: Any) -> list[Record]:
    """Two runs with CBAM that take twice as long as others, and half of the memory."""
    memory = {"device": 500.0, "host": 1.0}
    return [run(CBAM, seed, [90.0], seconds_per_epoch=120.0, peak_memory_mb=memory, **changed) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("fast", "changed", "why"),
    [
        ({"load": 1.0, "threads": 1}, QUIET, "measured on different machines"),
        (QUIET, {"load": 2.6, "threads": 2}, "times were measured on a busy machine only"),
        (QUIET, QUIET | {"device": "NVIDIA H100"}, "measured on different machines"),
        (QUIET, {"load": None, "threads": 2}, "whether the machine was busy isn't known"),
    ],
)
def test_seconds_of_unlike_or_busy_machines_have_no_verdict(
    fast: dict[str, Any], changed: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """Both means stand there, and why they are not compared."""
    write(tmp_path, [*runs(PLAIN, [90.0, 90.1], **fast), *slow(**changed)])
    shown = lines(compared(tmp_path, PLAIN, CBAM))["seconds an epoch"]
    assert shown == ["60.0 ± 0.0", "120.0 ± 0.0", "", f"open, {why}"]


def test_costs_of_one_quiet_machine_are_compared_by_their_ratio(tmp_path: Path) -> None:
    write(tmp_path, [*runs(PLAIN, [90.0, 90.1], **QUIET), *slow(**QUIET)])
    found = lines(compared(tmp_path, PLAIN, CBAM))
    assert found["seconds an epoch"][:2] == ["60.0 ± 0.0", "120.0 ± 0.0"]
    assert found["seconds an epoch"][2].startswith("+100.0 %")
    assert found["MB on the device"][2].startswith("−50.0 %")
    write(tmp_path, [run(PLAIN, 2, [90.0], seconds_per_epoch=90.0, load=1.0, threads=1)])
    more = lines(compared(tmp_path, PLAIN, CBAM))["seconds an epoch"]
    assert more[0].startswith("70.0 ±")
    assert more[2] == ""  # would be of the two runs of the first machine


# What is refused


@pytest.mark.parametrize("b", [PLAIN, f"{PLAIN} budget=paper", SWEPT])
def test_runs_are_not_compared_with_themselves(b: str, recorded: Path) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(f'{PLAIN} and {b}')}: have runs in common, "):
        compare((PLAIN, b), recorded)


@pytest.mark.parametrize(
    ("a", "message"),
    [
        ("model=capsnett data=mnist", r"did you mean capsnet\?"),
        ("model=capsnet data=svhn", "no finished run; there are capsnet mnist, dynamic 3.*; a side is a command line"),
        ("capsnet-mnist", "6 runs begin like that"),
        ("nothing", "no finished run"),
        ("+study=jiao_table2", r"^\+study=jiao_table2: a study is many runs"),
        ("jiao_table2", r"^jiao_table2: a study is many runs"),
        ("data=folder 'data.path=ph (1)'", r"^data.path=ph \(1\): isn't there; must be a folder"),
        ("model=capsnet data.path=John's", "data.path=John's: No closing quotation"),
    ],
)
def test_a_side_that_makes_no_sense_is_one_line(recorded: Path, a: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        compare((a, CBAM), recorded)
    assert "\n" not in str(raised.value)


def test_typed_seeds_and_protocols_are_those_of_a_side(recorded: Path) -> None:
    """Of several, each."""
    some = compared(recorded, f"{PLAIN} seed=0,2 protocol=heldout,paper", CBAM)
    assert lines(some)[ACCURACY][0] == "99.10 ± 0.14"
    with pytest.raises(InputError, match=r"there are finished ones of protocol=paper seed=0, .*seed=2$"):
        compare((f"{PLAIN} seed=3", CBAM), recorded)


def test_the_protocol_of_the_sides_counts(tmp_path: Path) -> None:
    """That of a typed protocol=heldout, with its interval; without one the protocol with most seeds, then paper."""
    heldout = [
        run(f"{words} protocol=heldout", seed, [50.0], tested=tested)
        for words, maxima in ((PLAIN, [91.0, 92.0]), (CBAM, [94.0, 95.0]))
        for seed, tested in enumerate(maxima)
    ]
    write(tmp_path, [*heldout, *runs(PLAIN, [80.0, 81.0]), *runs(CBAM, [82.0, 83.0])])
    for sides in ((f"{PLAIN} protocol=heldout", CBAM), (heldout[0].key, heldout[2].key)):
        table = compared(tmp_path, *sides)
        assert [line[0] for line in table.rows] == ["test accuracy, %"]
        assert table.rows[0][3] == "+3.00 points"
        assert "epochs chosen on held-out images and tested once" in table.notes[0]
    assert "test accuracy, %: +3.00 points (" in compared(tmp_path, f"{PLAIN} protocol=heldout", CBAM).notes[1]
    assert lines(compared(tmp_path, PLAIN, CBAM))[ACCURACY][2] == "+2.00 points"
    with pytest.raises(InputError, match=r"no training that both sides have: .*protocol=heldout, .*protocol=paper$"):
        compare((f"{PLAIN} protocol=heldout", f"{CBAM} protocol=paper"), tmp_path)


def test_a_row_has_the_runs_of_its_protocol(tmp_path: Path) -> None:
    names, words = ("CapsNet3", "CapsNet3_CBAM"), (f"{PLAIN} routing.iterations=3", f"{CBAM} routing.iterations=3")
    heldout = [run(f"{one} protocol=heldout", seed, [50.0], tested=70.0) for one in words for seed in (0, 1, 2)]
    write(tmp_path, [*heldout, *(run(one, seed, [90.0], precision="float32") for one in words for seed in (0, 1))])
    for study_row in ("jiao_table2:", "study=jiao_table2:"):
        assert lines(compared(tmp_path, *(study_row + name for name in names)))[ACCURACY][:2] == ["90.00 ± 0.00"] * 2


def test_a_run_is_named_by_its_folder_or_curves_and_a_trial_by_its_budget(tmp_path: Path) -> None:
    trials = runs(f"{CBAM} budget.steps=10", [50.0, 51.0])
    write(tmp_path, [*FOUND, *trials])
    key = FOUND[0].key
    for name in (f"capsnet-mnist-{key}", f"tensorboard/r3-s0_capsnet-mnist-width=0.5_{key[:6]}"):
        (folder := tmp_path / "logs" / name).mkdir(parents=True)
        assert lines(compared(tmp_path, str(folder), CBAM))[ACCURACY][0] == "99.00"
    with pytest.raises(InputError, match=r"no training that both sides have: .*10 steps"):
        compare((PLAIN, f"{CBAM} budget.steps=10"), tmp_path)


def test_the_command_prints_the_table_and_fails_for_damaged_records(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([PLAIN, CBAM, f"--results={recorded}"])
    printed = capsys.readouterr().out
    assert printed.startswith("model=capsnet data=mnist\nmeasure ")
    assert "A: attention=none" in printed.splitlines()[1]
    (recorded / "runs" / "broken.json").write_text("{")
    with pytest.raises(RunError, match="1 record can't be used"):
        main([PLAIN, CBAM, f"--results={recorded}"])
    assert "broken.json: not a record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "listed"),
    [
        ("fashion_mnist", "there are capsnet fashion_mnist, dynamic 3 (2 runs); a side"),
        ("svhn", "(3 runs); capsnet fashion_mnist, dynamic 3 (2 runs); a side"),
    ],
)
def test_finished_runs_are_listed_and_those_of_the_same_data_alone_where_there_are_some(
    data: str, listed: str, tmp_path: Path
) -> None:
    words = "model=capsnet data=fashion_mnist"
    write(tmp_path, [*FOUND, *runs(words, [90.0, 91.0]), run(words, 5, failed=True)])
    with pytest.raises(InputError, match=re.escape(listed)):
        compare((f"model=sabour_cnn data={data}", CBAM), tmp_path)

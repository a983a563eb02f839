"""The last screen of `capsexp reproduce`: at most 30 lines, each number of its runs, no verdict on another training."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made import CBAM, PLAIN, SHORT, claim, results, row, runs, study

from capsexp.results.study import StudyResults
from capsexp.run.records import Record
from capsexp.study.selection import LAPTOP, PAPER, TYPED
from capsexp.study.studies import Row
from capsexp.tables.screen import _address, _series, print_page, print_screen, print_studies, row_tables

ITERATED = study(
    *(
        Row([f"Net{kind}{number}", number], f"{words} routing.iterations={number}", {"accuracy": "99.80"})
        for kind, words in (("", PLAIN), ("_CBAM", CBAM))
        for number in ("1", "2")
    ),
    columns=["network", "iterations"],
    across="iterations",
    measures=["accuracy"],
    claims=[claim(pairs=[["Net1", "Net_CBAM1"], ["Net2", "Net_CBAM2"]])],
)
RUNS = [
    run
    for number, maxima in (("1", [90.0, 91.0]), ("2", [92.0, 93.0]))
    for words, more in ((PLAIN, 0.0), (CBAM, 2.0))
    for run in runs(f"{words} routing.iterations={number} {SHORT}", [one + more for one in maxima])
]

Screen = Callable[..., list[str]]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Screen:
    """The lines on a terminal of some width, without colours."""

    def printed(made: StudyResults, setting: str, width: int, written: Path | None = None) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(width))
        print_screen(made, setting, "8 of 8 runs finished in 9 s", written, "logs")
        lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
        at = lines.index("Next") if "Next" in lines else len(lines)
        assert max(map(len, lines[:at])) <= width  # commands are to be copied, and never broken
        return lines

    return printed


def test_a_label_that_a_rows_name_has_twice_is_left_out_once() -> None:
    names = [_series(Row([name, label], None), 1) for name, label in (("Net3_CBAM 3×3", "3"), ("Net1_CBAM 3×3", "1"))]
    assert names == ["Net_CBAM 3×3"] * 2
    assert _series(Row(["3", "3"], None), 1) == "3"  # a name isn't empty


@pytest.mark.parametrize("networks", [("r3-{}_a-epochs", "cbam-r3-{}_a-epochs"), ("{}_cnn-sets", "r3-{}_net-sets")])
def test_tensorboard_colours_the_seeds_of_a_network_alike(networks: tuple[str, ...]) -> None:
    names = [f"{name.format(f's{seed}')}_ab{seed}" for name in networks for seed in (0, 1, 12)]
    pattern = _address(names).partition("runColorGroup=regex:")[2].partition("&")[0]
    groups = [found.groups() for name in names if (found := re.search(pattern, name))]
    assert groups[:3] == groups[:1] * 3 != groups[3:] == groups[3:4] * 3
    assert "runColorGroup" not in _address(names[:3])  # each run another colour


def test_the_column_stands_along_the_top_with_the_differences_that_are_claimed() -> None:
    made = results(ITERATED, RUNS)
    (table,) = row_tables(made, made.blocks[1])
    assert table.columns == ["iterations", "1", "2"]
    assert table.title == "best test accuracy, % (printed), mean of 2 seeds"
    assert table.rows == [["Net", "90.50 (99.80)", "92.50 (99.80)"], ["Net_CBAM", "92.50 (99.80)", "94.50 (99.80)"]]


def test_a_study_of_many_rows_ends_on_one_screen_with_its_verdicts(screen: Screen) -> None:
    lines = screen(results(ITERATED, RUNS), LAPTOP, 80, Path("here.md"))
    assert len(lines) <= 30
    text = "\n".join(lines)
    assert "B is better: +2.00 points" in text
    assert "All numbers: here.md" in text
    assert any(re.search("capsexp compare made_table1:Net1 made_table1:Net_CBAM1", line) for line in lines)


def test_another_training_shows_and_does_not_test(screen: Screen) -> None:
    typed = SHORT.replace("epochs", "name=any budget.epochs").split()[1:]
    lines = screen(results(ITERATED, RUNS, typed), TYPED, 100)
    text = " ".join(lines)
    assert re.search(r"B is better +\+2\.00 points \(\+?.*\) +(better|no difference)", text)
    assert "They don't test the source, which trains 250 epochs of all images." in text
    assert not re.search("supported|contradicted|open|99.80|All numbers", text)
    without = results(ITERATED, [], typed)
    assert row_tables(without, without.blocks[0]) == []


def test_trials_are_shown_where_they_are_typed_and_marked(screen: Screen) -> None:
    found = [*runs(f"{PLAIN} budget=smoke", [12.5]), *runs(PLAIN, [99.0])]
    text = "\n".join(screen(results(study(), found, ["budget=smoke"]), TYPED, 80))
    assert "12.50" in text
    assert "99.00" not in text
    assert "Trials of a few steps" in text
    assert "12.50" not in "\n".join(screen(results(study(), found), PAPER, 80))


def test_without_such_a_column_it_is_the_page_s_table() -> None:
    made = results(study(row("A", PLAIN, accuracy="99.80")), runs(PLAIN, [90.0]))
    (table,) = row_tables(made, made.blocks[0])
    assert table.rows[0][:3] == ["A", "99.80", "90.00"]


def test_a_page_printed_tells_how_many_claims_have_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*runs(PLAIN, [99.0, 99.1, 99.2]), *runs(CBAM, [99.5, 99.6, 99.7])]
    print_page(results(study(claims=[claim(), claim(text="More", untested="No runs.")]), found))
    *_, left, how = capsys.readouterr().out.splitlines()
    assert (left, how[:8]) == ("1 claim without an answer: in the page, made_table1.md", "How a ve")


def test_several_studies_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    made = results(ITERATED, RUNS)
    print_studies([made, made], "16 of 16 runs finished", Path("there"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "16 of 16 runs finished."
    assert lines[-1] == "Their pages: there"
    assert sum("made_table1" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], [["Net", "(99.80)", "(99.80)"], ["Net_CBAM", "(99.80)", "(99.80)"]]),
        (RUNS[:2], [["Net", "90.50 (99.80)", "(99.80)"]]),
        (RUNS[:6], [["Net", "90.50 (99.80)", "92.50 (99.80)"], ["Net_CBAM", "92.50 (99.80)", "(99.80)"]]),
    ],
)
def test_networks_without_runs_are_left_out_where_others_have_some(
    found: list[Record], expected: list[list[str]]
) -> None:
    made = results(ITERATED, found)
    (table,) = row_tables(made, made.blocks[1])
    assert table.rows == expected


def test_decided_claims_come_first_and_the_others_are_counted(screen: Screen) -> None:
    claims = [claim(text=f"Claim {n}", measure="accuracy" if n else "first_epoch") for n in range(7)]
    found = [one for words, best in ((PLAIN, 90.0), (CBAM, 99.0)) for one in runs(words, [best, best + 0.1] * 4)]
    text = "\n".join(screen(results(study(claims=claims), found), PAPER, 80))
    assert re.findall(r"Claim \d", text) == [f"Claim {n}" for n in (1, 2, 3, 4)]
    assert "3 more claims on the page." in text
    assert "90.05" in text  # the table

"""Verdicts by other rules than the one declared."""

from pathlib import Path
from types import ModuleType

import pytest
from made import CBAM, PLAIN, claim, run, study, write
from support import script

from capsexp.results import runs
from capsexp.study import studies


@pytest.fixture
def sensitivity(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("benchmarks/sensitivity.py", monkeypatch)


def test_a_gain_in_the_best_epoch_alone_is_open_by_the_last(
    sensitivity: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [run(PLAIN, seed, [90.0, 90.0 + seed / 10]) for seed in range(3)]
    found += [run(CBAM, seed, [95.0, 90.0 + seed / 10]) for seed in range(3)]
    write(tmp_path, found)
    monkeypatch.setattr(studies, "names", lambda: ["made_table1"])
    monkeypatch.setattr(studies, "load", lambda name: study(claims=[claim(text="CBAM helps")]))
    assert sensitivity.main([f"--results={tmp_path}"]) == 0
    first, *blocks = capsys.readouterr().out.split("\n\n")
    by_name = dict(block.strip().split(":\n", 1) for block in blocks)
    assert first == "1 claim tested by runs, on 6 records"
    opened = ["the last epoch's accuracy, not the best", "the mean of the last fifth of the epochs"]
    assert [name for name, lines in by_name.items() if lines != "  none"] == opened
    for name in opened:
        assert by_name[name].startswith("  CBAM helps: supported → open, 0.00 points (")


@pytest.mark.parametrize(("schedule", "epochs"), [("steps optim.milestones=[2]", 2), ("plateau", 250)])
def test_a_curve_ends_where_steps_first_reduce_the_learning_rate(
    schedule: str, epochs: int, sensitivity: ModuleType, tmp_path: Path
) -> None:
    made = run(f"{PLAIN} optim.schedule={schedule}", 0, [90.0, 95.0, 99.0])
    for epoch in made.epochs[2:]:
        epoch["learning_rate"] /= 10
    write(tmp_path, [made])
    (found,) = runs.read(tmp_path)[0]
    assert len(sensitivity.before_steps(found, tmp_path).curve) == epochs

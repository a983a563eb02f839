"""Behind a sweep over two networks: the difference with its interval, and a command that repeats it."""

import shlex
from pathlib import Path

import pytest
from made import CBAM, PLAIN, run, runs, write

from capsexp.compare.__main__ import main
from capsexp.run.records import Record
from capsexp.tables.sweep import compared


def swept(found: list[Record], *words: str) -> list[tuple[list[str], Record]]:
    """What a sweep with two seeds a command line returns."""
    overrides = [[*one.split(), f"seed={seed}"] for one in words for seed in (0, 1)]
    return list(zip(overrides, found, strict=True))


def test_a_sweep_over_two_networks_ends_with_their_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [*runs(PLAIN, [90.0, 91.0]), *runs(CBAM, [92.0, 93.0])]
    write(tmp_path, found)
    difference, again = compared(swept(found, PLAIN, CBAM), tmp_path)
    assert "best test accuracy, %: +2.00 points (" in difference
    main(shlex.split(again.removeprefix("again: capsexp compare ")))
    assert "+2.00 points" in capsys.readouterr().out


def test_other_sweeps_end_with_their_table(tmp_path: Path) -> None:
    found = [*runs(PLAIN, [90.0, 91.0]), *runs(CBAM, [92.0, 93.0])]
    write(tmp_path, found)
    assert compared(swept(found[:2], PLAIN), tmp_path) == []
    trials = [run(f"{words} budget.steps=2", seed) for words in (PLAIN, CBAM) for seed in (0, 1)]
    assert compared(swept(trials, f"{PLAIN} budget.steps=2", f"{CBAM} budget.steps=2"), tmp_path) == []

"""Behind a sweep over two networks: the difference with its interval, and a command that repeats it."""

import shlex
from pathlib import Path

import pytest
from made import CBAM, PLAIN, run, runs, write

from capsexp.compare.command import main
from capsexp.compare.comparison import of_sweep

FOUND = [*runs(PLAIN, [90.0, 91.0]), *runs(CBAM, [92.0, 93.0])]


def swept(*words: str) -> list[list[str]]:
    """The command lines of a sweep with two seeds each."""
    return [[*one.split(), f"seed={seed}"] for one in words for seed in (0, 1)]


def test_a_sweep_over_two_networks_ends_with_their_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, FOUND)
    difference, again = of_sweep(swept(PLAIN, CBAM), tmp_path)
    assert "best test accuracy, %: +2.00 points (" in difference
    main(shlex.split(again.removeprefix("again: capsexp compare ")))
    assert "+2.00 points" in capsys.readouterr().out


def test_other_sweeps_end_with_their_table(tmp_path: Path) -> None:
    trials = [f"{words} budget.steps=2" for words in (PLAIN, CBAM)]
    write(tmp_path, [*FOUND, *(run(words, seed) for words in trials for seed in (0, 1))])
    assert of_sweep(swept(PLAIN), tmp_path) == []
    assert of_sweep(swept(*trials), tmp_path) == []

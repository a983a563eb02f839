"""What the launcher shows on a terminal of 80 columns, and in a file."""

import io
import re
from pathlib import Path

from launching import planned
from rich.console import Console

from capsexp.reproduce.monitor import Monitor, time_left
from capsexp.reproduce.planning import Progress


def test_a_terminal_has_a_line_a_run_that_ended_and_below_them_what_runs(tmp_path: Path) -> None:
    jobs, console = planned(tmp_path), Console(width=80, force_terminal=True, color_system=None)
    monitor = Monitor(jobs, 2, console)
    jobs[0].state, jobs[0].progress, jobs[0].outcome = "finished", Progress(3, 98.0, 50.0), "98.00 %"
    jobs[1].state, jobs[1].progress = "running", Progress(1, 97.5, 60.0)
    jobs[2].state = "running"
    with console.capture() as captured:
        monitor.update()
        console.print(monitor.table())
    written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", captured.get())
    ended, *_, first, second, total = [re.sub(" +", " ", line.strip()) for line in written.splitlines()]
    assert ended == "attention=none seed=0: 98.00 %"
    assert first == "attention=none seed=1 epoch 1/3 best 97.50 % 60.0 s an epoch"
    assert second == "attention=cbam seed=0 epoch 0/3"
    assert total.endswith("1 of 4 finished, 2 running, 1 waiting, 4 min left")  # 8 epochs of 55 s, two at a time


def test_a_file_gets_a_line_a_run(tmp_path: Path) -> None:
    jobs, screen = planned(tmp_path), io.StringIO()
    monitor = Monitor(jobs, 2, Console(file=screen))
    jobs[0].state = "running"
    monitor.update()
    jobs[0].state, jobs[0].outcome = "finished", " ".join(50 * ["word"])
    monitor.update()
    monitor.update()
    assert screen.getvalue() == f"1 of 4 finished, 3 waiting: finished {jobs[0].name}: {jobs[0].outcome}\n"


def test_the_time_left_is_from_other_seeds_or_else_from_all_runs(tmp_path: Path) -> None:
    first, second, third, fourth = jobs = planned(tmp_path)
    assert time_left(jobs, 1) == []
    first.state, first.progress = "finished", Progress(3, 90.0, 40.0)  # of the same rows as the second
    assert time_left([first, second], 1) == ["2 min left"]
    third.state, third.progress = "running", Progress(1, 90.0, 80.0)
    assert time_left(jobs, 1) == ["9 min left"]  # 3 · 40 + 2 · 80 + 3 · 80 s
    assert time_left(jobs, 2) == ["4 min left"]
    fourth.state = "failed"
    assert time_left([first, fourth], 4) == []


def test_before_any_epoch_the_time_left_is_guessed_and_then_scaled_by_the_runs_here(tmp_path: Path) -> None:
    jobs = planned(tmp_path)
    for job in jobs:
        job.guess = 10.0
    assert time_left(jobs, 1) == ["about 2 min left"]  # 12 epochs
    jobs[0].state, jobs[0].progress = "running", Progress(1, 90.0, 40.0)
    assert time_left(jobs, 1) == ["7 min left"]  # 5 · 40 + 6 · 4 · 10 s: four times as long as guessed

"""What the launcher shows on a terminal of 80 columns, and in a file."""

import io
from pathlib import Path

from launching import planned
from rich.console import Console

from capsexp.reproduce.monitor import Monitor, remaining
from capsexp.reproduce.planning import Progress


def drawn(monitor: Monitor) -> list[str]:
    """The table, without the spaces around its lines."""
    console = Console(width=80)
    with console.capture() as captured:
        console.print(monitor.table())
    return [line.strip() for line in captured.get().splitlines()]


def test_a_line_a_run_at_80_columns(tmp_path: Path) -> None:
    jobs, screen = planned(tmp_path), io.StringIO()
    console = Console(width=80, file=screen, force_terminal=True, color_system=None)
    monitor = Monitor(jobs, 2, console)
    monitor.names = {name: f"{words} {'x' * 90}" for name, words in monitor.names.items()}
    jobs[1].state, jobs[1].progress, jobs[1].published = "running", Progress(1, 97.5, 60.0, 1234.5), "99.71"
    jobs[2].state = "running"
    jobs[0].state, jobs[0].outcome = "finished", "maximum test accuracy 95.00 % in epoch 2 of 2, last 94.00 %"
    monitor.update()
    lines = screen.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    (finished,) = (line for line in lines if "finished attention" in line)
    assert finished.endswith("…")
    assert not any("begins" in line for line in lines)  # the table tells
    heading, first, second, total = drawn(monitor)
    assert heading.split() == ["run", "epoch", "best", "%", "published", "images/s"]
    assert first.split()[-4:] == ["1/3", "97.50", "99.71", "1,234"]
    assert first.split()[-5].startswith("━")
    assert second.split()[-1] == "0/3"
    assert total.endswith("1 of 4 finished, 2 running, 1 waiting, 4 min left")  # 8 epochs of 60 s


def test_the_time_left_is_of_as_many_at_a_time_as_there_are(tmp_path: Path) -> None:
    first, second, *_ = jobs = planned(tmp_path)
    for job in jobs:
        job.state, job.progress = "finished", Progress(3, seconds=60.0)
    for at_a_time, minutes in ((1, 6), (2, 3), (4, 3)):
        first.state = second.state = "running"
        first.progress = second.progress = Progress(0, seconds=60.0)
        assert remaining(jobs, at_a_time) == 60 * minutes
    assert remaining(jobs[2:], 4) == 0


def test_a_file_gets_whole_lines(tmp_path: Path) -> None:
    jobs, screen = planned(tmp_path), io.StringIO()
    monitor = Monitor(jobs, 2, Console(file=screen))
    jobs[0].state = "running"
    monitor.update()
    jobs[0].state, jobs[0].outcome = "finished", " ".join(50 * ["word"])
    monitor.update()
    name = monitor.names[jobs[0].planned.name]
    assert screen.getvalue().splitlines() == [
        f"0 of 4 finished, 1 running, 3 waiting: begins {name}",
        f"1 of 4 finished, 3 waiting: finished {name}: {jobs[0].outcome}",
    ]

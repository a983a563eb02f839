"""Running many while runs and launchers are killed, interrupted, or two at once."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from launching import assert_same, owners, planned, records_in, reproduce, start, wait_until

from capsexp.run import records
from capsexp.run.execute import is_locked, locked


@contextmanager
def killing(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A launcher that is killed when the block ends, if it hasn't ended before; its runs die with it."""
    process = start(folder, "--seeds=2", "--jobs=2", "--retry=1000")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        wait_until(lambda: not owners(folder), 10)


def kill_at_random(folder: Path, of_runs: int, of_launchers: int, whole: dict[str, records.Record]) -> None:
    """SIGKILLs runs and launchers at random moments; a study that comes to its end is compared and begun again."""
    luck = random.Random(0)
    while of_runs or of_launchers:
        with killing(folder) as process:
            wait_until(lambda: bool(owners(folder)) or process.poll() is not None)
            for _ in range(max(1, of_runs // max(1, of_launchers))):
                time.sleep(luck.uniform(0, 0.5))
                running = owners(folder)
                if running and of_runs:
                    with suppress(ProcessLookupError):
                        os.kill(luck.choice(running), signal.SIGKILL)
                        of_runs -= 1
            of_launchers -= process.poll() is None and of_launchers > 0
        if len(list(folder.glob("results/runs/*.json"))) == len(whole):
            assert_same(records_in(folder), whole)
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("of_runs", "of_launchers"),
    [
        pytest.param(3, 1, id="few"),
        pytest.param(200, 40, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_whatever_is_killed_the_study_ends_as_if_nothing_had_been(
    of_runs: int, of_launchers: int, tmp_path: Path, whole: Path
) -> None:
    kill_at_random(tmp_path / "killed", of_runs, of_launchers, records_in(whole))
    assert reproduce(tmp_path / "killed", "--seeds=2", "--jobs=2", "--retry=1") == 0
    assert_same(records_in(tmp_path / "killed"), records_in(whole))
    assert list((tmp_path / "killed").rglob("*.part")) == []


def test_a_run_that_another_process_has_in_hand_is_waited_for(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(tmp_path, "--seeds=2")
    wait_until(lambda: bool(owners(tmp_path)))
    assert reproduce(tmp_path, "--seeds=2") == 0  # beside the first
    screen, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    both = screen + capsys.readouterr().out
    assert "another process trains it" in both
    outputs = [path.read_text() for path in tmp_path.glob("logs/*/output.txt")]
    assert [output.count("parameters on cpu") for output in outputs] == [1] * 8  # each was trained once
    assert_same(records_in(tmp_path), records_in(whole))


def test_a_dead_owner_s_lock_is_free(tmp_path: Path) -> None:
    (job, *_) = planned(tmp_path)
    job.planned.folder.mkdir(parents=True)
    (job.planned.folder / "lock").write_text("1")
    assert not is_locked(job.planned.folder)
    with locked(job.planned.folder):
        assert is_locked(job.planned.folder)


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_it_leaves_nothing_running_and_goes_on_later(
    sent: signal.Signals, tmp_path: Path, whole: Path
) -> None:
    process = start(tmp_path, "--seeds=2", "--jobs=2")
    wait_until(lambda: len(owners(tmp_path)) == 2)
    process.send_signal(sent)
    screen, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert screen.splitlines()[-1] == "interrupted: the same command continues after the last whole epochs"
    assert "left: run the same command again to continue" in screen
    assert "Traceback" not in screen
    assert not owners(tmp_path)
    assert reproduce(tmp_path, "--seeds=2", "--jobs=2") == 0
    assert_same(records_in(tmp_path), records_in(whole))

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
from threading import Thread

import pytest
from launching import assert_same, records_in, reproduce, running, start, wait_until

from capsexp.run import records


def test_a_killed_run_is_tried_again_and_ctrl_c_leaves_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        wait_until(lambda: bool(running(tmp_path)), 60)
        (first,) = killed = running(tmp_path)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running(tmp_path) not in ([], killed), 60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=kill)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path, "--jobs=1", "--seeds=1", "budget.epochs=900")
    thread.join()
    assert not running(tmp_path)
    assert "0 of 2 runs finished (2 left: the same command again continues)" in capsys.readouterr().out


@contextmanager
def killed(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A launcher that is killed when the block ends, if it hasn't ended before; its runs die with it."""
    process = start(folder, "--retry=1000")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        wait_until(lambda: not running(folder))


def fork_servers(launcher: int) -> list[int]:
    """The fork servers of a launcher, of which all but one are about to end."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    with suppress(FileNotFoundError):
        pids = [int(child) for child in children.read_text().split()]
        return [pid for pid in pids if "multiprocessing.forkserver" in Path(f"/proc/{pid}/cmdline").read_text()]
    return []


def kill_at_random(folder: Path, runs: int, launchers: int, servers: int, whole: dict[str, records.Record]) -> None:
    """Kills so many of each at random moments; a finished study is compared and begun again."""
    luck = random.Random(0)
    while runs or launchers or servers:
        with killed(folder) as process:
            wait_until(lambda: bool(running(folder)) or process.poll() is not None)
            for _ in range(max(1, runs // max(1, launchers))):
                time.sleep(luck.uniform(0, 0.5))
                found = running(folder)
                if found and runs:
                    with suppress(ProcessLookupError):
                        os.kill(luck.choice(found), signal.SIGKILL)
                        runs -= 1
            if servers and (pids := fork_servers(process.pid)):
                os.kill(pids[-1], signal.SIGKILL)
                servers -= 1
                time.sleep(luck.uniform(0, 2))
                assert process.poll() in (None, 0)
            launchers -= process.poll() is None and launchers > 0
        if len(list(folder.glob("results/runs/*.json"))) == len(whole):
            assert_same(records_in(folder), whole)
            shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("runs", "launchers", "servers"), [(2, 1, 1), (20, 5, 2)])
def test_whatever_is_killed_the_records_are_those_of_an_undisturbed_study(
    runs: int, launchers: int, servers: int, tmp_path: Path, whole: Path
) -> None:
    kill_at_random(tmp_path / "killed", runs, launchers, servers, records_in(whole))
    assert reproduce(tmp_path / "killed", "--retry=1") == 0
    assert_same(records_in(tmp_path / "killed"), records_in(whole))
    assert list((tmp_path / "killed").rglob("*.part")) == []


@pytest.mark.slow
def test_two_launchers_at_once_train_each_run_once(tmp_path: Path, whole: Path) -> None:
    first = start(tmp_path)
    wait_until(lambda: bool(running(tmp_path)))
    assert reproduce(tmp_path) == 0
    first.communicate(timeout=300)
    assert first.returncode == 0
    outputs = [path.read_text() for path in tmp_path.glob("logs/*/output.txt")]
    assert [output.count(": on cpu in") for output in outputs] == [1] * 4
    assert [output.count("\nepoch ") for output in outputs] == [3] * 4  # as the records have
    assert_same(records_in(tmp_path), records_in(whole))


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_an_interrupted_launcher_leaves_no_process_and_can_be_resumed(early: bool, tmp_path: Path, whole: Path) -> None:
    """By a terminal's Ctrl-C, which all processes get; early: while the fork server imports torch."""
    process = start(tmp_path, start_new_session=True)
    wait_until(lambda: bool(fork_servers(process.pid) if early else running(tmp_path)))
    os.killpg(process.pid, signal.SIGINT)
    screen, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert screen.splitlines()[-1] == "interrupted: the same command continues after the last whole epochs"
    assert "left: the same command again continues)" in screen
    assert "Traceback" not in screen
    assert not running(tmp_path)
    assert reproduce(tmp_path) == 0
    assert_same(records_in(tmp_path), records_in(whole))

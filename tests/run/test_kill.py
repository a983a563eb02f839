"""SIGKILL at any moment: nothing half-written is read, and the finished record is that of an uninterrupted run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, TINY, numbers

from capsexp.run import records

OPTIONS = (*TINY, "budget.epochs=8", "attention=cbam", "reconstruction.enabled=true", "preprocess.shift=0.1")


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """The run, writing below `folder`."""
    arguments = [*OPTIONS, f"paths.results={folder}/results", f"paths.logs={folder}/logs"]
    return subprocess.Popen(
        [sys.executable, "-m", "capsexp", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )


def finish(folder: Path) -> records.Record:
    """Runs it to its end."""
    process = start(folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    (path,) = (folder / "results" / "runs").iterdir()
    return records.read(path)


def kill_often(folder: Path, kills: int, longest: float, whole: records.Record) -> None:
    """Kills the run so many times, each at a random moment; one that was quicker is compared, and started over."""
    luck = random.Random(0)
    while kills:
        process = start(folder)
        time.sleep(luck.uniform(0.0, longest))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills -= 1
        process.communicate(timeout=60)
        for path in folder.glob("results/runs/*.json"):
            assert numbers(records.read(path)) == numbers(whole)
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    "kills",
    [pytest.param(1, id="one"), pytest.param(20, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_killed_runs_end_in_the_same_record(kills: int, tmp_path: Path) -> None:
    started = time.perf_counter()
    whole = finish(tmp_path / "whole")
    kill_often(tmp_path / "killed", kills, time.perf_counter() - started, whole)
    killed = finish(tmp_path / "killed")
    assert numbers(killed) == numbers(whole)
    for name in ("key", "max_accuracy", "first_epoch_to_max", "last_accuracy", "parameters", "config", "data"):
        assert getattr(killed, name) == getattr(whole, name)
    left = [path.name for path in (tmp_path / "killed" / "results" / "runs").iterdir()]
    assert left == [f"capsnet-mnist_sample-{whole.key}.json"]

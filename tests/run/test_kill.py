"""SIGKILL at any moment: no half-written file is read, and the record is that of an uninterrupted run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, TINY, folders, numbers, train

from capsexp.run import records
from capsexp.run.plan import LAST

OPTIONS = ("budget.epochs=8", "attention=cbam", "reconstruction.enabled=true", "preprocess.shift=0.1")


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """The run as a program, writing below `folder`."""
    command = [sys.executable, "-m", "capsexp", *TINY, *OPTIONS, *folders(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True
    )


def assert_same(killed: records.Record, whole: records.Record) -> None:
    """The same results of the same run."""
    assert numbers(killed) == numbers(whole)
    for name in ("key", "max_accuracy", "first_epoch_to_max", "last_accuracy", "parameters", "config", "data"):
        assert getattr(killed, name) == getattr(whole, name)


def test_a_killed_run_ends_in_the_same_record(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", *OPTIONS, "logger=[]").record
    process = start(tmp_path)
    while not list(tmp_path.glob(f"logs/*/{LAST}")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    killed = train(tmp_path, *OPTIONS).record
    assert_same(killed, whole)
    assert killed.provenance["resumed_after_epochs"]
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_killed_twenty_times_ends_in_the_same_record(tmp_path: Path) -> None:
    started = time.perf_counter()
    process = start(tmp_path / "whole")
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    longest = time.perf_counter() - started
    whole = train(tmp_path / "whole", *OPTIONS).record  # read, as it is finished
    luck, kills = random.Random(0), 20
    while kills:
        process = start(tmp_path / "killed")
        time.sleep(luck.uniform(0.0, longest))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills -= 1
        process.communicate()
        for path in tmp_path.glob("killed/results/runs/*.json"):  # the run was faster
            assert_same(records.read(path), whole)
            shutil.rmtree(tmp_path / "killed")
    assert_same(train(tmp_path / "killed", *OPTIONS).record, whole)
    assert len(list((tmp_path / "killed" / "results" / "runs").iterdir())) == 1

"""SIGKILL at any moment: no half-written file is read, and the record is that of an uninterrupted run."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launching import assert_same, records_in, wait_until
from support import TINY, begun, folders, train

from capsexp.run.plan import LAST

pytestmark = pytest.mark.slow

OPTIONS = ("budget.epochs=8", "attention=cbam", "reconstruction.enabled=true", "preprocess.shift=0.1")


def start(folder: Path) -> "subprocess.Popen[str]":
    """The run as a program, writing below `folder`."""
    words = ("-m", "capsexp", *TINY, *OPTIONS, *folders(folder))
    return begun(*words, stdout=subprocess.DEVNULL, start_new_session=True)


@pytest.mark.timeout(1800)
def test_a_run_killed_twenty_times_ends_in_the_same_record(tmp_path: Path) -> None:
    started = time.perf_counter()
    process = start(tmp_path / "whole")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    longest = time.perf_counter() - started
    luck, kills = random.Random(0), 20
    while kills:
        process = start(tmp_path / "killed")
        if kills > 1:
            time.sleep(luck.uniform(0.0, longest))
        else:
            wait_until(lambda: bool(list(tmp_path.glob(f"killed/logs/*/{LAST}"))))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills -= 1
        process.communicate()
        if list(tmp_path.glob("killed/results/runs/*.json")):  # the run was faster
            assert_same(records_in(tmp_path / "killed"), records_in(tmp_path / "whole"))
            shutil.rmtree(tmp_path / "killed")
    assert train(tmp_path / "killed", *OPTIONS).record.provenance["resumed_after_epochs"]
    assert_same(records_in(tmp_path / "killed"), records_in(tmp_path / "whole"))

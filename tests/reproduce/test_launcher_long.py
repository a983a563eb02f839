"""Many runs by one launcher, or by two: nothing grows. CAPSEXP_MANY is the number of runs, 1000 to be sure."""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from launching import SCRIPT, records_in
from support import TINY, begun, folders
from test_launcher_kills import fork_servers

MANY = int(os.environ.get("CAPSEXP_MANY", "40"))
WARM = 10  # runs, after which everything has been imported and allocated


class Use(NamedTuple):
    """What a process holds."""

    runs: int  # finished
    megabytes: float
    files: int


def start(folder: Path) -> "subprocess.Popen[str]":
    """A launcher of MANY runs of two steps, whose output goes to a file."""
    words = [word for word in TINY if not word.startswith(("budget=", "budget.epochs="))]
    options = ["--budget=smoke", f"--seeds={MANY}", "--jobs=2", "routing.iterations=2", "attention=none"]
    with (folder / f"output{len(list(folder.glob('output*')))}").open("w") as output:
        arguments = ("jiao_table2", *options, *words, *folders(folder))
        return begun(SCRIPT, *arguments, stdout=output, stderr=subprocess.STDOUT)


def use(pid: int, runs: int) -> Use:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return Use(runs, int(found[1]) / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def watch(processes: "list[subprocess.Popen[str]]", folder: Path) -> dict[str, list[Use]]:
    """What launchers and fork servers hold, until they end, about ten times."""
    found: dict[str, list[Use]] = {}
    due = WARM
    while any(process.poll() is None for process in processes):
        done = len(list(folder.glob("results/runs/*.json")))
        if due <= done < MANY:
            due = done + max(1, (MANY - WARM) // 10)
            for number, process in enumerate(processes):
                pids = [("launcher", process.pid), *(("fork server", pid) for pid in fork_servers(process.pid)[-1:])]
                for name, pid in pids:
                    found.setdefault(f"{name} {number}", []).append(use(pid, done))
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.timeout(36000)
@pytest.mark.parametrize("launchers", [1, 2])
def test_memory_and_open_files_are_flat(launchers: int, tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(launchers)]
    found = watch(processes, tmp_path)
    outputs = [path.read_text() for path in sorted(tmp_path.glob("output*"))]
    assert [process.returncode for process in processes] == [0] * launchers, outputs
    assert len(records_in(tmp_path)) == MANY
    trained = [path.read_text().count("\ntrains ") for path in tmp_path.glob("logs/*/output.txt")]
    assert trained == [1] * MANY
    for output in outputs:
        assert f"{MANY} of {MANY} runs finished" in output
        assert " of them are trials of a few steps (budget.steps), which tables leave out" in output
    for name, uses in found.items():
        print(name, *(f"{one.runs} runs: {one.megabytes:.1f} MB, {one.files} files;" for one in uses))
        assert uses[-1].megabytes - uses[0].megabytes < 20
        assert uses[-1].files - uses[0].files <= 4  # pipes of two runs
    assert any(name.startswith("fork server") for name in found)

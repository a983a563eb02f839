"""Many runs by two launchers at once: nothing grows. CAPSEXP_MANY is the number of runs, 1000 to be sure."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from launching import SCRIPT, records_in
from support import TINY, begun, folders
from test_launcher_kills import fork_servers

MANY = int(os.environ.get("CAPSEXP_MANY", "24"))
WARM = 8  # runs, after which everything has been imported and allocated


def use(pid: int) -> tuple[float, int]:
    """The megabytes and the open files of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(36000)
def test_memory_and_open_files_are_flat(tmp_path: Path) -> None:
    words = [word for word in TINY if not word.startswith(("budget=", "budget.epochs="))]
    options = ["--budget=smoke", f"--seeds={MANY}", "--jobs=2", "routing.iterations=2", "attention=none", "logger=[]"]
    outputs = [tmp_path / "output0", tmp_path / "output1"]
    started = []
    for path in outputs:
        with path.open("w") as output:
            line = (SCRIPT, "jiao_table2", *options, *words, *folders(tmp_path))
            started.append(begun(*line, stdout=output, stderr=subprocess.STDOUT))
    found: dict[int, list[tuple[float, int]]] = {}
    while any(process.poll() is None for process in started):
        if WARM <= len(list(tmp_path.glob("results/runs/*.json"))) < MANY:
            for process in started:
                for pid in (process.pid, *fork_servers(process.pid)[-1:]):
                    found.setdefault(pid, []).append(use(pid))
        time.sleep(1)
    assert [process.returncode for process in started] == [0, 0], [path.read_text() for path in outputs]
    assert all(f"{MANY} of {MANY} runs finished" in path.read_text() for path in outputs)
    assert len(records_in(tmp_path)) == MANY
    assert [path.read_text().count("\ntrains ") for path in tmp_path.glob("logs/*/output.txt")] == [1] * MANY
    assert len(found) == 4
    for uses in found.values():
        assert uses[-1][0] - uses[0][0] < 20
        assert uses[-1][1] - uses[0][1] <= 6  # pipes of two runs

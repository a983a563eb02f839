"""A disk that fills up while a run writes: the error names the path, and earlier files stay whole."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, TINY, committed_records, folders

from capsexp.run import records

#: In a mount namespace of its own: a small file system, all but full; then the program, then what is left.
SCRIPT = """
set -e
mount -t tmpfs -o size=256k,mode=777 tmpfs "$1"
mkdir -p "$1/runs" && cp "$2" "$1/runs"
head -c 262144 /dev/zero > "$1/filler" 2> /dev/null || true
shift 2
code=0
"$@" || code=$?
cp -r "$SMALL/." "$KEPT"
exit $code
"""


def can_mount() -> bool:
    """Whether this user may mount in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="needs to mount a small file system")
@pytest.mark.parametrize("full", ["results", "logs"])
def test_a_full_disk_is_named_and_nothing_earlier_is_lost(full: str, tmp_path: Path) -> None:
    earlier = (committed_records() or [None])[0]
    if earlier is None:
        pytest.skip("not a checkout")
    small, kept = tmp_path / full, tmp_path / "kept"
    small.mkdir()
    kept.mkdir()
    program = [sys.executable, "-m", "capsexp", *TINY, "attention=cbam", *folders(tmp_path)]
    ended = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "bash", "-c", SCRIPT, "bash", small, earlier, *program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"SMALL": str(small), "KEPT": str(kept), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    assert ended.returncode == 1, ended.stderr
    error = ended.stderr.splitlines()[-1]
    assert error.startswith(f"error: {small}/"), ended.stderr
    assert error.endswith(": No space left on device")
    assert "Traceback" not in ended.stderr
    assert records.read(kept / "runs" / earlier.name) == records.read(earlier)
    assert [path.name for path in (kept / "runs").iterdir()] == [earlier.name]  # nothing half-written beside it
    assert list(kept.rglob("*.part")) == []

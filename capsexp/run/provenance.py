"""A record's provenance: when, by which code and libraries, and on which machine a run was trained."""

import os
import platform
import re
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import capsexp
from capsexp.cli import print_line
from capsexp.run.memory import proc_value

LIBRARIES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "hydra-core", "omegaconf", "numpy", "pillow")


def start() -> dict[str, Any]:
    """The part of the provenance that is known when a run starts: time, commit of the code that was just imported."""
    commit, clean = _commit()
    return {"started": _now(), "commit": commit, "clean_tree": clean}


def of_run(
    started: dict[str, Any], device: torch.device, processes: int, resumed: list[int], command: str | None
) -> dict[str, Any]:
    """Versions, commit, machine and times, without names or paths of the machine.

    `started` is from `start`, with the commits of all parts of a run that was resumed.
    """
    return {
        "command": command,
        **started,
        "ended": _now(),
        "resumed_after_epochs": resumed,
        "python": platform.python_version(),
        # torch's own version names its build, 2.14.1+cu130; its wheel's may not.
        "libraries": {name: version(name) for name in LIBRARIES}
        | {"torch": str(torch.__version__), "capsexp": capsexp.__version__},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": _load(),
    }


def processor() -> str:
    """The name of the processor, where the system has it."""
    return proc_value("cpuinfo", "model name") or platform.processor() or platform.machine()


def _load() -> float | None:
    """The load average of the last minute, where the system has one."""
    with suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _commit() -> tuple[str | None, bool | None]:
    """The commit of the code that runs, and whether its tracked files are unchanged; None outside a checkout."""
    folder = Path(__file__).parents[1]
    if not _git(folder, "ls-files", "errors.py"):  # installed in an environment that is inside another repository
        commit = _head(folder.parent / ".git")
        if commit:
            print_line("git doesn't read this checkout (another user's?): the record has the commit of its HEAD alone")
        return commit, None
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".", "../conf")
    return commit, None if changes is None else not changes


def _head(git: Path) -> str | None:
    """The commit of a checkout's HEAD, without git; None for no checkout."""
    with suppress(OSError):
        if git.is_file():  # of a worktree
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        files = (file for file in (shared / name, shared / "packed-refs") if file.is_file())
        texts = [f"{head} {name}", *(file.read_text() for file in files)]
        commit = re.search(rf"^([0-9a-f]{{40,64}})( {re.escape(name)})?$", "\n".join(texts), re.MULTILINE)
        return commit[1] if commit else None
    return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

"""A record's provenance: when, by which code and libraries, and on which machine a run was trained."""

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import capsexp
from capsexp.run.memory import proc_value
from capsexp.run.plan import Plan

LIBRARIES = ("torch", "torchvision", "pytorch-lightning", "torchmetrics", "hydra-core", "omegaconf", "numpy", "pillow")


def start() -> dict[str, Any]:
    """The part of the provenance that is known when a run starts: time, commit of the code that was just imported."""
    commit, clean = _commit()
    return {"started": _now(), "commit": commit, "clean_tree": clean}


def of_run(planned: Plan, started: dict[str, Any], resumed: list[int]) -> dict[str, Any]:
    """Versions, commit, machine and times, without names or paths of the machine.

    `started` is from `start`, with the commits of all parts of a run that was resumed.
    """
    return {
        "command": planned.command,
        **started,
        "ended": _now(),
        "resumed_after_epochs": resumed,
        "python": platform.python_version(),
        # torch's own version names its build, 2.14.1+cu130; its wheel's may not.
        "libraries": {name: version(name) for name in LIBRARIES}
        | {"torch": str(torch.__version__), "capsexp": capsexp.__version__},
        "device": torch.cuda.get_device_name(planned.device) if planned.device.type == "cuda" else processor(),
        "processes": planned.processes,
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
    package = Path(__file__).parents[1]
    checkout = next((folder for folder in package.parents if (folder / ".git").exists()), package)
    # Named, since git finds none that belongs to another user.
    git = ["git", "-C", str(package), f"--git-dir={checkout / '.git'}", f"--work-tree={checkout}"]

    def output(*arguments: str) -> str | None:
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.check_output([*git, *arguments], stderr=subprocess.DEVNULL, text=True, timeout=10).strip()
        return None

    if not output("ls-files", "errors.py"):  # installed in an environment that is inside another repository
        return None, None
    changes = output("status", "--porcelain", "--untracked-files=no", "--", ".", "../conf")
    return output("rev-parse", "HEAD"), None if changes is None else not changes

"""A process's memory: its peaks, its limit, what its allocator keeps, and errors of having too little."""

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path

import torch

from capsexp.data.reader import host_memory


def reset_peak_memory(device: torch.device) -> None:
    """Makes the peaks those from now on, without the memory of a run that this process did before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM, see proc(5)


def peak_memory_mb(device: torch.device) -> dict[str, float | None]:
    """The peaks since `reset_peak_memory`, in MB of 10⁶ bytes, on the device and of this process on the host."""
    on_device = torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None
    return {"device": on_device and round(on_device, 1), "host": round(host_peak() / 1e6, 1)}


def host_peak() -> int:
    """The peak of this process's memory, in bytes, since it was reset where the system can."""
    if peak := proc_value("self/status", "VmHWM"):  # getrusage's begins with that of the program that started this one
        return 1024 * int(peak.removesuffix(" kB"))
    import resource  # not on Windows, where networks can be loaded

    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def proc_value(path: str, key: str) -> str:
    """The first value of a key in a file in /proc; empty on systems without."""
    with suppress(OSError):
        if match := re.search(rf"^{key}\s*: *(.*)", Path("/proc", path).read_text(), re.MULTILINE):
            return match[1].strip()
    return ""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an operation found too little memory, of the host or of a GPU.

    Torch's allocator on the host and a CUDA context that can't be made raise errors without a class of their own.
    """
    texts = (
        "can't allocate memory|bad_alloc|could not create a (memory|primitive)|_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
        "|((CUDA|HIP|driver) error|Triton Error.*): out of memory"
    )
    named = isinstance(error, RuntimeError) and re.search(texts, str(error))
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or bool(named)


def limit_memory() -> None:
    """Limits memory to nine tenths of what is free: Linux grants more, and kills the process that uses it."""
    if not (available := proc_value("meminfo", "MemAvailable")):
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        used = 1024 * int(proc_value("self/status", "VmData").removesuffix(" kB"))
        free = min(1024 * int(available.removesuffix(" kB")), host_memory())
        resource.setrlimit(resource.RLIMIT_DATA, (used + 9 * free // 10, hard))


def keep_freed_memory() -> None:
    """Makes glibc's malloc keep freed memory; does nothing where there is another malloc.

    By default it returns each large tensor to the system, which zeroes and maps its pages again in every step: a
    quarter of the time of a CapsNet on a CPU.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-4, 0)  # M_MMAP_MAX, in malloc.h
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD

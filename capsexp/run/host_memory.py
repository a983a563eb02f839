"""Keeps the host memory that tensors free, instead of handing it back to the system after every step.

glibc takes each large tensor from the system and gives it back when it is freed; the pages are then zeroed and
mapped anew at every step. For a CapsNet on a CPU that is a quarter of the time.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # as in malloc.h
LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Tells glibc's malloc to keep what it has; does nothing where there is another."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, LARGEST)

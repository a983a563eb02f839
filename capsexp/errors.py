"""Errors that end the program with one line, and exit codes; numbers and texts as words of such lines."""

import re
import time
from pathlib import Path
from traceback import walk_tb

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

#: Beginnings of the names of files that are not the user's, as a regular expression.
_LIBRARIES = rf"^(<|{re.escape(str(Path(__file__).parent))}/)|/lib(64)?/python3"


class CapsexpError(Exception):
    """Ends the program with its message, which is one line, and its exit code."""

    exit_code = FAILED


class InputError(CapsexpError):
    """Wrong input: a key, a value, a file, a shape."""

    exit_code = WRONG_INPUT


class DamagedError(InputError):
    """A file that is missing or damaged, of a kind that the program can make again."""


class RunError(CapsexpError):
    """A failure in spite of correct input."""


class BusyError(RunError):
    """Another process trains the run."""


def is_interruption(error: BaseException | None) -> bool:
    """Whether it is a KeyboardInterrupt, or an error that one left behind in a library, as OmegaConf's `finally` do."""
    if error is None or isinstance(error, OSError | CapsexpError):  # of writing a checkpoint at the end, for example
        return False
    return isinstance(error, KeyboardInterrupt) or is_interruption(error.__context__)


def raise_interruption(error: BaseException) -> None:
    """Raises KeyboardInterrupt for an interruption: before an error is taken for something else."""
    if is_interruption(error):
        raise KeyboardInterrupt from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def located(error: BaseException) -> str:
    """An error with its type and `place`: NameError: … (mine/networks.py, line 3)."""
    return f"{type(error).__name__}: {first_line(error)}{place(error)}"


def place(error: BaseException) -> str:
    """The last line of an error that is outside of this package and of libraries, in brackets; else nothing."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [f" ({file}, line {line})" for file, line in frames if not re.search(_LIBRARIES, file)]
    return "".join(own[-1:])


def printable(text: str) -> str:
    """A text as one line, with escapes for what a terminal takes as commands."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def plural(number: int, what: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 20 min, 51 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return time.strftime(f"{int(seconds // 3600)} h %M min", time.gmtime(seconds))
    return f"{seconds / 86400:.0f} days"


def check_choice(name: str, value: object, *allowed: object) -> None:
    """Raises ValueError for an argument of a library's user that is none of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name}={value}: must be one of {', '.join(map(str, allowed))}")

"""The errors that a user can mend, and the exit codes they end in."""

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class CapsexpError(Exception):
    """Ends the program with one line on the screen; its message is that line."""

    exit_code = FAILED


class InputError(CapsexpError):
    """Something the user gave is wrong: a key, a value, a file, a shape."""

    exit_code = WRONG_INPUT


class RunError(CapsexpError):
    """A run that was asked for correctly did not succeed."""


class BusyError(RunError):
    """Another process is training this run."""


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__

"""What the commands that look at checkpoints share: their words, and their end: an exit code, at most one line."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from capsexp.config import compose
from capsexp.config.checks import nearest
from capsexp.errors import DONE, INTERRUPTED, CapsexpError, InputError, RunError, one_line


def end_with(main: Callable[[list[str]], object], documentation: str | None) -> NoReturn:
    """Runs `main` on the command line's words and ends the program: 0 done, 1 failed, 2 wrong input, 130 interrupted.

    -h and --help print the documentation. HYDRA_FULL_ERROR=1 adds a traceback to an error.
    """
    signal.signal(signal.SIGTERM, _terminated)
    words = sys.argv[1:]
    if {"-h", "--help"} & set(words):
        print((documentation or "").strip())
        sys.exit(DONE)
    try:
        main(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(_told(error))
    sys.exit(DONE)


def own_words(words: list[str], own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values of a command's own words, and the rest, which are overrides of the configuration.

    Args:
        own: each own word, and what its value is. Those that are not given are missing in the result.

    Raises InputError for a word without =, for one of the own without a value, and for one that is nearly one of them.
    """
    given, rest = {}, []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{word}: not of the form key=value")
        if key in own and not value:
            raise InputError(f"{key}=: must be {own[key]}")
        if key in own:
            given[key] = value
        elif "." not in key and (hint := nearest(key, own)):
            raise InputError(f"{key}: no such key{hint}")
        else:
            rest.append(word)
    return given, rest


def _told(error: Exception) -> int:
    """Prints an error as one line, and a traceback where that is asked for or helps; its exit code."""
    if isinstance(error, BrokenPipeError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that nothing is written there when the program ends
        error = RunError("nobody reads the output any more")
    known = compose.explained(error, [])
    if os.environ.get("HYDRA_FULL_ERROR") == "1" or not isinstance(known, CapsexpError):
        traceback.print_exception(error)
    if not isinstance(known, CapsexpError):
        known = RunError(f"{type(known).__name__}: {one_line(known)}")
    print(f"error: {known}", file=sys.stderr)
    return known.exit_code


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt

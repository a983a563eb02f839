"""Arguments, exit codes and one-line errors of all commands."""

import argparse
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from capsexp.config import searchpath
from capsexp.config.checks import nearest
from capsexp.config.compose import explained, for_hydra
from capsexp.errors import DONE, INTERRUPTED, CapsexpError, InputError, RunError, first_line, printable


def end_with(main: Callable[[list[str]], int | None], documentation: str | None = None, resume: str = "") -> NoReturn:
    """Runs `main` on the command line's arguments and exits: 0 done, 1 failed, 2 wrong input, 130 interrupted.

    Args:
        main: returns an exit code, or None for 0.
        documentation: printed for -h and --help; None, if `main` handles these.
        resume: how to continue after an interruption, for its message.

    Every command takes --config-dir=DIR and trust=PACKAGE: see capsexp.config.searchpath. SIGTERM has the effect of
    Ctrl-C. HYDRA_FULL_ERROR=1 adds a traceback to an error.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    words = sys.argv[1:]
    try:
        if documentation and {"-h", "--help"} & set(words):
            print(documentation.strip())
            code = DONE
        else:
            code = _exit_code(main, _without_search_path(words))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(": ".join(filter(None, ["interrupted", resume])), file=sys.stderr)
        code = INTERRUPTED
    except Exception as error:
        code = report(error, words, resume).exit_code
    sys.exit(code)


def _without_search_path(words: list[str]) -> list[str]:
    """The other words; --config-dir and trust= are put into effect."""
    folder, trust, rest, left = None, None, [], iter(words)
    for word in left:
        key, equals, value = word.partition("=")
        if key in searchpath.OPTIONS:
            folder = value if equals else next(left, "")
        elif key == "trust":
            trust = value
        elif key == "hydra.searchpath":
            raise InputError(f"{key}: --config-dir=DIR adds a folder here")
        else:
            rest.append(word)
    if folder is not None or trust is not None:
        searchpath.use(folder, trust)
    return rest


def _exit_code(main: Callable[[list[str]], int | None], words: list[str]) -> int:
    """The code that `main` returns, or exits with, as argparse and Hydra do after --help."""
    try:
        return main(words) or DONE
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich exits without a message then
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else DONE


def report(error: Exception, words: list[str], resume: str = "") -> CapsexpError:
    """Prints an error as one line, after a traceback if requested or for a bug; returns it as one of ours.

    Args:
        words: the overrides of the configuration; the nearest names to a wrong one depend on the others.
        resume: as in `end_with`.
    """
    if isinstance(error, BrokenPipeError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nothing more is written to the pipe when Python exits
        known: Exception = RunError("; ".join(filter(None, ["output pipe closed", resume])))
    else:
        known = explained(error, words)
    if os.environ.get("HYDRA_FULL_ERROR") == "1" or not isinstance(known, CapsexpError):
        traceback.print_exception(error)
    if not isinstance(known, CapsexpError):
        known = RunError(f"{type(known).__name__}: {first_line(known)}")
    print(f"error: {printable(str(known))}", file=sys.stderr)
    return known


def own_words(words: list[str], own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values of a command's own keys, and the other words, which are overrides of the configuration.

    Args:
        own: a description of each own key's value. Keys that are not given are missing in the result.

    Raises InputError for a word without =, for an own key without a value, and for what is nearly an own key.
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
            rest.append(for_hydra(word))
    return given, rest


class Parser(argparse.ArgumentParser):
    """argparse, but that wrong arguments raise InputError, and that `words` are names and overrides in any order."""

    def __init__(self, documentation: str | None, prog: str | None = None) -> None:
        kind = argparse.RawDescriptionHelpFormatter
        epilog = "--config-dir=DIR and trust=PACKAGE add files and classes of your own: docs/extending.md"
        super().__init__(prog, description=documentation, formatter_class=kind, allow_abbrev=False, epilog=epilog)

    def parse_words(self, arguments: list[str] | None) -> argparse.Namespace:
        """The options, with the `names` and the `overrides` (KEY=VALUE) among the `words`."""
        options = self.parse_intermixed_args(arguments)
        for word in options.words:
            if word.lstrip("+").startswith("study="):
                raise InputError(f"{word}: here a study's name stands alone: {word.partition('=')[2]}")
        options.names = [word for word in options.words if "=" not in word]
        options.overrides = [for_hydra(word) for word in options.words if "=" in word]
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """`paths.results=DIR`, as runs have it, is `--results=DIR` where there is that option."""
        if self.get_default("results") is not None:
            words = sys.argv[1:] if args is None else args
            args = [re.sub(r"^paths\.results=", "--results=", word) for word in words]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises InputError."""
        raise wrong_option(message)


def folder(text: str) -> Path:
    """The path that an option names, with ~ expanded."""
    return Path(os.path.expanduser(text))


def wrong_option(message: str) -> InputError:
    """The error for argparse's message; an unknown option may be meant as a key of the configuration."""
    found = re.match(r"unrecognized arguments: -+([\w.]+)(=\S*)?", message)
    return InputError(f"{message}; keys are written {found[1]}{found[2] or '=VALUE'}" if found else message)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt

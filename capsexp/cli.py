"""Arguments, exit codes and one-line errors of all commands."""

import argparse
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from capsexp.config import searchpath
from capsexp.config.checks import did_you_mean
from capsexp.config.compose import composed, for_hydra
from capsexp.config.errors import explained
from capsexp.errors import DONE, INTERRUPTED, CapsexpError, InputError, RunError, first_line, is_interruption, printable

#: The end of the help of commands that take a trained network.
RUN = """
RUN is a run's folder below paths.logs (its best.ckpt, else its last.ckpt), a file in it, its record, its curves, the
beginning of its key, a table's row, as `huang_table4:DA-CapsNet COIL-20`, or a network in the package, as `sample`.
"""


def exit_with(main: Callable[[list[str]], int | None], resume: str = "") -> NoReturn:
    """Runs `main` on the command line's arguments and exits: 0 done, 1 failed, 2 wrong input, 130 interrupted.

    Args:
        main: returns an exit code, or None for 0.
        resume: how to continue after an interruption, for its message.

    Every command takes --config-dir=DIR: see capsexp.config.searchpath. SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 have the
    effect of Ctrl-C. HYDRA_FULL_ERROR=1 adds a traceback to an error.
    """
    words = sys.argv[1:]
    sys.unraisablehook = _unraisable
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed; no file may get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the first of torchrun's processes prints
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals of other encodings than UTF-8
    try:
        handle_signals(interrupt)
        try:
            code = main(_without_search_path(words)) or DONE
        except SystemExit as ended:  # of argparse and Hydra after --help
            if isinstance(ended.__context__, BrokenPipeError):  # rich exits without a message then
                raise ended.__context__ from None
            code = ended.code if isinstance(ended.code, int) else DONE
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = INTERRUPTED if is_interruption(error) else print_error(error, words, resume).exit_code
    if code == INTERRUPTED:
        print(": ".join(filter(None, ["interrupted", resume])), file=sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to interrupt but Python's own end
        signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


def _unraisable(ignored: "sys.UnraisableHookArgs") -> None:
    """Interrupts again, where Python drops an interruption: in the callback of an import's lock, for example.

    By a signal, which also ends the main thread's waiting.
    """
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(ignored)


def _without_search_path(words: list[str]) -> list[str]:
    """The other words; --config-dir is put into effect."""
    rest, left = [], iter(words)
    for word in left:
        key, equals, value = word.partition("=")
        if key in searchpath.OPTIONS:
            searchpath.use(value if equals else next(left, ""))
        elif key == "hydra.searchpath":
            raise InputError(f"{key}: --config-dir=DIR adds a folder here")
        else:
            rest.append(word)
    return rest


def print_error(error: Exception, words: list[str], resume: str = "") -> CapsexpError:
    """Prints an error as one line, after a traceback if requested or for a bug; returns it as one of ours.

    `words` are the overrides of the configuration: which keys there are depends on the choices among them.
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
    print_line(f"error: {printable(str(known))}", sys.stderr)
    return known


class Parser(argparse.ArgumentParser):
    """argparse, but that wrong arguments raise InputError, and that KEY=VALUE may stand among names and options."""

    def __init__(self, documentation: str | None, prog: str | None = None) -> None:
        epilog = "--config-dir=DIR adds files and classes of your own: docs/extending.md"
        super().__init__(prog, description=documentation, formatter_class=_Help, allow_abbrev=False, epilog=epilog)

    def parse_words(self, arguments: list[str], *required: str) -> argparse.Namespace:
        """The options, with the `names` and the `overrides` (KEY=VALUE) among the `words`, in any order.

        Args:
            required: what the names are, where their number is fixed.
        """
        options = self.parse_intermixed_args(arguments)
        words = [word for word in options.words if re.match(r"(hydra/)?[^/=]*=", word)]
        options.names = [word for word in options.words if word not in words]
        for word in words:
            key, _, value = word.partition("=")
            if key.lstrip("+") == "study":
                raise InputError(f"{word}: here a study's name stands alone: {value}")
            if f"--{key}" in self._option_string_actions:
                raise InputError(f"{word}: an option of this command: --{word}")
        if missing := required[len(options.names) :]:
            raise InputError(f"missing: {' '.join(missing)}; {self.prog} --help says more")
        if required and (rest := options.names[len(required) :]):
            raise InputError(f"{rest[0]}: not of the form key=value")
        options.overrides = [for_hydra(word) for word in words]
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """`paths.results=DIR` and `data.root=DIR`, as runs have them, are --results and --root where these exist."""
        words, there = sys.argv[1:] if args is None else args, {action.dest for action in self._actions}
        for key, option in (("paths.results", "results"), ("data.root", "root")):
            if option in there:
                words = [re.sub(rf"^{re.escape(key)}=", f"--{option}=", word) for word in words]
        parsed = super().parse_known_args(words, namespace)
        for action in self._actions:
            value = getattr(parsed[0], action.dest, None)
            if action.metavar == "DIR" and isinstance(value, Path) and value.exists() and not value.is_dir():
                raise InputError(f"{action.option_strings[0]}={value}: must be a folder")
        return parsed

    def error(self, message: str) -> NoReturn:
        wrong_option(message, self._option_string_actions)


class _Help(argparse.HelpFormatter):
    """The documentation as wide as the terminal; paragraphs with indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if "\n " in part else fill(part, width, indent) for part in text.split("\n\n"))


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Prints a line for the user at once, on a terminal broken between words; without a stream to standard output."""
    stream = stream or sys.stdout
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=stream, flush=True)


def folder(text: str) -> Path:
    """The path that an option names, with ~ expanded; raises argparse's error for none."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a path")
    return Path(os.path.expanduser(text))


def check_new(path: Path | None) -> None:
    """Raises InputError for a folder, and for a file that exists: a command overwrites nobody's."""
    if path and (path.is_dir() or path.is_file()):
        raise InputError(f"{path}: exists already; --output=FILE must be a new file")


def add_launcher_options(parser: argparse.ArgumentParser) -> None:
    """How many runs are launched: keys of hydra/launcher=local as options."""
    parser.add_argument("--jobs", metavar="N", help="runs at a time (default: one a GPU, or one)")
    parser.add_argument("--time-limit", metavar="MINUTES", help="then stop")
    parser.add_argument("--retry", metavar="N", help="more attempts at a failed run")


def launcher_words(options: argparse.Namespace) -> list[str]:
    """These options as overrides of Hydra's."""
    values = {name: getattr(options, name) for name in ("jobs", "retry", "time_limit")}
    return [f"hydra.launcher.{name}={value}" for name, value in values.items() if value is not None]


def wrong_option(message: str, options: Iterable[str] = ()) -> NoReturn:
    """Raises InputError for argparse's message; an unknown option may be meant as another, or as a key."""
    if not (typed := re.match(r"unrecognized arguments: -+([\w.]+)(=\S*)?", message)):
        raise InputError(message)
    if near := did_you_mean(f"--{typed[1]}", options):
        raise InputError(f"{message}{near}")
    groups = composed([]).items()
    inside = [f"{group}.{typed[1]}" for group, node in groups if isinstance(node, dict) and typed[1] in node]
    written = " or ".join(f"{key}{typed[2] or '=VALUE'}" for key in inside or [typed[1]])
    raise InputError(f"{message}; keys are written {written}")


def handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handles SIGTERM; what a lost connection or a cluster sends, too, unless nohup or submitit handle it."""
    signal.signal(signal.SIGTERM, handler)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) in (signal.SIG_DFL, interrupt, interrupt_all):
            signal.signal(number, handler)


def interrupt(*_: object) -> None:
    """Handles a signal as Ctrl-C."""
    raise KeyboardInterrupt


def interrupt_all(signal_number: int, frame: FrameType | None) -> None:
    """The same for the processes that one of Hydra's launchers has started here."""
    signal.signal(signal_number, signal.SIG_IGN)  # a second one would disturb the end
    for patience in (1, 0):  # a job of submitit's ignores the first one while it starts
        for child in _children():
            os.kill(child, signal_number)
        time.sleep(patience if _children() else 0)
    raise KeyboardInterrupt


def _children() -> list[int]:
    """The processes that this one has started, where the system lists them."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []

"""How commands end: with an exit code, and for an error with one line."""

import io
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from support import Program, process, raising

from capsexp.cli import Parser, exit_with, print_line
from capsexp.config.compose import composed
from capsexp.errors import InputError, RunError

Main = Callable[[list[str]], int | None]


class ClosedPipe(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def buffering(words: list[str]) -> None:
    sys.stdout = ClosedPipe()


def left_behind(error: Exception) -> Main:
    """What OmegaConf raises after Ctrl-C, and a checkpoint that can't be written then."""

    def act(words: list[str]) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise error

    return act


def dropped(words: list[str]) -> None:
    """What Python does with an interruption of a callback, such as of an import's lock."""
    thing = ClosedPipe()
    reference = weakref.ref(thing, raising(KeyboardInterrupt()))
    del thing
    time.sleep(60)
    assert not reference()


SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def killed_by(number: signal.Signals) -> Main:
    return lambda words: os.kill(os.getpid(), number)


def end(main: Main, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """The exit code and the lines of errors."""
    monkeypatch.setattr(sys, "argv", ["command"])
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) as ended:
        exit_with(main, resume="try again")
    return ended.value.code, capsys.readouterr().err.splitlines()


AGAIN, PIPE = "interrupted: try again", "error: output pipe closed; try again"
NO_SPACE = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("main", "code", "line"),
    [
        (lambda words: None, 0, ""),
        (lambda words: 1, 1, ""),
        (raising(SystemExit(3)), 3, ""),
        (raising(InputError("seed=x: wrong")), 2, "error: seed=x: wrong"),
        (raising(RunError("a: failed: nan")), 1, "error: a: failed: nan"),
        (raising(NotADirectoryError(20, "Not a directory", "a/b")), 1, "error: a/b: Not a directory"),
        (raising(NO_SPACE), 1, "error: output: No space left on device"),
        (raising(FileNotFoundError(2, "No such file")), 1, "error: the working folder doesn't exist any more"),
        (lambda words: exec("raise ValueError('killed')", {"__name__": "joblib.parallel"}), 1, "error: killed"),
        (raising(BrokenPipeError()), 1, PIPE),
        (buffering, 1, PIPE),
        (raising(KeyboardInterrupt()), 130, AGAIN),
        pytest.param(dropped, 130, AGAIN, marks=pytest.mark.timeout(30)),
        (left_behind(AttributeError("no flags cache")), 130, AGAIN),
        (left_behind(NO_SPACE), 1, "error: output: No space left on device"),
        *((killed_by(number), 130, AGAIN) for number in SIGNALS),
    ],
)
def test_exit_codes(
    main: Main, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which the tests may run, has it ignored
    assert end(main, monkeypatch, capsys) == (code, [line] if line else [])


def test_ctrl_c_after_the_last_line_is_quiet() -> None:
    code = "import atexit, os; from capsexp.cli import exit_with; atexit.register(os.kill, os.getpid(), 2); "
    ended = process("-c", code + "exit_with(lambda words: print('done'))")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "done\n", "")


def test_an_interruption_at_any_call_of_omegaconf_is_one() -> None:
    """Its own `finally` make another error of some."""
    words = ["data=mnist_sample", "optim.milestones=[3,4]"]
    composed(words)

    def interrupted_at(call: int) -> int:
        """The number of calls; KeyboardInterrupt at one."""
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call" and "omegaconf" in frame.f_code.co_filename
            if calls == call and event == "call":
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(count)
        try:
            composed(words)
        finally:
            sys.setprofile(None)
        return calls

    for call in range(1, interrupted_at(-1), 41):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(call)


@pytest.mark.parametrize(
    ("error", "full", "line"),
    [(KeyError("three"), "0", "error: KeyError: 'three'"), (InputError("seed=x: wrong"), "1", "error: seed=x: wrong")],
)
def test_a_traceback_for_a_bug_and_on_request(
    error: Exception, full: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", full)
    _, lines = end(lambda words: exec("raise error", {"error": error}), monkeypatch, capsys)  # in no module
    assert lines[0].startswith("Traceback")
    assert lines[-1] == line


@pytest.mark.parametrize(
    "command",
    [
        ["scripts/aggregate.py", "jiao_table2", "--results=.", "--output=tables"],
        ["scripts/prepare_data.py", "mnist_sample"],
        ["scripts/reproduce_tables.py", "jiao_table2", "--dry-run"],
        ["capsexp", "--cfg=job"],
        ["capsexp", "figures", "--list"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_closed_output_pipe(
    command: list[str], program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.FileIO(write, "w"), write_through=True))
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    code, _, (line,) = program(*command)
    assert code == 1
    assert line.startswith("error: output pipe closed")


def test_a_signal_that_nohup_ignores_stays_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert end(killed_by(signal.SIGHUP), monkeypatch, capsys) == (0, [])


def test_help_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    listed = "names:\n  a   " + "what it is " * 5
    lines = Parser("Words of a sentence. " * 9 + "\n\n" + listed.strip()).format_help().splitlines()
    assert max(len(line) for line in lines if not line.startswith("  a ")) <= 50
    assert listed.splitlines()[1].rstrip() in lines


def test_a_line_is_broken_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "capsnet-mnist-047117: finished already, best test accuracy 99.50 %"
    print_line(line)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    print_line(line)
    whole, *parts = capsys.readouterr().out.splitlines()
    assert (whole, " ".join(parts), len(parts)) == (line, line, 2)


def test_what_a_terminals_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="latin-1"))
    monkeypatch.setattr(sys, "argv", ["capsexp"])
    with pytest.raises(SystemExit):
        exit_with(lambda words: print("−1"))
    assert printed.getvalue() == rb"\u22121" + b"\n"

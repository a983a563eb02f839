"""Fixtures that all tests share."""

import logging
import os
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from launching import reproduce
from support import ROOT, TINY, Ended, Installed, Program, Trained, folders, install, train

# A shell's background jobs ignore Ctrl-C, and so would the programs that these tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Random numbers are the same in every run of a test."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that a test runs in this process leaves signals as they were."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only slow tests may use the full data sets."""
    if "slow" not in request.keywords:
        monkeypatch.delenv("CAPSEXP_DATA", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """TINY, without TensorBoard, which takes longer than its training, writing below the test's own folder."""
    return (*TINY, "logger=[]", *folders(tmp_path))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A finished run, to be read only: CapsNet with CBAM and reconstruction on the packaged sample.

    TINY (256 training and 200 test images, 3 epochs, deterministic, float32, on the CPU) with 2 routing iterations.
    `trained.config` repeats it, `trained.record` is its record, which is also in `plan(trained.config).path`;
    `trained.folder` holds best.ckpt and last.ckpt.
    """
    words = ("attention=cbam", "reconstruction.enabled=true", "routing.iterations=2")
    return train(tmp_path_factory.mktemp("trained"), *words)


@pytest.fixture(scope="session")
def trained_heldout(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A finished run of protocol heldout, to be read only: CapsNet with 3 routing iterations, else as `trained`."""
    return train(tmp_path_factory.mktemp("heldout"), "protocol=heldout")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs a module (capsexp) or a script (scripts/aggregate.py) as a program, in this process."""
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("CAPSEXP_CONFIG_DIR", os.environ.get("CAPSEXP_CONFIG_DIR", ""))  # which a command sets

    def call(command: str, *arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [command, *arguments])
        with pytest.raises(SystemExit) as ended:
            if command.endswith(".py"):
                monkeypatch.syspath_prepend((ROOT / command).parent)
                runpy.run_path(str(ROOT / command), run_name="__main__")
            else:
                monkeypatch.delitem(sys.modules, f"{command}.__main__", raising=False)  # a test may have imported it
                runpy.run_module(command, run_name="__main__", alter_sys=True)
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, captured.out.splitlines(), captured.err.splitlines()

    return call


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """This package as a wheel, to be used in folders of a test's own."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the four runs of the launcher, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert reproduce(folder) == 0
    return folder

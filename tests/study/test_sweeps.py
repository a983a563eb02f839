"""A sweep in which something goes wrong: what runs all the same, what the screen says last, the exit code."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from support import ROOT

from capsexp import __main__ as program
from capsexp.config.schema import Config
from capsexp.errors import InputError, RunError
from capsexp.run import execute, records

Ended = tuple[int, list[str], list[str]]  # exit code, lines of output, lines of errors


@pytest.fixture
def capsexp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Ended]]:
    """The program, in this process, which gets everything back as it was."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["capsexp", *arguments])
        with pytest.raises(SystemExit) as ended:
            program.main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out.splitlines(), said.err.splitlines()

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Instead of trainings, the seeds of those that would have come to their end; each seed has its own fate."""
    seeds: list[int] = []
    fates = {
        1: RunError("the training of seed 1 diverged"),
        2: InputError("seed=2: nobody likes it"),
        3: KeyError("three"),
        4: KeyboardInterrupt(),
        5: BrokenPipeError(),
    }

    def run(config: Config, command: str) -> None:
        if config.seed == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        if config.seed in fates:
            raise fates[config.seed]
        seeds.append(config.seed)

    monkeypatch.setattr(execute, "run", run)
    return seeds


def test_a_run_that_fails_leaves_the_others_alone(
    tiny: tuple[str, ...], tmp_path: Path, capsexp: Callable[..., Ended]
) -> None:
    typed = ("optim.name=sgd", "loss=cross_entropy", "optim.lr=0,1e30,0.001", "budget.epochs=1")
    code, _, errors = capsexp("-m", *tiny, *typed, "hydra.sweeper.max_batch_size=1")
    found = [records.read(path) for path in (tmp_path / "results" / "runs").iterdir()]
    failed, finished = sorted(found, key=lambda record: record.status)
    assert (failed.status, finished.status) == ("failed", "finished")
    assert finished.config["optim"]["lr"] == 0.001
    assert code == 1
    name = f"capsnet-mnist_sample-{failed.key}: failed"
    wrong, diverged = "optim.lr=0: must be a number above 0", f"{name}: {failed.error}"
    assert errors == [
        f"error: {wrong}",
        f"error: {diverged}",
        "error: 2 of 3 runs failed",
        f"error: {wrong} (optim.lr=0)",
        f"error: {diverged} (optim.lr=1e+30)",
    ]


@pytest.mark.parametrize(
    ("seeds", "code", "last"),
    [
        ("7,8", 0, []),
        ("7,2,8", 2, ["error: 1 of 3 runs failed", "error: seed=2: nobody likes it (seed=2)"]),
        ("1,7", 1, ["error: 1 of 2 runs failed", "error: the training of seed 1 diverged (seed=1)"]),
        (
            "2,1",
            1,
            [
                "error: 2 of 2 runs failed",
                "error: seed=2: nobody likes it (seed=2)",
                "error: the training of seed 1 diverged (seed=1)",
            ],
        ),
    ],
)
def test_the_exit_code_and_the_last_lines(
    seeds: str, code: int, last: list[str], tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended]
) -> None:
    ended, _, errors = capsexp("-m", *tiny, f"seed={seeds}")
    assert ended == code
    assert errors[len(errors) - len(last) :] == last
    assert len(errors) == len(last) + max(0, len(last) - 1)  # each was said when it happened, too
    assert ran == [int(seed) for seed in seeds.split(",") if seed in "78"]


def test_a_bug_in_one_run_shows_its_traceback_and_leaves_the_others_alone(
    tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended]
) -> None:
    code, _, errors = capsexp("-m", *tiny, "seed=3,7")
    assert (code, ran) == (1, [7])
    assert errors[0].startswith("Traceback")
    assert errors[-3:] == [
        "error: KeyError: 'three'",
        "error: 1 of 2 runs failed",
        "error: KeyError: 'three' (seed=3)",
    ]


def test_a_traceback_where_it_is_asked_for(
    tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_TRACEBACK_ASKED_FOR", True)
    code, _, errors = capsexp("-m", *tiny, "seed=1,7")
    assert (code, ran) == (1, [7])
    assert errors[0].startswith("Traceback")
    assert errors[-1] == "error: the training of seed 1 diverged (seed=1)"


def test_a_single_run_fails_in_one_line(tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended]) -> None:
    assert capsexp(*tiny, "seed=1") == (1, [], ["error: the training of seed 1 diverged"])


@pytest.mark.parametrize(
    ("seed", "code", "line"),
    [
        (4, 130, "interrupted: the same command goes on after the last whole epoch"),
        (6, 130, "interrupted: the same command goes on after the last whole epoch"),
        (5, 1, "error: nobody reads the output any more; the same command goes on after the last whole epoch"),
    ],
    ids=["ctrl-c", "kill", "no reader"],
)
def test_what_ends_a_sweep_at_once(
    seed: int, code: int, line: str, tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended]
) -> None:
    ended, _, errors = capsexp("-m", *tiny, f"seed=7,{seed},8")
    assert (ended, errors, ran) == (code, [line], [7])


def test_what_cannot_be_composed_stops_a_sweep_before_its_first_run(
    tiny: tuple[str, ...], ran: list[int], capsexp: Callable[..., Ended]
) -> None:
    code, _, errors = capsexp("-m", *tiny, "model=capsnet,capsnett")
    assert (code, ran, len(errors)) == (2, [], 1)
    assert errors[0].startswith("error: model=capsnett: no such choice; did you mean capsnet?")


@pytest.mark.parametrize("launcher", ["submitit_slurm", "ray"])
def test_a_launcher_that_is_not_installed(
    launcher: str, capsexp: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    Plugins.instance()  # finds those that are, once and for all
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["launcher"], f"{launcher}.yaml", raising=False)
    code, _, errors = capsexp("-m", f"hydra/launcher={launcher}", "seed=0,1")
    assert code == 2
    assert errors == [f"error: hydra/launcher={launcher}: not installed; pip install 'capsexp[cluster]' brings it"]


def test_a_key_of_hydras_own(capsexp: Callable[..., Ended]) -> None:
    code, _, errors = capsexp("-m", "hydra.launchr.x=1", "seed=0,1")
    assert (code, len(errors)) == (2, 1)
    assert errors[0].startswith("error: hydra.launchr: no such key; did you mean launcher? (hydra has ")


def test_a_killed_sweep_ends_in_one_line_and_goes_on_when_it_is_asked_for_again(
    tiny: tuple[str, ...], tmp_path: Path, capsexp: Callable[..., Ended]
) -> None:
    sweep = ("-m", *tiny, "budget.epochs=9", "seed=0,1")
    command = [sys.executable, "-m", "capsexp", *sweep]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    while "epoch 2/9" not in (line := process.stdout.readline()):
        assert line, "the sweep ended before its second epoch"
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == ["interrupted: the same command goes on after the last whole epoch"]
    assert not (tmp_path / "results").exists()
    code, lines, _ = capsexp(*sweep)
    assert code == 0
    assert sum("continues after epoch" in line for line in lines) == 1
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 2

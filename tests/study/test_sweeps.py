"""A sweep in which something goes wrong: which runs are done all the same, the last lines, the exit code."""

import os
import re
import signal
from pathlib import Path

import made
import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from support import Program, raising

from capsexp.config import compose
from capsexp.config.schema import Config
from capsexp.errors import BusyError, InputError, RunError
from capsexp.run import execute, records

RESUME = "the same command continues after the last whole epoch, if there is one"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """In place of trainings, the seeds of those that succeed; some seeds end otherwise."""
    monkeypatch.chdir(tmp_path)
    seeds: list[int] = []
    errors = {
        1: RunError("the training of seed 1 diverged"),
        2: InputError("seed=2: not allowed"),
        3: KeyError("three"),
        4: KeyboardInterrupt(),
        5: BrokenPipeError(),
    }

    def run(config: Config, command: str) -> records.Record:
        if config.seed == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        if config.seed in errors:
            raise errors[config.seed]
        seeds.append(config.seed)
        accuracies = [50.0, 10.0 * config.seed]
        return made.run(f"model=capsnet data=mnist protocol={config.protocol}", config.seed, accuracies, tested=65.0)

    monkeypatch.setattr(execute, "run", run)
    return seeds


def test_a_run_that_fails_leaves_the_others_alone(tiny: tuple[str, ...], tmp_path: Path, program: Program) -> None:
    typed = ("optim.name=sgd", "loss=cross_entropy", "optim.lr=0,1e30,0.001", "budget.epochs=1")
    code, _, errors = program("capsexp", "-m", *tiny, *typed, "hydra.sweeper.max_batch_size=1")
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
        ("7,2,8", 2, ["error: 1 of 3 runs failed", "error: seed=2: not allowed (seed=2)"]),
        (
            "2,1",
            1,
            [
                "error: 2 of 2 runs failed",
                "error: seed=2: not allowed (seed=2)",
                "error: the training of seed 1 diverged (seed=1)",
            ],
        ),
    ],
)
def test_the_exit_code_and_the_last_lines(
    seeds: str, code: int, last: list[str], ran: list[int], program: Program
) -> None:
    ended, _, errors = program("capsexp", "-m", f"seed={seeds}")
    assert ended == code
    assert errors[len(errors) - len(last) :] == last
    assert len(errors) == len(last) + max(0, len(last) - 1)  # each was printed when it happened, too
    assert ran == [int(seed) for seed in seeds.split(",") if seed in "78"]


def test_a_sweep_ends_with_a_table_of_what_it_varies(ran: list[int], program: Program) -> None:
    _, printed, _ = program("capsexp", "-m", "data=mnist", "routing.iterations=1,3", "seed=7,8,2")
    *rows, note = [line for line in printed if line][-6:]
    assert [re.split(r"  +", row.strip()) for row in rows if "─" not in row] == [
        ["6 runs"],
        ["routing.iterations", "maximum test accuracy, %", "first epoch"],
        ["1", "75.00 ± 7.07 (2), failed (1 of 3)", "≥ 2 (2)"],
        ["3", "75.00 ± 7.07 (2), failed (1 of 3)", "≥ 2 (2)"],
    ]
    assert note == "Mean ± standard deviation over seeds (number of seeds)."
    assert len(ran) == 4


def test_the_table_under_heldout_has_the_test_accuracy(ran: list[int], program: Program) -> None:
    _, printed, _ = program("capsexp", "-m", "protocol=heldout", "seed=0,9", "optim.lr=0.1")
    assert any(re.fullmatch(r" *65\.00 ± 0\.00 \(2\) +1, ≥ 2 \(2\) *", line) for line in printed)
    assert any(re.fullmatch(r" *test accuracy, % +epoch *", line) for line in printed)


def test_a_single_run_and_a_sweep_of_one_print_no_table(ran: list[int], program: Program) -> None:
    for words in (("seed=7",), ("-m", "seed=7"), ("-m", "seed=7,2")):
        assert not any("─" in line for line in program("capsexp", *words)[1])


def test_a_bug_in_one_run_shows_its_traceback_and_leaves_the_others_alone(ran: list[int], program: Program) -> None:
    code, _, errors = program("capsexp", "-m", "seed=3,7")
    assert (code, ran) == (1, [7])
    assert errors[0].startswith("Traceback")
    assert errors[-3:] == [
        "error: KeyError: 'three'",
        "error: 1 of 2 runs failed",
        "error: KeyError: 'three' (seed=3)",
    ]


@pytest.mark.parametrize(
    ("seed", "code", "line"),
    [
        (4, 130, f"interrupted: {RESUME}"),
        (6, 130, f"interrupted: {RESUME}"),
        (5, 1, f"error: output pipe closed; {RESUME}"),
    ],
    ids=["ctrl-c", "kill", "pipe"],
)
def test_what_ends_a_sweep_at_once(seed: int, code: int, line: str, ran: list[int], program: Program) -> None:
    ended, _, errors = program("capsexp", "-m", f"seed=7,{seed},8")
    assert (ended, errors, ran) == (code, [line], [7])


def test_an_error_that_ctrl_c_left_behind_ends_a_sweep(
    ran: list[int], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = AttributeError("no flags cache")
    error.__context__ = KeyboardInterrupt()
    monkeypatch.setattr(compose, "plain", raising(error))
    assert program("capsexp", "-m", "seed=7,8")[::2] == (130, [f"interrupted: {RESUME}"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("model=capsnet,capsnett", "model=capsnett: no such choice; did you mean capsnet?"),
        ("seed=range(0,0) protocol=paper,heldout", "seed=range(0,0): no values, so that nothing would run"),
        ("seed=glob(*) protocol=paper,heldout", "seed=glob(*): no values, so that nothing would run"),
        ("hydra.launchr.x=1 seed=0,1", "hydra.launchr: no such key; did you mean launcher? (hydra has "),
    ],
)
def test_a_wrong_word_stops_a_sweep_before_its_first_run(
    words: str, line: str, ran: list[int], program: Program
) -> None:
    code, _, (error,) = program("capsexp", "-m", *words.split())
    assert (code, ran) == (2, [])
    assert error.startswith(f"error: {line}")


@pytest.mark.parametrize("plugin", ["submitit_slurm", "ray"])
def test_a_launcher_that_is_not_installed(plugin: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    Plugins.instance()  # finds those that are, once and for all
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["launcher"], f"{plugin}.yaml", raising=False)
    code, _, errors = program("capsexp", "-m", f"hydra/launcher={plugin}", "seed=0,1")
    assert code == 2
    assert errors == [f"error: hydra/launcher={plugin}: not installed; pip install 'capsexp[cluster]' brings it"]


def test_only_the_runs_of_a_sweep_wait_for_another_process_and_again_if_it_is_faster(
    ran: list[int], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    run = execute.run

    def busy_once(config: Config, command: str) -> records.Record:
        if waited == [7]:
            raise BusyError("already running, in process 1")
        return run(config, command)

    monkeypatch.setattr(execute, "wait_until_free", lambda config: waited.append(config.seed))
    monkeypatch.setattr(execute, "run", busy_once)
    assert program("capsexp", "seed=9")[0] == 0
    code, _, errors = program("capsexp", "-m", "seed=7,8")
    assert (code, errors, waited, ran) == (0, [], [7, 7, 8], [9, 7, 8])


def test_a_value_that_is_typed_twice_is_one_run(ran: list[int], program: Program) -> None:
    assert program("capsexp", "-m", "seed=7,7,8,7")[0] == 0
    assert ran == [7, 8]

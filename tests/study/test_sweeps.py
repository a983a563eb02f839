"""Sweeps: which runs are done when something goes wrong, the last lines, the exit code."""

import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import made
import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from support import Program, folders, raising

from capsexp.compare.command import main
from capsexp.config import by_hydra
from capsexp.config.checks import typed_key
from capsexp.config.schema import Config
from capsexp.errors import InputError, RunError
from capsexp.run import execute, records
from capsexp.run.plan import plan
from capsexp.tables.sweep import measure_sweep

RESUME = "the same command continues after the last whole epoch"
HERE = ("-m", "hydra/launcher=basic", "data=mnist_sample")  # in this process


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

    def run(config: Config, overrides: list[str], beside: bool) -> records.Record:
        if config.seed == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        if config.seed in errors:
            raise errors[config.seed]
        seeds.append(config.seed)
        words = " ".join(word for word in overrides if typed_key(word) != "seed") or "seed=0"
        accuracies, planned = [50.0, 10.0 * config.seed], plan(config)
        as_planned: dict[str, Any] = {"precision": planned.precision, "note": planned.note}
        record = made.run(words, config.seed, accuracies, tested=65.0, **as_planned)
        made.write(Path(config.paths.results), [record])
        return record

    monkeypatch.setattr(execute, "run", run)
    return seeds


def test_a_run_that_fails_leaves_the_others_alone(tiny: tuple[str, ...], tmp_path: Path, program: Program) -> None:
    typed = ("optim.name=sgd", "loss=cross_entropy", "optim.lr=0,1e30,0.001", "budget.epochs=1", "--jobs=2")
    code, printed, errors = program("capsexp", "-m", *tiny, *typed)
    found = [records.read(path) for path in (tmp_path / "results" / "runs").iterdir()]
    failed, finished = sorted(found, key=lambda record: record.status)
    assert (failed.status, finished.status) == ("failed", "finished")
    assert finished.config["optim"]["lr"] == 0.001
    assert code == 1
    assert "can't run 1 configuration: optim.lr=0: must be a number above 0" in printed
    assert any(line.startswith("1 of 3 runs finished in ") for line in printed)
    wrong, diverged = errors
    assert wrong == "error: optim.lr=0: must be a number above 0"
    assert diverged.startswith(f"error: optim.lr=1e+30: {failed.error} (its output: {tmp_path}/logs/")
    code, printed, _ = program("capsexp", "-m", *tiny, *typed, "rerun=true")  # failed ones, too, without --retry
    assert (code, printed[-1].rpartition(" in ")[0]) == (1, "1 of 3 runs finished")
    assert [path.read_text().count("\ntrains ") for path in tmp_path.glob("logs/*/output.txt")] == [2, 2]


@pytest.mark.parametrize(
    ("seeds", "code", "last"),
    [
        ("7,8", 0, []),
        ("7,2,8", 1, ["error: seed=2: seed=2: not allowed"]),
        ("2,1", 1, ["error: seed=2: seed=2: not allowed", "error: seed=1: the training of seed 1 diverged"]),
        ("7,7,8,7", 0, []),
    ],
)
def test_the_exit_code_and_the_last_lines(
    seeds: str, code: int, last: list[str], ran: list[int], program: Program
) -> None:
    ended, _, errors = program("capsexp", *HERE, f"seed={seeds}")
    assert ended == code
    assert errors[len(errors) - len(last) :] == last
    assert len(errors) == 2 * len(last)  # each was printed when it happened, too
    assert set(ran) == {int(seed) for seed in seeds.split(",") if seed in "78"}


def test_a_sweep_ends_with_a_table_differences_and_the_command_that_compares(
    ran: list[int], program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    _, printed, _ = program("capsexp", *HERE, "attention=none,cbam", "seed=7,8,2")
    at = printed.index("Sweep over attention")
    ended, heads, _, *rows = [re.split(r"  +", line.strip()) for line in printed[at + 1 : at + 6]]
    assert re.fullmatch(r"4 of 6 runs finished in .*; trained: 250 epochs, .*", ended[0])
    assert heads[:3] == ["runs", "parameters", "best %"]
    assert [row[:3] for row in rows] == [
        [f"attention={name}", "6,804,224", "75.00 ± 7.07"] for name in ("none", "cbam")
    ]
    assert printed[at + 6].startswith("Mean ± standard deviation over seeds. 2 seeds a row.")
    assert re.match(r"attention=cbam against attention=none +0.00 points \(.* no difference seen", printed[at + 9])
    command = next(line for line in printed if " compare " in line).partition("  two of them")[0].strip()
    assert command.endswith("compare 'data=mnist_sample attention=none' 'data=mnist_sample attention=cbam'")
    main(shlex.split(command)[2:])
    assert "0.00 points" in capsys.readouterr().out
    assert len(ran) == 4


def test_a_sweep_has_all_differences_and_compares_only_what_is_trained_alike(ran: list[int], program: Program) -> None:
    _, printed, _ = program("capsexp", *HERE, "attention=none,cbam,dual,se", "seed=7,8", "model=da_capsnet")
    assert sum(" against attention=" in line for line in printed) == 6
    _, printed, _ = program("capsexp", *HERE, "protocol=paper,heldout", "seed=7,8")
    assert any("Sweep over protocol" in line for line in printed)
    assert not any(" compare " in line for line in printed)


def test_a_sweep_over_networks_says_what_else_their_papers_change(ran: list[int], program: Program) -> None:
    _, printed, _ = program("capsexp", *HERE, "model=huang_cnn,capsnet", "seed=7,8", "loss=margin")
    assert "The rows differ in preprocess, optim, too." in printed


def test_differences_are_of_each_pair_of_values(tmp_path: Path) -> None:
    words = [
        f"data=mnist attention={attention} routing.iterations={iterations} {folders(tmp_path)[0]}"
        for attention in ("none", "cbam")
        for iterations in (1, 3)
    ]
    precision = plan(made._config(words[0])).precision
    maxima = ([70.0, 71.0], [80.0, 81.0], [72.0, 73.0], [90.0, 91.0])
    found = [made.runs(of_row, of, precision=precision) for of_row, of in zip(words, maxima, strict=True)]
    made.write(tmp_path / "results", [record for of_row in found for record in of_row])
    commands = [[*of_row.split(), f"seed={seed}"] for of_row in words for seed in (0, 1)]
    effects = {one.claim.text: one.effect for one in measure_sweep(commands, tmp_path / "results").claims}
    wanted = {"routing.iterations=3 against routing.iterations=1": 14.0, "attention=cbam against attention=none": 6.0}
    assert {text: effect and effect.value for text, effect in effects.items()} == pytest.approx(wanted)


def test_the_table_under_heldout_has_the_test_accuracy(ran: list[int], program: Program) -> None:
    _, printed, _ = program("capsexp", *HERE, "protocol=heldout", "seed=0,9", "optim.lr=0.1")
    assert any(re.fullmatch(r"all +[\d,]+ +65\.00 ± 0\.00 *", line) for line in printed)
    assert any(re.fullmatch(r"runs +parameters +test % *", line) for line in printed)


def test_a_single_run_and_a_sweep_of_one_print_no_table(ran: list[int], program: Program) -> None:
    for words in (("seed=7",), (*HERE, "seed=7"), (*HERE, "seed=7,2")):
        assert not any("─" in line for line in program("capsexp", *words)[1])


def test_a_bug_in_one_run_shows_its_traceback_and_leaves_the_others_alone(ran: list[int], program: Program) -> None:
    code, _, errors = program("capsexp", *HERE, "seed=3,7")
    assert (code, ran) == (1, [7])
    assert errors[0].startswith("Traceback")
    assert errors[-2:] == ["error: KeyError: 'three'", "error: seed=3: KeyError: 'three'"]


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
    ended, _, errors = program("capsexp", *HERE, f"seed=7,{seed},8")
    assert (ended, errors, ran) == (code, [line], [7])


def test_an_error_that_ctrl_c_left_behind_ends_a_sweep(
    ran: list[int], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = AttributeError("no flags cache")
    error.__context__ = KeyboardInterrupt()
    monkeypatch.setattr(by_hydra, "to_containers", raising(error))
    assert program("capsexp", *HERE, "seed=7,8")[::2] == (130, [f"interrupted: {RESUME}"])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("-m seed=range(0,0) protocol=paper,heldout", "seed=range(0,0): no values, so that nothing would run"),
        ("-m seed=glob(*) protocol=paper,heldout", "seed=glob(*): no values, so that nothing would run"),
        ("-m hydra.launchr.x=1 seed=0,1", "hydra.launchr: no such key; did you mean launcher? (hydra has "),
        ("-m hydra.launcher.jobs=0 seed=0,1", "hydra.launcher.jobs=0: must be a whole number at least 1"),
        ("-m --jobs=0 seed=0,1", "hydra.launcher.jobs=0: must be a whole number at least 1"),
        ("-m hydra/launcher=basic --jobs=2 seed=0,1", "hydra.launcher.jobs: no such key"),
        ("--jobs=2 seed=0", "--jobs, --retry, --time-limit: only with -m"),
        ("-m +study=jiao_table2", "+study=jiao_table2: capsexp reproduce jiao_table2 runs a study"),
    ],
)
def test_a_wrong_word_stops_a_sweep_before_its_first_run(
    words: str, line: str, ran: list[int], program: Program
) -> None:
    code, _, (error,) = program("capsexp", *words.split())
    assert (code, ran) == (2, [])
    assert error.startswith(f"error: {line}")


@pytest.mark.parametrize(("plugin", "extra"), [("submitit_slurm", "slurm"), ("ray", "ray")])
@pytest.mark.parametrize("command", [["-m", "seed=0,1"], ["reproduce", "jiao_table2"]])
def test_a_launcher_that_is_not_installed(
    plugin: str, extra: str, command: list[str], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    Plugins.instance()  # finds those that are, once and for all
    monkeypatch.delitem(ConfigStore.instance().repo["hydra"]["launcher"], f"{plugin}.yaml", raising=False)
    code, _, errors = program("capsexp", *command, f"hydra/launcher={plugin}")
    assert code == 2
    assert errors == [f"error: hydra/launcher={plugin}: not installed; pip install 'capsexp[{extra}]' brings it"]

"""`python -m capsexp`: what it prints and imports, sweeps, interruptions."""

import math
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from launching import records_in, running, wait_until
from support import ROOT, TINY, Program, begun, folders, imports, numbers, process

from capsexp.__main__ import COMMANDS
from capsexp.config.compose import command
from capsexp.run import checkpoints
from capsexp.run.plan import LAST

#: Libraries that take seconds to import, or are not needed to find a record.
HEAVY = {"pytorch_lightning", "torchmetrics", "torchvision", "tensorboard", "matplotlib", "pandas", "scipy"}


class First(NamedTuple):
    """A run in a process of its own."""

    options: tuple[str, ...]
    folder: Path
    ended: "subprocess.CompletedProcess[str]"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    """TINY, trained."""
    folder = tmp_path_factory.mktemp("first")
    options = (*TINY, *folders(folder))
    return First(options, folder, process("-m", "capsexp", *options))


@pytest.mark.parametrize("typed", [["--help"], []])
def test_help_is_a_page_of_commands_and_choices_without_torch(typed: list[str], tmp_path: Path) -> None:
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim" / "mine.yaml").write_text("defaults: [jiao, _self_]\n")
    ended = process("-X", "importtime", "-m", "capsexp", *typed, f"--config-dir={tmp_path}")
    assert ended.returncode == 0
    for word in (*COMMANDS, "\nmodel: capsnet, ", "mnist_sample", ", mine, tsai_adam", "docs/commands.md"):
        assert word in ended.stdout
    assert sum(max(1, math.ceil(len(line) / 100)) for line in ended.stdout.splitlines()) <= 30
    assert not imports(ended) & {"torch", *HEAVY}


def test_the_version_is_that_of_this_package(program: Program) -> None:
    assert program("capsexp", "--version") == (0, [f"capsexp {version('capsexp')}"], [])


def test_info_and_the_composed_configuration(program: Program) -> None:
    described = process("-m", "capsexp", "seed=1", "--info")  # which leaves Hydra's log changed in its process
    assert "Defaults List" in described.stdout
    code, lines, _ = program("capsexp", "attention=cbam", "--cfg", "job", "routing.iterations=5")  # in any order
    assert code == 0
    assert yaml.safe_load("\n".join(lines))["routing"]["iterations"] == 5


@pytest.mark.parametrize(("typed", "offered"), [("model=", "model=capsnet"), ("routing.it", "routing.iterations=")])
def test_tab_completion_without_slow_imports(typed: str, offered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"capsexp {typed}"
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    ended = process("-X", "importtime", "-m", "capsexp", "-sc", "query=bash")
    assert offered in ended.stdout.split()
    assert not imports(ended) & {"torch", "numpy", "wandb", "mlflow", *HEAVY}


def test_a_piped_run_prints_a_line_an_epoch(first: First) -> None:
    assert (first.ended.returncode, first.ended.stderr) == (0, "")
    lines = first.ended.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[3:-4]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(len(line) < 100 for line in lines[2:-4])
    assert "\x1b" not in first.ended.stdout
    assert {path.name for path in first.folder.iterdir()} == {"results", "logs"}


def test_the_record_has_the_command_without_folders(first: First) -> None:
    (record,) = records_in(first.folder).values()
    assert record.provenance["command"] == (
        f"python -m capsexp {' '.join(word for word in TINY if word != 'trainer=cpu')}"
    )
    typed = ["data=svhn", "data.root=/home/me", "paths.logs=/scratch", "seed=3", "trainer.progress=none", "+a={b: 1}"]
    typed += ["trainer=gpu", "trainer.accelerator=gpu"]  # it repeats the run on a machine without one, too
    assert command(typed, "bf16") == "python -m capsexp data=svhn seed=3 '+a={b: 1}' trainer.precision=bf16"


def test_a_finished_run_is_skipped_without_importing_what_trains(first: First) -> None:
    again = process("-X", "importtime", "-m", "capsexp", *first.options)
    assert again.returncode == 0
    (line,) = again.stdout.splitlines()
    assert "finished already" in line
    assert not imports(again) & HEAVY


def test_a_sweep_runs_every_combination_and_each_as_if_alone(
    first: First, tiny: tuple[str, ...], tmp_path: Path, program: Program
) -> None:
    code, _, errors = program("capsexp", "-m", "hydra/launcher=basic", *tiny, "routing.iterations=1,3")
    assert (code, errors) == (0, [])
    swept = {record.config["routing"]["iterations"]: record for record in records_in(tmp_path).values()}
    assert swept.keys() == {1, 3}
    assert [numbers(swept[3])] == [numbers(record) for record in records_in(first.folder).values()]


@pytest.mark.slow  # the launcher's tests have a fast one, in this process
def test_a_killed_sweep_ends_in_one_line_and_the_same_command_continues(
    tiny: tuple[str, ...], tmp_path: Path, program: Program
) -> None:
    sweep = ("-m", *tiny, "budget.epochs=60", "seed=0,1", "--jobs=2", "trainer.threads=1")
    started = begun("-m", "capsexp", *sweep)
    outputs = "logs/*/output.txt"
    wait_until(lambda: sum("epoch  2/60" in path.read_text() for path in tmp_path.glob(outputs)) == 2, 110)
    started.terminate()
    printed, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert errors.splitlines() == ["interrupted: the same command continues after the last whole epoch"]
    assert printed.splitlines()[-1] == "0 of 2 runs finished (2 left: the same command again continues)"
    assert not running(tmp_path)
    for path in tmp_path.glob(outputs):  # no whole epoch is lost, though checkpoints are written each 30 seconds
        assert len(checkpoints.load(path.parent / LAST)["history"]) >= path.read_text().count("\nepoch ")
    assert program("capsexp", *sweep)[::2] == (0, [])
    found = records_in(tmp_path).values()
    assert [record.provenance["resumed_after_epochs"][0] > 0 for record in found] == [True, True]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_are_silence(closed: str) -> None:
    line = f"{sys.executable} -m capsexp tables --help {closed}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_closed_pipe_ends_a_run_in_one_line(tmp_path: Path) -> None:
    words = " ".join((*TINY, *folders(tmp_path)))
    line = f"{sys.executable} -m capsexp {words} budget=smoke | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert ended.returncode == 1
    (error,) = ended.stderr.splitlines()
    assert error.startswith("error: output pipe closed")

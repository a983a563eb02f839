"""The program as a user meets it: processes, exit codes, screens, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from support import ROOT, numbers

from capsexp.config.compose import command
from capsexp.run import records


def capsexp(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs the program, with its output piped."""
    return subprocess.run(
        [sys.executable, "-m", "capsexp", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )


def record_in(results: Path) -> records.Record:
    """The only record."""
    (path,) = (results / "runs").glob("*.json")
    return records.read(path)


def test_help_says_what_there_is_and_is_quick() -> None:
    started = time.perf_counter()
    ended = capsexp("--help")
    seconds = time.perf_counter() - started
    assert ended.returncode == 0
    for word in ("model: ", "capsnet", "data: ", "mnist_sample", "iterations: 3", "cbam: false"):
        assert word in ended.stdout
    assert seconds < 10  # 0.4 s on an idle machine; importing torch would show even on a busy one
    imported = capsexp_imports("--help")
    assert "torch" not in imported


def capsexp_imports(*arguments: str) -> set[str]:
    """The top-level modules that a command imports."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "capsexp", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    return {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}


def test_info_and_the_composed_configuration() -> None:
    assert "Defaults List" in capsexp("--info").stdout
    shown = capsexp("--cfg", "job", "routing.iterations=5").stdout
    assert yaml.safe_load(shown)["routing"]["iterations"] == 5


@pytest.mark.parametrize(("typed", "offered"), [("model=", "model=capsnet"), ("routing.it", "routing.iterations=")])
def test_tab_completion(typed: str, offered: str) -> None:
    line = f"python -m capsexp {typed}"
    environment = {
        **os.environ,
        "COMP_LINE": line.replace("python -m capsexp", "capsexp"),
        "COMP_POINT": str(len(line)),
    }
    assert offered in capsexp("-sc", "query=bash", env=environment).stdout


def test_a_piped_run_is_a_line_an_epoch(tiny: tuple[str, ...], tmp_path: Path) -> None:
    ended = capsexp(*tiny)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:-3]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(len(line) < 100 for line in lines[1:-3])
    assert "\x1b" not in ended.stdout
    again = capsexp(*tiny)
    assert again.returncode == 0
    assert len(again.stdout.splitlines()) == 1
    assert "finished already" in again.stdout
    kept = " ".join(option for option in tiny if not option.startswith("paths"))
    assert record_in(tmp_path / "results").provenance["command"] == f"python -m capsexp {kept}"
    assert {path.name for path in tmp_path.iterdir()} == {"results", "logs"}


def test_a_sweep_runs_every_combination_and_each_as_if_alone(tiny: tuple[str, ...], tmp_path: Path) -> None:
    ended = capsexp("-m", *tiny, "budget.epochs=1", "routing.iterations=1,2")
    assert ended.returncode == 0, ended.stderr
    found = [records.read(path) for path in (tmp_path / "results" / "runs").iterdir()]
    swept = {record.config["routing"]["iterations"]: record for record in found}
    assert swept.keys() == {1, 2}
    alone = capsexp(*tiny, "budget.epochs=1", "routing.iterations=2", f"paths.results={tmp_path}/alone", "rerun=true")
    assert alone.returncode == 0, alone.stderr
    assert numbers(record_in(tmp_path / "alone")) == numbers(swept[2])


def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tiny: tuple[str, ...], tmp_path: Path) -> None:
    arguments = [*tiny, "budget.epochs=15"]
    process = subprocess.Popen(
        [sys.executable, "-m", "capsexp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout is not None
    while "epoch  2/15" not in (line := process.stdout.readline()):
        assert line, "the run ended before its second epoch"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "interrupted: the same command goes on after the last whole epoch"
    assert not (tmp_path / "results").exists()
    again = capsexp(*arguments)
    assert again.returncode == 0
    assert "continues after epoch" in again.stdout
    assert len(record_in(tmp_path / "results").epochs) == 15


def test_a_reader_that_goes_away_ends_the_run_without_a_traceback(tiny: tuple[str, ...]) -> None:
    line = f"{sys.executable} -m capsexp {' '.join(tiny)} | head -1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: nobody reads the output any more")
    assert len(ended.stderr.splitlines()) == 1


def test_a_full_disk_is_one_line_with_the_path(tiny: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where a folder should be")
    ended = capsexp(*tiny)
    assert ended.returncode == 1
    assert str(tmp_path / "results") in ended.stderr.splitlines()[-1]


def test_a_command_for_the_record_names_no_folder() -> None:
    typed = ["data=svhn", "data.root=/home/me", "paths.logs=/scratch", "seed=3", "trainer.progress=none", "+a={b: 1}"]
    assert command(typed) == "python -m capsexp data=svhn seed=3 '+a={b: 1}'"

"""Sweeps in several processes: submitit's local jobs, Slurm and Ray, through Hydra's launchers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SCRIPT, arguments, assert_same, records_in, running, wait_until
from support import TINY, begun, composed_config, folders

from capsexp.run import records
from capsexp.run.execute import run

pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
pytest.importorskip("hydra_plugins.hydra_ray_launcher")
pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
pytestmark = pytest.mark.slow

#: Launchers and their options. Ray starts a small cluster of its own, whose processes do one run each.
LAUNCHERS = {
    "joblib": ("hydra.launcher.n_jobs=2",),
    "submitit_local": (),
    "submitit_slurm": ("hydra.launcher.partition=short", "hydra.launcher.gpus_per_node=1"),
    "ray": (
        "+hydra.launcher.ray.init.num_cpus=2",
        "+hydra.launcher.ray.init.include_dashboard=false",
        "+hydra.launcher.ray.remote.max_calls=1",
    ),
}

#: The commands of Slurm that submitit calls, for one machine, where all jobs of an array start at once.
SLURM = {
    "sbatch": r"""
last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\)%.*/\1/p' "$1")
export SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_JOB_NAME=capsexp SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=1
export SLURM_NTASKS_PER_NODE=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
for index in $(seq 0 "$last"); do
  SLURM_ARRAY_TASK_ID=$index setsid bash "$1" > /dev/null 2>&1 < /dev/null &
done
echo "Submitted batch job 7"
""",
    "srun": r"""
while [[ $1 == --* ]]; do
  case $1 in --output) out=$2; shift 2 ;; --error) err=$2; shift 2 ;; *) shift ;; esac
done
for name in out err; do
  path=${!name//%A_%a/7_$SLURM_ARRAY_TASK_ID}
  declare $name="${path//%t/0}"
done
mkdir -p "${out%/*}"
exec "$@" >> "$out" 2>> "$err"
""",
    "sacct": r"printf 'JobID|State|NodeList\n7_[0-9]|RUNNING|here\n'",
}


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables, with the commands of Slurm on the path."""
    folder = tmp_path_factory.mktemp("slurm")
    for name, script in SLURM.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def command(launcher: str, *more: str) -> list[str]:
    """The sweep's command line; one thread a run, since results depend on the number and launchers choose their own."""
    typed = (f"hydra/launcher={launcher}", *LAUNCHERS[launcher], *TINY, "trainer.threads=1", *more)
    return ["-m", "capsexp", "-m", *typed]


def sweep(launcher: str, folder: Path, environment: dict[str, str], *more: str) -> "subprocess.CompletedProcess[str]":
    """Runs it from its own working folder."""
    folder.mkdir(exist_ok=True)
    words = [sys.executable, *command(launcher, *more)]
    return subprocess.run(words, capture_output=True, text=True, timeout=150, check=False, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, records.Record]:
    """The records of the same runs, trained alone."""
    folder = tmp_path_factory.mktemp("alone")
    for iterations in (1, 2):
        typed = ("trainer.threads=1", f"routing.iterations={iterations}", *folders(folder))
        run(composed_config(*TINY, *typed))
    return records_in(folder)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_run_has_the_record_of_a_run_alone(
    launcher: str, alone: dict[str, records.Record], tmp_path: Path, environment: dict[str, str]
) -> None:
    ended = sweep(launcher, tmp_path / "work", environment, "routing.iterations=1,0,2")
    wrong = "error: routing.iterations=0: routing.iterations=0: must be a whole number at least 1 and at most 100"
    assert ended.returncode == 2, ended.stderr
    assert wrong in ended.stderr.splitlines()  # Ray's processes may print later
    assert "2 of 3 runs finished" in ended.stdout
    lines = [line for line in ended.stdout.splitlines() if "epoch 1/" in line]  # submitit's are in files
    assert bool(lines) == ("submitit" not in launcher)
    assert all(line.count("capsnet-mnist_sample-") == 1 for line in lines)  # Ray prints similar ones of several once
    assert ("output of the runs: logs/multirun/.submitit" in ended.stdout) == ("submitit" in launcher)
    assert not list((tmp_path / "work").rglob("%j"))
    assert "Traceback" not in ended.stdout + ended.stderr
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"results", "logs"}
    results = tmp_path / "work" / "results"
    swept = records_in(tmp_path / "work")
    assert_same(swept, alone)
    assert {record.provenance["threads"] for record in swept.values()} == {1}

    written = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    paths = (f"paths.results={results}", f"paths.logs={tmp_path}/logs")
    again = sweep(launcher, tmp_path / "elsewhere", environment, "routing.iterations=1,2", *paths)
    assert again.returncode == 0, again.stderr
    assert "routing.iterations=2 against routing.iterations=1 " in again.stdout
    assert {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()} == written
    assert not (tmp_path / "logs").exists()  # nothing was launched
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(("launcher", "how"), [("submitit_local", signal.SIGTERM), ("ray", signal.SIGINT)])
def test_an_interrupted_sweep_stops_its_runs_and_continues_later(
    launcher: str, how: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    typed = ("budget.epochs=60", "seed=0,1")
    process = begun(*command(launcher, *typed), stdout=subprocess.DEVNULL, cwd=tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("logs/*/last.ckpt"))) == 2, 120)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted: the same command continues after the last whole epoch"
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("results/runs/*"))

    again = sweep(launcher, tmp_path, environment, *typed)
    assert again.returncode == 0, again.stderr
    found = records_in(tmp_path).values()
    assert len(found) == 2
    for record in found:
        assert len(record.epochs) == 60
        assert record.provenance["resumed_after_epochs"][0] > 0


def test_a_study_by_a_launcher_of_hydras_ends_as_by_the_one_here(
    whole: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    typed = [word for word in arguments(tmp_path, "trainer.threads=1") if not word.startswith("--jobs")]
    words = [sys.executable, SCRIPT, *typed, "hydra/launcher=submitit_local"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4 runs finished in " in ended.stdout
    assert "CapsNet2_CBAM" in ended.stdout
    assert records_in(tmp_path).keys() == records_in(whole).keys()


def test_options_reach_slurm(tmp_path: Path, environment: dict[str, str]) -> None:
    ended = sweep("submitit_slurm", tmp_path, environment, "seed=0,1", "budget=smoke")
    assert ended.returncode == 0, ended.stderr
    (script,) = tmp_path.glob("logs/multirun/.submitit/*_submission.sh")
    lines = script.read_text().splitlines()
    assert {"#SBATCH --partition=short", "#SBATCH --gpus-per-node=1", "#SBATCH --array=0-1%2"} <= set(lines)


def test_without_slurm_there_is_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["PATH"] = str(Path(sys.executable).parent)
    ended = sweep("submitit_slurm", tmp_path, environment, "seed=0,1")
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == ['error: Could not detect "srun", are you indeed on a slurm cluster?']


def test_an_unreachable_ray_cluster_is_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    environment.pop("RAY_ADDRESS", None)
    ended = sweep("ray", tmp_path, environment, "seed=0,1", "hydra.launcher.ray.init.address=127.0.0.1:1")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in ended.stderr


def test_a_killed_job_is_one_line_with_its_log(tmp_path: Path, environment: dict[str, str]) -> None:
    process = begun(*command("submitit_local", "budget.epochs=100", "seed=0"), stdout=subprocess.DEVNULL, cwd=tmp_path)
    wait_until(lambda: bool(running(tmp_path)), 120)
    (trained_by,) = running(tmp_path)
    os.kill(trained_by, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    (line,) = errors.splitlines()
    assert line.startswith("error: Job ")
    assert str(tmp_path / "logs" / "multirun" / ".submitit") in line
    assert "has not produced any output" in line
    assert line.endswith("; the same command continues what was killed and does the rest")

"""Planning: every run of the studies once, with little work."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from made import PLAIN, run, write
from support import ROOT, Trained, at, composed_config, folders, refused

from capsexp import Log
from capsexp.config.schema import Data
from capsexp.data import source
from capsexp.data.source import Identity
from capsexp.errors import InputError
from capsexp.reproduce import planning
from capsexp.reproduce.launcher import Options
from capsexp.reproduce.monitor import print_plan
from capsexp.run.execute import locked
from capsexp.run.plan import LAST, plan
from capsexp.study import selection, studies
from capsexp.study.selection import LAPTOP, PAPER


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a data set was looked for, by name, and how often a configuration was composed. SVHN is missing."""
    counted: Counter[str] = Counter()
    composed = selection.composed

    def identify(data: Data, log: Log = print, download: bool = True) -> Identity:
        counted[data.name] += 1
        if data.name == "svhn":
            raise InputError("svhn: missing")
        return Identity(None, "0", None)

    def compose(overrides: list[str]) -> object:
        counted["composed"] += 1
        return composed(overrides)

    monkeypatch.setattr(source, "identify", identify)
    monkeypatch.setattr(selection, "composed", compose)
    selection.combination.cache_clear()
    return counted


def planned_of(*arguments: Any) -> planning.Planned:
    """The runs of studies, with typed words."""
    return planning.plan_runs(planning.commands_of(*arguments))


def test_each_run_is_planned_once_and_its_seeds_follow_each_other(calls: Counter[str]) -> None:
    tables = [studies.load(name) for name in ("huang_table2", "huang_table1")]
    planned = planned_of(tables, ["budget=demo"], PAPER, range(50))
    jobs, barred = planned.jobs, planned.barred
    assert (calls["composed"], calls["svhn"]) == (36, 1)  # rows with the words of the paper and the typed ones
    assert [job.planned.config.seed for job in jobs] == 10 * list(range(50))  # four and four rows, and constant 1.0
    assert "seed" in jobs[0].planned.varied
    assert "budget" not in jobs[0].planned.varied
    assert len({job.planned.name for job in jobs}) == len(jobs)
    (commands,) = barred.values()
    assert len(commands) == 4 + 2
    assert all("data=svhn" in command and "seed" not in " ".join(command) for command in commands)


def test_a_row_that_cannot_run_bars_no_other_of_its_data_set(calls: Counter[str]) -> None:
    planned = planned_of([studies.load("tsai_table1")], ["+optim.options.nesterov=true"], PAPER, [0])
    jobs, barred = planned.jobs, planned.barred
    assert {job.planned.config.optim.name for job in jobs} == {"sgd"}
    assert all("optim.name=adam takes" in error for error in barred)


def test_the_laptop_setting_is_trained_by_exactly_the_declared_words(calls: Counter[str]) -> None:
    table = studies.load("jiao_table2")
    assert table.laptop
    words = table.laptop.words.split()
    jobs = planned_of([table], [], LAPTOP, [0]).jobs
    rows = [row.words for row in table.rows if row.run]
    assert [job.planned.config for job in jobs] == [composed_config(*words, *row, "seed=0") for row in rows]


def test_each_command_of_a_sweep_is_planned_and_equal_ones_are_one_run(trained: Trained) -> None:
    words = trained.record.provenance["command"].split()[3:]
    here = (*words, f"paths.results={trained.config.paths.results}")
    more = ([], ["data=mnist_sample"], ["optim.lr=0"])
    finished, same, wrong = planning.plan_runs([(*here, *words) for words in more]).runs.values()
    (again,) = planning.plan_runs([(*here, "rerun=true")]).jobs
    assert isinstance(finished, planning.Job)
    assert same is finished
    assert (finished.state, again.state) == ("finished", "waiting")
    assert str(wrong) == "optim.lr=0: must be a number above 0"
    assert finished.planned.command == trained.record.provenance["command"]


def test_records_that_came_with_the_repository_are_told_apart(tmp_path: Path) -> None:
    results = ROOT / "results"
    shipped = {path.name for path in (results / "runs").iterdir()}
    assert planning._shipped(results) <= shipped  # and not those that this clone has trained
    assert len(planning._shipped(results)) > 400
    assert planning._shipped(tmp_path) == set()


def test_a_run_repeats_by_its_command(calls: Counter[str]) -> None:
    typed = ["trainer.precision=auto", "paths.logs=x"]
    job = planned_of([studies.load("huang_table1")], typed, PAPER, [7]).jobs[0]
    command = "model=da_capsnet attention=none data=cifar10 model.squash_constant=1.0 seed=7"
    assert job.planned.command == f"python -m capsexp {command} trainer.precision={job.planned.precision}"
    assert job.planned.config.seed == 7
    assert job.planned.config.paths.logs == "x"


def test_a_run_that_cannot_be_composed_is_refused_at_once(calls: Counter[str]) -> None:
    line = refused(planned_of, [studies.load("ou_backprop")], ["routing.norm=false"], PAPER, [0])
    assert "routing.norm: no such key" in line
    assert set(calls) == {"composed"}  # no data set was looked for


def test_a_jobs_state_is_that_of_its_record(trained: Trained, tmp_path: Path) -> None:
    for config, state in ((trained.config, "finished"), (at(trained.config, tmp_path), "waiting")):
        job = planning.Job(plan(config))
        job.read_record()
        finished = state == "finished"
        assert (job.state, job.progress.epoch, job.left) == (state, 3 * finished, 3 * (not finished))
        assert job.outcome.startswith("best test accuracy") == finished
    job.planned.path.parent.mkdir(parents=True)
    job.planned.path.write_text("[]")
    job.read_record()
    assert (job.state, job.left) == ("failed", 0)
    assert f"{job.planned.path}: not a record" in job.outcome


def test_the_plan_tells_what_is_running_and_what_was_interrupted(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = [dataclasses.replace(at(trained.config, tmp_path), seed=seed) for seed in (7, 8, 9)]
    jobs = [planning.Job(plan(config), ("a=b", f"seed={config.seed}")) for config in [trained.config, *seeds]]
    jobs[0].read_record()
    jobs[0].is_shipped = True
    for job in jobs[1:3]:
        job.planned.folder.mkdir(parents=True)
        (job.planned.folder / LAST).touch()
    with locked(jobs[1].planned.folder):
        print_plan(planning.Planned({job.overrides: job for job in jobs}), Options(), listed=True)
    common, row, last = capsys.readouterr().out.splitlines()
    assert "1 of them came with the repository" in last
    assert common == "all runs: a=b"
    assert row.startswith("seeds 0-9: 1 finished, 1 running, 1 interrupted, 1 to do")


def test_the_time_of_a_run_is_guessed_from_records_of_the_same_network(tmp_path: Path) -> None:
    """In proportion to the images; on a GPU from those of GPUs."""
    words = f"{PLAIN} trainer.precision=float32 budget.epochs=2"
    trained = f"{words} budget.train_images=2000"
    on_cpu = {"peak_memory_mb": {"device": None, "host": 2000.0}, "seconds_per_epoch": 10.0}
    found = [run(trained, 0, precision="float32", **on_cpu)]
    write(tmp_path / "results", [*found, run(trained, 1, precision="float32", seconds_per_epoch=20.0)])
    config = composed_config(*words.split(), "budget.train_images=6000", "seed=7", *folders(tmp_path))
    planned = plan(config)
    jobs = [planning.Job(planned), planning.Job(dataclasses.replace(planned, device=torch.device("cuda")))]
    planning._look_up(jobs)
    assert [job.guess for job in jobs] == pytest.approx([30.0, 60.0])
    jobs[1].progress = planning.Progress(2, 90.0, 7.0)  # another seed's is a better guess
    planning._look_up(jobs)
    assert jobs[0].guess == 7.0


@pytest.mark.parametrize(("device", "known"), [("cpu", True), ("cuda", False)])
def test_seconds_of_a_run_on_another_kind_of_device_say_nothing(trained: Trained, device: str, known: bool) -> None:
    job = planning.Job(dataclasses.replace(plan(trained.config), device=torch.device(device)))
    job.read_record()
    assert (job.progress.epoch, job.progress.seconds > 0) == (3, known)


def test_what_a_terminal_takes_as_commands_in_a_records_error_is_shown(tmp_path: Path) -> None:
    words = f"{PLAIN} trainer.precision=float32"
    write(tmp_path / "results", [run(words, 0, [], precision="float32", failed=True, error="\x1b[31mred")])
    job = planning.Job(plan(composed_config(*words.split(), *folders(tmp_path))))
    job.read_record()
    assert (job.state, job.outcome, job.progress.seconds) == ("failed", r"\x1b[31mred", 0.0)

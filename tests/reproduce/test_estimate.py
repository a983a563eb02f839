"""What runs will cost, from records of runs alike on this device, and from a few timed steps."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from made import run, write
from support import TINY, composed_config

from capsexp.reproduce import estimate
from capsexp.reproduce.estimate import Cost
from capsexp.reproduce.planning import Job
from capsexp.run.environment import processor
from capsexp.run.plan import Plan, plan
from capsexp.run.records import Record

SHORT = "model=capsnet data=mnist_sample attention=none budget.epochs=2 trainer.precision=float32"
ON: dict[str, Any] = {
    "precision": "float32",
    "device": processor(),
    "note": "sample of 5,000 training and 1,000 test images",
}


def job(results: Path, words: str, seed: int = 0) -> Job:
    """A run that is still to do."""
    config = composed_config(*words.split(), f"seed={seed}", f"paths.results={results}", "trainer=cpu")
    return Job(plan(config), [])


def with_times(record: Record, train: float, test: float) -> Record:
    """The record, with these seconds in each epoch."""
    for epoch in record.epochs:
        epoch.update(train_seconds=train, test_seconds=test)
    return record


def test_runs_that_differ_in_seed_and_epochs_cost_the_same_an_epoch(tmp_path: Path) -> None:
    alike = job(tmp_path, SHORT.replace("epochs=2", "epochs=7"), seed=9)
    made = [
        with_times(run(SHORT, seed, [90.0, 90.0], **ON), train, 10.0) for seed, train in enumerate((45.0, 50.0, 60.0))
    ]
    write(tmp_path, made)
    others = [
        job(tmp_path, f"{SHORT} {word}")
        for word in ("routing.iterations=1", "budget.width=0.5", "budget.train_images=100")
    ]
    costs = estimate.recorded([alike, *others])
    assert costs == {alike.planned.name: Cost(60.0, 1000.0)}
    assert [*estimate.lines([alike, *others], costs, at_a_time=1)] == [
        "1 run: about 7 min on this device, 1 at a time",
        "up to 1,000 MB a run",
        "3 runs: time not known, no finished run is alike (--measure times some steps)",
    ]


@pytest.mark.parametrize(("cores", "fit"), [(16, 7), (4, 4)])
def test_as_many_runs_fit_a_gpu_as_its_memory_and_the_cores_allow(
    cores: int, fit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(tmp_path, SHORT)
    planned = dataclasses.replace(one.planned, device=torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80e9))
    monkeypatch.setattr(estimate.os, "cpu_count", lambda: cores)
    (_, line) = estimate.lines([Job(planned, [])], {planned.name: Cost(60.0, 5000.0)}, at_a_time=1)
    assert line == f"up to 5,000 MB a run: {fit} at a time fit on the GPU (--jobs={fit})"


def test_records_of_another_device_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, [run(SHORT, 0, [90.0, 90.0], **(ON | {"device": "another"}))])
    assert estimate.recorded([job(tmp_path, SHORT, seed=1)]) == {}
    assert estimate.recorded([job(tmp_path / "none", SHORT)]) == {}


def test_steps_are_timed_once_for_all_runs_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials are trained here; the launcher would make a process for each."""
    launched: list[Job] = []

    def launch(jobs: list[Job], options: object) -> None:
        from capsexp.run.execute import run as train

        for one in jobs:
            launched.append(one)
            train(one.planned.config, None, lambda line: None)

    monkeypatch.setattr("capsexp.reproduce.launcher.launch", launch)
    tiny = " ".join(TINY)
    jobs = [job(tmp_path, tiny, seed) for seed in (0, 1)] + [job(tmp_path, f"{tiny} routing.iterations=1")]
    costs = estimate.timed(jobs)
    assert len(launched) == 2
    assert all((one.planned.config.budget.steps, one.planned.epochs) == (estimate.STEPS, 2) for one in launched)
    assert set(costs) == {one.planned.name for one in jobs}
    assert costs[jobs[0].planned.name] == costs[jobs[1].planned.name]
    assert all(cost.seconds > 0 and cost.memory > 0 for cost in costs.values())
    assert not list(tmp_path.iterdir())


def test_a_trial_is_scaled_to_the_whole_epoch(tmp_path: Path) -> None:
    whole: Plan = job(tmp_path, SHORT).planned  # 5,000 training and 1,000 test images
    trial = Job(estimate._trial(whole, tmp_path), [])
    words = f"{SHORT} budget.steps=5 budget.test_images=512"
    made = with_times(run(words, 0, [90.0, 90.0], **ON), 6.4, 5.12)
    (path,) = write(tmp_path / "results", [made])
    assert path == trial.planned.path
    cost = estimate._cost(whole, trial)
    assert cost is not None
    assert cost.seconds == pytest.approx(6.4 / (5 * 128) * 5_000 + 0.01 * 1_000)


def test_a_trial_tests_no_more_images_than_there_are_and_logs_nothing(tmp_path: Path) -> None:
    config = composed_config("model=da_capsnet", "data=coil20", "logger=[tensorboard,csv]")
    trial = estimate._trial(Plan(config, torch.device("cpu"), "float32", None, None), tmp_path)
    assert trial.config.budget.test_images == 72  # a tenth of ten objects
    assert trial.config.logger == {}

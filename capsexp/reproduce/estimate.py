"""What runs will cost: time and memory, from records of runs alike on this device, or from a few timed steps.

Runs are alike if they differ in seed and number of epochs only.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from capsexp.config.schema import Paths
from capsexp.errors import InputError, duration, plural
from capsexp.reproduce.planning import Job
from capsexp.results import runs
from capsexp.run import records
from capsexp.run.environment import processor
from capsexp.run.plan import Plan
from capsexp.study.setting import Setting, tested_images, trained_images
from capsexp.study.studies import condition_of

STEPS, IMAGES = 5, 512  # timed: optimisation steps of the second epoch, and test images of its evaluation

#: What is trained, its setting but for the number of epochs, and the device.
Alike = tuple[str, Setting, str]


@dataclass(frozen=True)
class Cost:
    """Of one run on this device."""

    seconds: float  # an epoch, with its evaluation
    memory: float  # MB at the peak: of the GPU, or of the process on a CPU


def recorded(jobs: Sequence[Job]) -> dict[str, Cost]:
    """The cost of the runs, by name, that are like a finished one in their folder of results: medians."""
    costs: dict[Alike, list[Cost]] = {}
    for folder in {Path(job.planned.config.paths.results) for job in jobs}:
        for run in runs.read(folder)[0] if folder.is_dir() else []:
            if run.state == "finished" and "seconds" in run.measures:
                alike = run.condition, replace(run.setting, epochs=None), run.device
                memory = run.measures.get("memory", run.measures["host"])
                costs.setdefault(alike, []).append(Cost(run.measures["seconds"], memory))
    return {
        job.planned.name: Cost(median(one.seconds for one in of_kind), median(one.memory for one in of_kind))
        for job in jobs
        if (of_kind := costs.get(_alike(job.planned)))
    }


def timed(jobs: Sequence[Job]) -> dict[str, Cost]:
    """The cost of the runs, by name, from STEPS optimisation steps and IMAGES test images of one run of each kind.

    Runs whose number of images isn't known, and those that fail, are missing.
    """
    from capsexp.reproduce import launcher  # Lightning takes seconds to import

    kinds: dict[Alike, list[Plan]] = {}
    for job in jobs:
        kinds.setdefault(_alike(job.planned), []).append(job.planned)
    with tempfile.TemporaryDirectory() as folder:
        trials = {alike: Job(_trial(plans[0], Path(folder)), []) for alike, plans in kinds.items()}
        launcher.launch(list(trials.values()), launcher.Options(devices=torch.cuda.device_count()))
        costs = {alike: _cost(kinds[alike][0], trial) for alike, trial in trials.items()}
    return {plan.name: cost for alike, plans in kinds.items() if (cost := costs[alike]) for plan in plans}


def lines(jobs: Sequence[Job], costs: Mapping[str, Cost], at_a_time: int) -> Iterator[str]:
    """What is left to do, in words: hours, memory, and how many runs' cost isn't known."""
    left = [job for job in jobs if job.left]
    known = [(job, costs[job.planned.name]) for job in left if job.planned.name in costs]
    if known:
        seconds = sum(job.left * cost.seconds for job, cost in known) / min(at_a_time, len(known))
        yield f"{plural(len(known), 'run')}: about {duration(seconds)} on this device, {at_a_time} at a time"
        peak, gpu = max(cost.memory for _, cost in known), known[0][0].planned.device.type == "cuda"
        each = 2 * peak + 600  # assumed: as much again is reserved by a captured step; CUDA's context
        memory = torch.cuda.get_device_properties(0).total_memory / 1e6 if gpu else 0
        fit = min(int(memory / each), os.cpu_count() or 1)
        yield f"up to {peak:,.0f} MB a run" + (f": {fit} at a time fit on the GPU (--jobs={fit})" if fit > 1 else "")
    if unknown := len(left) - len(known):
        yield f"{plural(unknown, 'run')}: time not known, no finished run is alike (--measure times some steps)"


def _alike(planned: Plan) -> Alike:
    identity = planned.identity
    device = torch.cuda.get_device_name(planned.device) if planned.device.type == "cuda" else processor()
    return condition_of(identity), replace(Setting.of(identity), epochs=None), device


def _trial(planned: Plan, folder: Path) -> Plan:
    """A run of two short epochs: the first includes what is done once."""
    config = planned.config
    images = min(IMAGES, tested_images(planned.identity) or IMAGES)
    budget = replace(config.budget, epochs=2, steps=STEPS, test_images=images)
    paths = Paths(results=str(folder / "results"), logs=str(folder / "logs"))
    return replace(planned, config=replace(config, budget=budget, paths=paths, logger={}))


def _cost(planned: Plan, trial: Job) -> Cost | None:
    """The cost of a whole epoch, from its trial."""
    trained, tested = trained_images(planned.identity), tested_images(planned.identity)
    try:
        record = records.read(trial.planned.path)
    except InputError:
        return None
    if record.status != "finished" or trained is None or tested is None:
        return None
    epoch, config = record.epochs[-1], trial.planned.config
    evaluated = epoch[f"{trial.planned.eval_split}_seconds"] / (config.budget.test_images or tested)
    seconds = epoch["train_seconds"] / (STEPS * config.optim.batch_size) * trained + evaluated * tested
    return Cost(seconds, record.peak_memory_mb["device"] or record.peak_memory_mb["host"] or 0.0)

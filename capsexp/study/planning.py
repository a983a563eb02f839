"""The runs of studies: which there are, what can't be run, and how far they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch

from capsexp.config.compose import command
from capsexp.config.schema import Data
from capsexp.data.source import identify
from capsexp.errors import InputError
from capsexp.run import records
from capsexp.run.plan import Plan, find_device, with_precision
from capsexp.study.selection import select
from capsexp.study.studies import Study, config_of

State = Literal["waiting", "running", "finished", "failed", "elsewhere"]

_A_GPU = 2  # runs: while one writes, evaluates or is started, the other computes


@dataclass(eq=False)
class Job:
    """One run among many."""

    planned: Plan
    studies: list[str]  # that need it
    state: State = "waiting"
    error: str | None = None  # of the latest attempt
    tried: int = 0
    epoch: int = 0  # whole epochs so far, as far as known
    accuracy: float | None = None  # after the latest of them, in percent
    seconds: float | None = None  # of the latest epoch
    outcome: str = ""  # of a finished run, in words
    ready_at: float = 0.0
    alone: bool = False  # beside others the GPU's memory didn't do

    @property
    def left(self) -> int:
        """Epochs that it still has to do."""
        return 0 if self.state in ("finished", "failed") else self.planned.epochs - self.epoch


class Watcher(Protocol):
    """What is told how the runs go."""

    def changed(self, job: Job) -> None:
        """A job began, ended an epoch, or ended."""

    def tick(self) -> None:
        """Some time has passed."""


def plan_all(
    studies: Iterable[Study], typed: Sequence[str], seeds: Iterable[int]
) -> tuple[list[Job], dict[str, list[str]]]:
    """All runs of the studies, each once, and what can't be run: the reason, and the commands without seeds.

    Typed words select among a study's runs or replace words of theirs: see `capsexp.study.selection`. The seeds of a
    configuration follow each other, so that rows of a table are complete early. Raises InputError for typed words that
    no run can have, or that leave nothing to compare.
    """
    jobs: dict[str, Job] = {}
    barred: dict[str, dict[str, None]] = {}
    data_sets: dict[str, str | InputError | None] = {}
    for study in studies:
        selection = select(study, typed)
        selected = {run.overrides: config_of(run.overrides) for run in selection.runs if run.selected}
        selection.replaces()
        for overrides, config in selected.items():
            try:
                device, precision = find_device(config)
                note = _note(config.data, data_sets)
            except InputError as error:
                barred.setdefault(str(error), {})[" ".join(overrides)] = None
                continue
            for seed in seeds:
                repeated = with_precision(command([*overrides, f"seed={seed}"]), precision)
                planned = Plan(replace(config, seed=seed), device, precision, note, repeated)
                job = jobs.setdefault(planned.name, Job(planned, []))
                if study.name not in job.studies:  # replaced words can make two runs of a study the same
                    job.studies.append(study.name)
    return list(jobs.values()), {reason: list(commands) for reason, commands in barred.items()}


def _note(data: Data, known: dict[str, str | InputError | None]) -> str | None:
    """The state of a data set's files. Each set is looked for, or downloaded, once; raises InputError each time."""
    if data.name not in known:
        try:
            known[data.name] = identify(data).note
        except InputError as error:
            known[data.name] = error
    note = known[data.name]
    if isinstance(note, InputError):
        raise note
    return note


def look(job: Job) -> None:
    """Sets the job's state to what its files say."""
    if not job.planned.path.exists():
        return
    try:
        record = records.read(job.planned.path)
    except InputError as error:  # damaged: nobody else's business
        job.state, job.error = "failed", str(error)
        return
    job.state, job.error, job.epoch = record.status, record.error, len(record.epochs)
    job.outcome = records.result_line(record) if record.status == "finished" else ""


def places(jobs: Iterable[Job], at_a_time: int | None) -> tuple[int, int]:
    """How many runs at a time, and on how many GPUs; unless it is said, two a GPU, or one on the CPU."""
    on_gpu = any(job.planned.device.type == "cuda" for job in jobs)
    devices = torch.cuda.device_count() if on_gpu else 0
    return at_a_time or max(1, _A_GPU * devices), devices


def count(jobs: Iterable[Job], *states: State) -> int:
    """How many jobs are in one of these states."""
    return sum(job.state in states for job in jobs)

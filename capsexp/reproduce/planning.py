"""The runs of studies: which there are, what can't be run, and how far they are."""

import ctypes
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import median
from typing import Literal

import torch

from capsexp.config.checks import typed_key
from capsexp.config.compose import command, distinguishing, portable
from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.errors import InputError, printable
from capsexp.results import runs
from capsexp.run import records
from capsexp.run.plan import Plan, plan
from capsexp.study.identity import describe
from capsexp.study.selection import TYPED, combination, select
from capsexp.study.studies import Study

State = Literal["waiting", "running", "finished", "failed"]


class Progress(ctypes.Structure):
    """How far a run is, as its process writes it: 0 is unknown."""

    epoch: int  # completed
    best: float  # accuracy so far, in percent
    seconds: float  # of the last epoch
    error: bytes  # why it failed
    _fields_ = (
        ("epoch", ctypes.c_int),
        ("best", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("error", ctypes.c_char * 501),
    )


@dataclass(eq=False)
class Job:
    """One run among many, and how far it is."""

    planned: Plan
    overrides: tuple[str, ...] = ()
    name: str = ""  # in a few words: the overrides that not all runs have
    published: str = ""  # accuracy that is printed for its row; none where other words are typed
    state: State = "waiting"
    outcome: str = ""  # of a finished run its accuracies, else the error of the last attempt
    progress: Progress = field(default_factory=Progress)
    guess: float = 0.0  # seconds an epoch, from the records of other trainings of the same network; 0: unknown
    process: ForkServerProcess | None = None  # while it runs
    slot: int = 0  # which of the runs at the same time it is
    failures: int = 0  # of this launcher's attempts
    not_before: float = 0.0  # of the next attempt, on time.monotonic's clock
    alone: bool = False  # beside others it found too little GPU memory

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its overrides, without those of this machine; the seed is the last."""
        words = portable(self.overrides)
        return tuple(sorted(words, key=lambda word: typed_key(word) == "seed"))

    @property
    def left(self) -> int:
        """The number of epochs to do."""
        return 0 if self.state in ("finished", "failed") else self.planned.epochs - self.progress.epoch

    def read_record(self) -> None:
        """Sets the state from the run's record, if there is one."""
        if not self.planned.path.exists():
            return
        try:
            record = records.read(self.planned.path)
        except InputError as error:  # a damaged record stops no other run
            self.state, self.outcome = "failed", printable(str(error))
            return
        self.state = record.status
        here = (record.peak_memory_mb["device"] is not None) == (self.planned.device.type == "cuda")
        seconds = record.seconds_per_epoch if here else None
        self.progress = Progress(len(record.epochs), record.max_accuracy or 0.0, seconds or 0.0)
        self.outcome = records.result_line(record) if record.error is None else printable(record.error)


def plan_all(
    studies: Iterable[Study], typed: Sequence[str], setting: str, seeds: Sequence[int], download: bool = True
) -> tuple[list[Job], dict[str, list[str]]]:
    """All runs of the studies, each once, with their states; and why some can't be run: reason → commands.

    Typed words select among a study's runs or replace words of theirs: see `capsexp.study.selection`. The seeds of a
    configuration follow each other, so that rows of a table are complete early. Missing data sets are downloaded;
    without `download` a missing set is assumed to be the published one. Raises InputError for typed words that no run
    can have, or that leave nothing to compare.
    """
    jobs: dict[str, Job] = {}
    barred: dict[str, list[str]] = {}
    lacking: dict[str, InputError] = {}
    for study in studies:
        block = select(study, typed, setting).blocks[0]
        rows = {run: row for row in study.rows for run in block.runs.get(row.name, ())}
        for run, row in rows.items():
            printed = row.printed.get("accuracy")
            published = f"{printed.value:.2f}" if printed and block.name != TYPED else ""
            try:
                first = _planned(run.config, lacking, download)
            except InputError as error:
                barred.setdefault(str(error), []).append(" ".join(run.overrides))
                continue
            for seed in seeds:
                words = (*run.overrides, f"seed={seed}")
                repeated = command(words, first.precision)
                planned = replace(first, config=replace(first.config, seed=seed), command=repeated)
                jobs.setdefault(planned.name, Job(planned, words, published=published))
    _look_up([*jobs.values()])
    return [*jobs.values()], barred


def plan_each(commands: Iterable[Sequence[str]]) -> list[Job | InputError]:
    """The run of each command line of a sweep, with its state, or why it can't be run; equal ones are one run."""
    jobs: dict[str, Job] = {}
    lacking: dict[str, InputError] = {}
    planned: list[Job | InputError] = []
    for overrides in commands:
        try:
            first = _planned(combination(tuple(overrides)).config, lacking)
            first = replace(first, command=command(overrides, first.precision))
            planned.append(jobs.setdefault(first.name, Job(first, tuple(overrides))))
        except InputError as error:
            planned.append(error)
    _look_up([*jobs.values()])
    return planned


def _planned(config: Config, lacking: dict[str, InputError], download: bool = True) -> Plan:
    """The plan of a run, after its data set has been downloaded; one that is `lacking` is tried once."""
    if config.data.name in lacking:
        raise lacking[config.data.name]
    try:
        if download:
            source.identify(config.data)
    except InputError as error:
        lacking[config.data.name] = error
        raise
    return plan(config)


def _look_up(jobs: Sequence[Job]) -> None:
    """Names the jobs, reads their records, and guesses the others' times, on a GPU from runs on GPUs."""
    for job, name in zip(jobs, distinguishing([job.words for job in jobs]), strict=True):
        job.name = name or job.planned.name
        if not job.planned.config.rerun:
            job.read_record()
    waiting = [job for job in jobs if job.state == "waiting"]
    results = Path(jobs[0].planned.config.paths.results) if jobs else Path()  # the same for all: typed, or the default
    per_image: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for run in runs.read(results)[0] if waiting and results.is_dir() else ():
        if "seconds" in run.measures and run.trained_images and not run.trained.is_narrowed:
            alike = run.trained.condition, run.trained.precision, "memory" in run.measures  # which is a GPU's
            per_image[alike].append(run.measures["seconds"] / run.trained_images)
    for job in waiting:
        own, train_images, *_ = describe(job.planned.identity)
        if times := per_image.get((own.condition, own.precision, job.planned.device.type == "cuda")):
            job.guess = median(times) * (train_images or 0) * job.planned.config.budget.width


def concurrency(jobs: Iterable[Job], at_a_time: int | None) -> tuple[int, int]:
    """The number of runs at a time, unless given one a GPU or one on the CPU; and the number of GPUs."""
    on_gpu = any(job.planned.device.type == "cuda" for job in jobs)
    devices = torch.cuda.device_count() if on_gpu else 0
    return at_a_time or max(1, devices), devices


def count(jobs: Iterable[Job], *states: State) -> int:
    """The number of jobs in one of these states."""
    return sum(job.state in states for job in jobs)

"""The runs of studies: which there are, what can't be run, and how far they are."""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ctypes import Structure, c_char, c_double, c_int
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Literal

import torch
from annotated_types import Ge

from capsexp import Count, Positive
from capsexp.config.compose import command, distinguishing, portable, varied
from capsexp.config.schema import Config
from capsexp.config.searchpath import ROOT
from capsexp.data import source
from capsexp.errors import InputError, printable
from capsexp.results import runs
from capsexp.run import records
from capsexp.run.plan import Plan, plan
from capsexp.study.identity import describe
from capsexp.study.selection import combination, select
from capsexp.study.studies import Study

State = Literal["waiting", "running", "finished", "failed"]
Words = tuple[str, ...]  # KEY=VALUE …


@dataclass(frozen=True)
class Options:
    """How runs are launched: the keys of conf/hydra/launcher/local.yaml."""

    jobs: Count | None = None  # runs at a time; None: one a GPU, or one on the CPU
    retry: Annotated[int, Ge(0)] = 0  # more attempts at a failed run
    time_limit: Positive | None = None  # minutes


class Progress(Structure):
    """How far a run is, as its process writes it: 0 is unknown."""

    epoch: int  # completed
    best: float  # accuracy so far, in percent
    seconds: float  # of the last epoch
    error: bytes  # why it failed
    _fields_ = (("epoch", c_int), ("best", c_double), ("seconds", c_double), ("error", c_char * 501))


@dataclass(eq=False)
class Job:
    """One run among many, and how far it is."""

    planned: Plan
    overrides: tuple[str, ...] = ()
    name: str = ""  # in a few words: the overrides that not all runs have
    state: State = "waiting"
    outcome: str = ""  # of a finished run its accuracies, else the error of the last attempt
    progress: Progress = field(default_factory=Progress)
    guess: float | None = None  # seconds an epoch, from records, if it isn't finished; 0: unknown
    process: ForkServerProcess | None = None  # while it runs
    slot: int = 0  # which of the runs at the same time it is
    failures: int = 0  # of this launcher's attempts
    not_before: float = 0.0  # of the next attempt, on time.monotonic's clock
    is_shipped: bool = False  # its record came with the repository
    alone: bool = False  # beside others it found too little GPU memory

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its overrides, without those of this machine; the seed is the last."""
        return (*_without_seed(tuple(portable(self.overrides))), f"seed={self.planned.config.seed}")

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


@dataclass(frozen=True)
class Planned:
    """The run of each command line, or why it can't be run; equal ones are one run."""

    runs: Mapping[Words, Job | InputError]

    @property
    def jobs(self) -> list[Job]:
        """Each run once."""
        return list(dict.fromkeys(run for run in self.runs.values() if isinstance(run, Job)))

    @property
    def barred(self) -> dict[str, set[Words]]:
        """Why some can't be run: reason → command lines without seeds."""
        reasons: dict[str, set[Words]] = {}
        for words, error in self.runs.items():
            if isinstance(error, InputError):
                reasons.setdefault(str(error), set()).add(_without_seed(words))
        return reasons


def commands_of(studies: Iterable[Study], typed: Sequence[str], setting: str, seeds: Sequence[int]) -> list[Words]:
    """The command lines of the studies' runs; typed words select or replace: see `capsexp.study.selection`.

    Of a study that extends another they are its own rows'. The seeds of a configuration follow each other, so that rows
    of a table are complete early. Raises InputError for typed words that no run can have, or that leave nothing to
    compare.
    """
    selections = [select(study, typed, setting) for study in studies]
    rows = [one.blocks[0].runs[row] for one in selections for row in one.study.own_rows]
    runs = [run.overrides for of_row in rows for run in of_row]
    return [(*words, f"seed={seed}") for words in dict.fromkeys(runs) for seed in seeds]


def plan_runs(commands: Iterable[Words], download: bool = True) -> Planned:
    """The runs of command lines, with their states, and why others can't be run.

    Missing data sets are downloaded; without `download` they are assumed to be the published ones.
    """
    jobs: dict[str, Job] = {}
    plans: dict[Words, Plan] = {}
    lacking: dict[str, InputError] = {}
    runs: dict[Words, Job | InputError] = {}
    for words in commands:
        first = _without_seed(words)  # of a configuration, composed once
        try:
            if first not in plans:
                plans[first] = _planned(combination(first).config, lacking, download)
            seeds = [int(word.removeprefix("seed=")) for word in words if word not in first]
            config = replace(plans[first].config, seed=(seeds or [plans[first].config.seed])[-1])
            planned = replace(plans[first], config=config, command=command(words, plans[first].precision))
            runs[words] = jobs.setdefault(planned.name, Job(planned, words))
        except InputError as error:
            runs[words] = error
    _look_up([*jobs.values()])
    return Planned(runs)


def _without_seed(words: Words) -> Words:
    """A command line without its seed; another word than a number stays, to be refused."""
    return tuple(word for word in words if not re.fullmatch(r"seed=\d{1,9}", word))


def _planned(config: Config, lacking: dict[str, InputError], download: bool) -> Plan:
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


def _shipped(results: Path) -> set[str]:
    """The names of the records that came with the repository: git's, where `results` is its folder."""
    if results.resolve() != ROOT / "results" or not shutil.which("git"):
        return set()
    listed = ["git", "-C", str(results), "ls-files", "runs"]
    output = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
    return {Path(line).name for line in output.splitlines()}


def _look_up(jobs: Sequence[Job]) -> None:
    """Names the jobs, reads their records, and guesses the others' times: of other seeds, or of their networks."""
    results = Path(jobs[0].planned.config.paths.results) if jobs else Path()  # the same for all: typed, or the default
    shipped = _shipped(results)
    keys, _ = varied([job.words for job in jobs])
    for job, name in zip(jobs, distinguishing([job.words for job in jobs]), strict=True):
        job.name, job.planned = name or job.planned.name, replace(job.planned, varied=tuple(keys))
        if not job.planned.config.rerun:
            job.read_record()
        job.is_shipped = job.state == "finished" and job.planned.path.name in shipped
    waiting = [job for job in jobs if job.state == "waiting"]
    per_image: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for run in runs.read(results)[0] if waiting and results.is_dir() else ():
        if "seconds" in run.measures and run.trained_images and not run.trained.is_narrowed:
            alike = run.trained.condition, run.trained.precision, "memory" in run.measures  # which is a GPU's
            per_image[alike].append(run.measures["seconds"] / run.trained_images)
    for job in waiting:
        seeds = [one.progress.seconds for one in jobs if one.progress.seconds and one.words[:-1] == job.words[:-1]]
        own, train_images, *_ = describe(job.planned.identity)
        # On a GPU from runs on GPUs.
        times = per_image.get((own.condition, own.precision, job.planned.device.type == "cuda"), [0.0])
        of_images = median(times) * (train_images or 0) * job.planned.identity["model"].get("width", 1.0)
        job.guess = mean(seeds or [of_images])


def concurrency(jobs: Sequence[Job], at_a_time: int | None) -> tuple[int, int]:
    """The number of runs at a time, unless given one a GPU or one on the CPU; and the number of GPUs."""
    on_gpu = any(job.planned.device.type == "cuda" for job in jobs)
    devices = torch.cuda.device_count() if on_gpu else 0
    return min(at_a_time or max(1, devices), max(1, len(jobs))), devices


def count(jobs: Iterable[Job], *states: State) -> int:
    """The number of jobs in one of these states."""
    return sum(job.state in states for job in jobs)

"""The runs of studies: which there are, what can't be run, and how far they are."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Literal

import torch

from capsexp.config.compose import command, portable
from capsexp.data import source
from capsexp.errors import InputError, printable
from capsexp.results import runs
from capsexp.run import records
from capsexp.run.plan import Plan, plan, with_precision
from capsexp.study.identity import trained
from capsexp.study.selection import TYPED, Selection, select
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
    studies: list[str]  # that need it
    words: tuple[str, ...] = ()  # its overrides, without those of this machine
    published: str = ""  # accuracy of its row, if it is the paper's experiment
    state: State = "waiting"
    outcome: str = ""  # of a finished run its accuracies, else the error of the last attempt
    progress: Progress = field(default_factory=Progress)
    process: ForkServerProcess | None = None  # while it runs
    slot: int = 0  # which of the runs at the same time it is
    failures: int = 0  # of this launcher's attempts
    not_before: float = 0.0  # of the next attempt, on time.monotonic's clock
    alone: bool = False  # beside others it found too little GPU memory

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
        self.progress = Progress(len(record.epochs), record.max_accuracy or 0.0, record.seconds_per_epoch or 0.0)
        self.outcome = records.result_line(record) if record.error is None else printable(record.error)


def plan_all(
    studies: Iterable[Study], typed: Sequence[str], setting: str, seeds: Sequence[int], download: bool = True
) -> tuple[list[Job], dict[str, list[str]]]:
    """All runs of the studies, each once, with their states; and why some can't be run: reason → commands.

    Typed words select among a study's runs or replace words of theirs: see `capsexp.study.selection`. The seeds of a
    configuration follow each other, so that rows of a table are complete early. A run that was trained under another
    name of its budget is finished. Missing data sets are downloaded, or without `download` taken for what a download
    brings. Raises InputError for typed words that no run can have, or that leave nothing to compare.
    """
    jobs: dict[str, Job] = {}
    barred: dict[str, list[str]] = {}
    lacking: dict[str, InputError] = {}  # data sets, which are tried to be downloaded once
    for study in studies:
        selection = select(study, typed, setting)
        published = _published(selection)
        for overrides, config in selection.blocks[0].configs.items():
            try:
                if config.data.name in lacking:
                    raise lacking[config.data.name]
                if download:
                    source.identify(config.data)
                first = plan(config)
            except InputError as error:
                lacking[config.data.name] = error
                barred.setdefault(str(error), []).append(" ".join(overrides))
                continue
            for seed in seeds:
                words = (*overrides, f"seed={seed}")
                repeated = with_precision(command(words), first.precision)
                planned = replace(first, config=replace(config, seed=seed), command=repeated)
                job = Job(planned, [], tuple(portable(words)), published.get(overrides, ""))
                job = jobs.setdefault(planned.name, job)
                if study.name not in job.studies:  # replaced words can make two runs of a study the same
                    job.studies.append(study.name)
    for job in jobs.values():
        job.read_record()
    _find_equal(jobs.values())
    return list(jobs.values()), barred


def _find_equal(jobs: Iterable[Job]) -> None:
    """Takes waiting runs for finished whose training is finished under another name of its budget."""
    waiting = [job for job in jobs if job.state == "waiting"]
    for results in {Path(job.planned.config.paths.results) for job in waiting}:
        every = runs.distinct(runs.read(results)[0]) if results.is_dir() else []
        done = {(run.trained, run.protocol, run.seed): run for run in every}
        for job in waiting:
            identity = job.planned.identity
            run = done.get((trained(identity), identity["protocol"], identity["seed"]))
            if run and Path(job.planned.config.paths.results) == results:
                job.state, job.outcome = "finished", f"as {run.name}"


def _published(selection: Selection) -> dict[tuple[str, ...], str]:
    """The published accuracy of each run's row, where it is a number; none where the training is another."""
    block = selection.blocks[0]
    printed = {row.name: row.printed.get("accuracy") for row in selection.study.rows if block.name != TYPED}
    return {
        run: f"{one.value:.2f}" for name, of_row in block.runs.items() for run in of_row if (one := printed.get(name))
    }


def concurrency(jobs: Iterable[Job], at_a_time: int | None) -> tuple[int, int]:
    """The number of runs at a time, unless given one a GPU or one on the CPU; and the number of GPUs."""
    on_gpu = any(job.planned.device.type == "cuda" for job in jobs)
    devices = torch.cuda.device_count() if on_gpu else 0
    return at_a_time or max(1, devices), devices


def count(jobs: Iterable[Job], *states: State) -> int:
    """The number of jobs in one of these states."""
    return sum(job.state in states for job in jobs)

"""The launcher: trains the runs of studies, several at a time, each in a fresh process.

Finished runs are skipped, for runs that another process trains it waits, interrupted ones are resumed after their
last completed epoch. A run that found too little GPU memory beside others is repeated alone.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait

import torch

from capsexp.reproduce.monitor import Monitor
from capsexp.reproduce.planning import Job, Progress
from capsexp.reproduce.worker import Result, Worker
from capsexp.run import records
from capsexp.run.execute import is_locked

_LOCKED = 2.0  # seconds until a run that another process trains is checked again
_GRACE = 10.0  # seconds that runs get to end by themselves
_INTERVAL = 0.5  # seconds between two checks of deadline and locks


@dataclass(frozen=True)
class Options:
    """How runs are launched."""

    at_a_time: int = 1
    devices: int = 0  # GPUs among which runs are distributed; 0: the CPU
    retries: int = 0  # of a failed run
    stop_at_failure: bool = False
    deadline: float = float("inf")  # on time.monotonic's clock


def launch(jobs: Sequence[Job], options: Options) -> None:
    """Trains what is waiting, and what failed if there are retries; however it ends, none of its processes remain."""
    for job in jobs:
        if job.state == "failed" and options.retries:
            job.state, job.progress = "waiting", Progress()
    monitor = Monitor(jobs, options.at_a_time)
    with monitor.live, _workers() as workers:
        while time.monotonic() < options.deadline:
            if options.stop_at_failure and any(job.state == "failed" and job.failures for job in jobs):
                return
            for job in jobs:
                if _can_start(job, workers, options):
                    _start(job, workers, options)
            monitor.update()
            if not workers and not any(job.state in ("waiting", "busy") for job in jobs):
                return
            wait([part for worker in workers for part in worker.waitables], timeout=_INTERVAL)
            for worker in list(workers):
                if result := worker.poll():
                    workers.remove(worker)
                    _finish(worker.job, result, options)
            monitor.update()


def _can_start(job: Job, workers: Sequence[Worker], options: Options) -> bool:
    return (
        job.state in ("waiting", "busy")
        and job.not_before <= time.monotonic()
        and len(workers) < options.at_a_time
        and not (workers and any(each.alone for each in (job, *(worker.job for worker in workers))))
    )


def _start(job: Job, workers: list[Worker], options: Options) -> None:
    if records.is_finished(job.planned.path):  # by another launcher, meanwhile
        job.read_record()
    elif is_locked(job.planned.folder):
        job.state, job.not_before = "busy", time.monotonic() + _LOCKED
    else:
        slot = min(set(range(options.at_a_time)) - {worker.slot for worker in workers})
        device = slot % options.devices if options.devices else None
        threads = job.planned.config.trainer.threads or max(1, torch.get_num_threads() // options.at_a_time)
        workers.append(Worker(job, slot, device, threads))
        job.state = "running"


def _finish(job: Job, result: Result, options: Options) -> None:
    """Sets the state of a job whose process has ended."""
    full = job.planned.device.type == "cuda" and result.out_of_memory
    job.outcome = result.text
    if result.state == "finished":
        job.state, job.progress = "finished", Progress(job.planned.epochs)
    elif result.state == "busy":
        job.state, job.not_before = "busy", time.monotonic() + _LOCKED
    elif full and options.at_a_time > 1 and not job.alone:
        job.state, job.progress, job.alone = "waiting", Progress(), True
    else:
        job.failures += 1
        job.state = "waiting" if job.failures <= options.retries else "failed"


@contextmanager
def _workers() -> Iterator[list[Worker]]:
    """The running processes, ended at last; the states of their jobs are then those of their records."""
    workers: list[Worker] = []
    try:
        yield workers
    finally:
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + _GRACE
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
            worker.job.state = "waiting"
            worker.job.read_record()

"""Running many: every run of some studies, a fresh process each, whatever happens on the way.

A server process imports torch and Lightning once and forks each run from there, so that a run is as fresh as a new
process and starts as fast as a function. What is finished is skipped, what another launcher has in hand is waited for,
what was interrupted goes on after its last whole epoch. A run for which others leave too little of a GPU's memory is
done again by itself. When the launcher dies, its runs end with it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from capsexp.run.execute import is_locked
from capsexp.run.plan import finished
from capsexp.study.planning import Job, Watcher, look
from capsexp.study.worker import Report, work

_ASK_AGAIN = 2.0  # seconds until a run that another process had in hand is asked for again
_PATIENCE = 10.0  # seconds that a run gets to end by itself
_TICK = 0.5  # seconds between two looks at the clock
_FULL = "out of memory"  # in what torch says when a GPU is


@dataclass(frozen=True)
class Options:
    """How the runs are run."""

    at_a_time: int = 1
    devices: int = 0  # GPUs to deal the runs out to; 0: the CPU
    retries: int = 0  # how often a failed run is tried again
    stop_at_failure: bool = False
    deadline: float = float("inf")  # on time.monotonic's clock


def launch(jobs: Sequence[Job], options: Options, watcher: Watcher) -> bool:
    """Runs all that is waiting, and what failed if there are retries; whether the deadline came first.

    Raises KeyboardInterrupt; whatever ends it, no run is left behind.
    """
    for job in jobs:
        if job.state == "failed" and options.retries:
            job.state, job.epoch = "waiting", 0
    launcher = _Launcher(jobs, options, watcher)
    try:
        return launcher.run()
    finally:
        launcher.end()


@dataclass(eq=False)
class _Run:
    """A process, the job that it does and the place that it takes."""

    job: Job
    process: BaseProcess
    reports: Connection
    place: int
    ended: Report | None = None


@dataclass
class _Launcher:
    jobs: Sequence[Job]
    options: Options
    watcher: Watcher
    runs: list[_Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["capsexp.run.train"])

    def run(self) -> bool:
        while not self._over():
            if time.monotonic() >= self.options.deadline:
                return True
            self._fill()
            self._listen()
            self.watcher.tick()
        return False

    def end(self) -> None:
        """Asks the processes to end, then makes them."""
        for run in self.runs:
            run.process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for run in self.runs:
            run.process.join(max(0.0, deadline - time.monotonic()))
            run.process.kill()
            run.process.join()
            run.job.state = "waiting"
            look(run.job)  # it may have come to its end

    def _over(self) -> bool:
        if self.options.stop_at_failure and any(job.state == "failed" and job.tried for job in self.jobs):
            return True
        return not self.runs and not any(job.state in ("waiting", "elsewhere") for job in self.jobs)

    def _fill(self) -> None:
        """Starts as many runs as there is room for."""
        for job in self.jobs:
            if len(self.runs) >= self.options.at_a_time or any(run.job.alone for run in self.runs):
                return
            if job.alone and self.runs:
                continue
            if job.state not in ("waiting", "elsewhere") or job.ready_at > time.monotonic():
                continue
            if job.planned.path.exists() and finished(job.planned):  # by another launcher, since
                look(job)
                self.watcher.changed(job)
            elif is_locked(job.planned.folder):
                self._elsewhere(job)
            else:
                self._start(job)

    def _elsewhere(self, job: Job) -> None:
        job.ready_at = time.monotonic() + _ASK_AGAIN
        if job.state != "elsewhere":
            job.state = "elsewhere"
            self.watcher.changed(job)

    def _start(self, job: Job) -> None:
        taken = {run.place for run in self.runs}
        place = next(place for place in range(self.options.at_a_time) if place not in taken)
        device = place % self.options.devices if self.options.devices else None
        reports, send = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=work, args=(job.planned, device, self._threads(job), send), name=job.planned.name
        )
        process.start()
        send.close()
        job.state, job.error = "running", None
        job.tried += 1
        self.runs.append(_Run(job, process, reports, place))
        self.watcher.changed(job)

    def _threads(self, job: Job) -> int:
        """The CPU's cores are shared out among the runs, unless the configuration says how many threads."""
        return job.planned.config.trainer.threads or max(1, torch.get_num_threads() // self.options.at_a_time)

    def _listen(self) -> None:
        """Takes in what the processes say, and those that ended; waits a little if none does."""
        pipes: list[Any] = [run.reports for run in self.runs if not run.reports.closed]
        wait([*pipes, *(run.process.sentinel for run in self.runs)], timeout=_TICK)
        for run in list(self.runs):
            self._read(run)
            if run.process.exitcode is not None:
                self._read(run)  # what came between the two looks
                self.runs.remove(run)
                self._ended(run)

    def _read(self, run: _Run) -> None:
        try:
            while not run.reports.closed and run.reports.poll():
                report = run.reports.recv()
                if report.kind == "epoch":
                    run.job.epoch, run.job.accuracy, run.job.seconds = report.epoch, report.accuracy, report.seconds
                    self.watcher.changed(run.job)
                else:
                    run.ended = report
        except (EOFError, OSError):  # it has nothing more to say
            run.reports.close()

    def _ended(self, run: _Run) -> None:
        job, report = run.job, run.ended
        if report is not None and _FULL in report.text and job.planned.device.type == "cuda" and self.runs:
            job.alone, job.state, job.tried, job.epoch = True, "waiting", job.tried - 1, 0
            self.watcher.changed(job)
            return
        if report is not None and report.kind == "busy":
            job.tried -= 1
            self._elsewhere(job)
            return
        if report is not None and report.kind == "finished":
            job.state, job.epoch, job.outcome = "finished", job.planned.epochs, report.text
        else:
            job.error = report.text if report else _how(run.process.exitcode)
            job.state = "failed" if job.tried > self.options.retries else "waiting"
        self.watcher.changed(job)


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by signal {-exit_code}" + (" (out of memory?)" if exit_code == -9 else "")
    return f"ended with code {exit_code} and said nothing"

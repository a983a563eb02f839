"""The launcher: trains the runs of studies and sweeps, several at a time, each in a process of its own.

The processes are forked from a server that has imported torch and Lightning: fresh, and fast to start. How a run ended
is in its process's exit code and in its record. Finished runs are skipped, for runs that another process trains it
waits, interrupted ones are resumed after their last completed epoch.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import wait

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from capsexp.cli import handle_signals, interrupt, print_error, print_line
from capsexp.errors import DONE, INTERRUPTED, BusyError, first_line
from capsexp.files import opened
from capsexp.reproduce.monitor import Monitor, ended
from capsexp.reproduce.planning import Job, Options, Progress, concurrency
from capsexp.run import records
from capsexp.run.execute import RECHECK, execute, is_locked
from capsexp.run.memory import is_out_of_memory
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import OUTPUT, Plan, cores

_GRACE = 10.0  # seconds that runs get to end by themselves
_INTERVAL = 0.5  # seconds between two checks of deadline and locks
_BUSY, _FULL = 75, 76  # exit codes of a run that another process trains, and of one that found too little memory


def launch(jobs: Sequence[Job], options: Options) -> None:
    """Trains what is waiting, and what failed if there are retries; however it ends, none of its processes remain."""
    handle_signals(interrupt)
    for job in jobs:
        if job.state == "failed" and options.retry:
            job.state, job.progress, job.failures = "waiting", Progress(), 1
    at_a_time, devices = concurrency(jobs, options.jobs)
    deadline = time.monotonic() + 60 * (options.time_limit or math.inf)
    monitor = Monitor(jobs, at_a_time)
    try:
        with monitor.live:
            while time.monotonic() < deadline and any(job.state in ("waiting", "running") for job in jobs):
                for job in jobs:
                    if job.state == "waiting" and job.not_before <= time.monotonic():
                        _start(job, _running(jobs), at_a_time, devices, options.retry)
                monitor.update()
                wait([job.process.sentinel for job in _running(jobs) if job.process], timeout=_INTERVAL)
                for job in _running(jobs):
                    if job.process and (code := job.process.exitcode) is not None:
                        _finish(job, code, at_a_time, options.retry)
                monitor.update()
    except KeyboardInterrupt:
        _end(_running(jobs))
        print_line(ended(jobs))
        raise
    finally:
        _end(_running(jobs))


def _running(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.state == "running"]


def _start(job: Job, running: Sequence[Job], at_a_time: int, devices: int, retry: int) -> None:
    """Starts a job's process, if there is room beside the running ones and no other process trains it."""
    if len(running) == at_a_time or (running and any(each.alone for each in (job, *running))):
        return
    if not job.planned.config.rerun and records.is_finished(job.planned.path):  # by another launcher, meanwhile
        job.read_record()
        return
    if is_locked(job.planned.folder):
        if not job.not_before:
            print_line(f"{job.planned.name}: already running, in another process; waits")
        job.not_before = time.monotonic() + RECHECK
        return
    job.slot = min(set(range(at_a_time)) - {each.slot for each in running})
    device = job.slot % devices if devices else None
    threads = job.planned.config.trainer.threads or max(1, cores() // at_a_time)
    context = get_context("forkserver")
    job.progress = context.RawValue(Progress)  # in memory that both processes share
    process = context.Process(target=_train, args=(job.planned, device, threads, job.progress), name=job.planned.name)
    try:
        _ensure_server()
        process.start()
    except (OSError, EOFError) as error:  # the server has been killed; the next start makes another one
        _fail(job, f"no process can be started: {first_line(error)}", max(1, retry))
    else:
        job.state, job.process = "running", process


def _ensure_server() -> None:
    """Starts the fork server, unless it runs. A terminal's Ctrl-C doesn't reach it: it ends with the launcher."""
    forkserver.set_forkserver_preload(["capsexp.run.train", __name__])
    resource_tracker.ensure_running()  # else the fork server starts it, which unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _finish(job: Job, code: int, at_a_time: int, retry: int) -> None:
    job.process = None  # closes its pipes
    if code == _BUSY:
        job.state, job.not_before = "waiting", time.monotonic() + RECHECK
    elif code == _FULL and job.planned.device.type == "cuda" and at_a_time > 1 and not job.alone:
        job.state, job.alone = "waiting", True  # beside others it found too little GPU memory
    elif code == DONE and job.planned.path.exists():
        job.read_record()
    elif job.progress.error:
        _fail(job, job.progress.error.decode(errors="ignore"), retry)
    else:  # by a signal, or with 255: the fork server was, which its runs follow
        memory = " (by the system, for lack of memory?)" if code == -signal.SIGKILL else ""
        text = f"killed by signal {-code}{memory}" if code < 0 else f"its process ended with code {code}"
        _fail(job, text, max(1, retry))


def _fail(job: Job, text: str, retry: int) -> None:
    job.outcome, job.failures = text, job.failures + 1
    job.state = "waiting" if job.failures <= retry else "failed"


def _end(running: Sequence[Job]) -> None:
    """Ends processes, after their last whole epoch if they can; the states of their jobs are those of their records."""
    processes = [job.process for job in running if job.process]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()
    for job in running:
        job.state = "waiting"
        if not job.planned.config.rerun:
            job.read_record()


class _Reporter(Callback):
    """Writes the progress after every epoch, and at the start of a resumed run."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, CapsuleModule)
        if history := pl_module.history:
            self.progress.epoch, self.progress.best = len(history), max(pl_module.accuracies)
            self.progress.seconds = records.epoch_seconds(history[-1])

    on_train_start = on_train_epoch_end


def _train(planned: Plan, device: int | None, threads: int, progress: Progress) -> None:
    """Trains in a new process, whose output goes to a file in the run's folder; exits as the program does."""
    if device is not None:
        _choose(device)
    _end_with_parent()
    signal.signal(signal.SIGINT, _interrupt)
    handle_signals(_interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    trainer = replace(planned.config.trainer, threads=threads, progress="lines")
    try:
        planned.folder.mkdir(parents=True, exist_ok=True)
        with opened(planned.folder / OUTPUT, "ab") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
        execute(replace(planned, config=replace(planned.config, trainer=trainer)), callbacks=[_Reporter(progress)])
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        known = print_error(error, [])
        progress.error = str(known).removeprefix(f"{planned.name}: failed: ").encode()[:500]
        full = is_out_of_memory(error.__cause__)
        raise SystemExit(_FULL if full else _BUSY if isinstance(error, BusyError) else known.exit_code) from None


def _interrupt(*_: object) -> None:
    """Ends the run after its last whole epoch, once: after a terminal's Ctrl-C, the launcher sends SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Kills this process when its parent has died, which harms no file: all are written beside and renamed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _choose(device: int) -> None:
    """Makes one GPU of those that the launcher sees, which may not be all, the only one that this process sees."""
    hip = torch.version.hip and "HIP_VISIBLE_DEVICES" in os.environ  # there, torch doesn't look at CUDA's variable
    name = "HIP_VISIBLE_DEVICES" if hip else "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name)
    os.environ[name] = visible.split(",")[device] if visible else str(device)

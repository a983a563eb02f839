"""A run in a process of its own, forked from a server that has imported torch and Lightning: fresh, and fast to start.

Its output goes to a file in the run's folder. However the launcher ends, its processes end with it.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from capsexp.cli import print_line
from capsexp.data.loader import BatchGroups
from capsexp.errors import INTERRUPTED, BusyError, CapsexpError, RunError, TrainingError, first_line
from capsexp.reproduce.planning import Job, Progress
from capsexp.run.environment import is_out_of_memory
from capsexp.run.execute import execute
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import OUTPUT, Plan
from capsexp.run.records import epoch_seconds, result_line

_ATTEMPTS, _PAUSE = 5, 0.2  # seconds, of starting a process
_NO_SERVER = 255  # multiprocessing's exit code of a process whose fork server has died; the process itself follows


@dataclass(frozen=True)
class Result:
    """How a run ended; busy: another process trains it."""

    state: Literal["finished", "failed", "busy"]
    text: str = ""  # the accuracies, or the error
    out_of_memory: bool = False


class Worker:
    """The process of a job, on the launcher's side."""

    def __init__(self, job: Job, slot: int, device: int | None, threads: int) -> None:
        """Starts it, on a GPU by number or on the CPU."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["capsexp.run.train", __name__])  # of the next server, if this one is killed
        self.job, self.slot = job, slot
        self.messages, sender = context.Pipe(duplex=False)
        arguments = job.planned, device, threads, sender
        self.process = _started(lambda: context.Process(target=_train, args=arguments, name=job.planned.name))
        sender.close()
        self.result: Result | None = None

    @property
    def waitables(self) -> list[Any]:
        """What multiprocessing.connection.wait waits for."""
        return [self.process.sentinel] + ([] if self.messages.closed else [self.messages])

    def poll(self) -> Result | None:
        """Updates the job's progress; the result, once the process has ended."""
        exit_code = self.process.exitcode  # before the messages: after an exit, all have arrived
        try:
            while not self.messages.closed and self.messages.poll():
                message = self.messages.recv()
                if isinstance(message, Result):
                    self.result = message
                else:
                    self.job.progress = message
        except (EOFError, OSError):  # the process has closed its end
            self.messages.close()
        if exit_code is None:
            return None
        return self.result or Result("failed", _cause(exit_code))


def _started(make: Callable[[], ForkServerProcess]) -> ForkServerProcess:
    """A process, started; raises RunError when that fails again and again.

    When the fork server has been killed, one start can fail; the next one starts another server.
    """
    for _ in range(_ATTEMPTS):
        process = make()
        try:
            process.start()
            return process
        except (OSError, EOFError) as error:
            failure = error
            time.sleep(_PAUSE)
    raise RunError(f"no process can be started: {first_line(failure)}") from failure


class _Reporter(Callback):
    """Sends the progress after every epoch, and at the start of a resumed run."""

    def __init__(self, messages: Connection) -> None:
        self.messages = messages

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Sends the last epoch, if there is one."""
        assert isinstance(module, CapsuleModule)
        assert isinstance(trainer.train_dataloader, BatchGroups)
        if module.history:
            row, images = module.history[-1], trainer.train_dataloader.loader.epoch_images
            speed = images / row["train_seconds"]
            self.messages.send(Progress(len(module.history), max(module.accuracies), epoch_seconds(row), speed))

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Sends the epoch that the run is resumed after."""
        self.on_train_epoch_end(trainer, module)


def _train(planned: Plan, device: int | None, threads: int, messages: Connection) -> None:
    """Trains in a new process, which exits as the program does."""
    if device is not None:
        _choose(device)
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    planned.folder.mkdir(parents=True, exist_ok=True)
    with (planned.folder / OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    trainer = replace(planned.config.trainer, threads=threads, progress="lines")
    try:
        planned = replace(planned, config=replace(planned.config, trainer=trainer))
        record = execute(planned, callbacks=[_Reporter(messages)])
        messages.send(Result("finished", result_line(record)))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BusyError:
        messages.send(Result("busy"))
    except CapsexpError as error:
        print_line(f"error: {error}")
        reason = error.reason if isinstance(error, TrainingError) else str(error)
        messages.send(Result("failed", reason, is_out_of_memory(error.__cause__)))
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        named = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else None
        messages.send(Result("failed", named or f"{type(error).__name__}: {first_line(error)}"))
        raise  # with its traceback in the output
    finally:
        messages.close()


def _interrupt(*_: object) -> None:
    """Ends the run after its last whole epoch, once: after a terminal's Ctrl-C, the launcher sends SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def end_with_parent() -> None:
    """Kills this process when its parent has died, which harms no file: all are written beside and renamed."""
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _choose(device: int) -> None:
    """Makes one GPU of those that the launcher sees, which may not be all, the only one that this process sees."""
    hip = torch.version.hip and "HIP_VISIBLE_DEVICES" in os.environ  # there, torch doesn't look at CUDA's variable
    name = "HIP_VISIBLE_DEVICES" if hip else "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name)
    os.environ[name] = visible.split(",")[device] if visible else str(device)


def _cause(exit_code: int) -> str:
    """Why a process ended without a result."""
    if exit_code == _NO_SERVER:
        return "the fork server that started it was killed"
    if exit_code < 0:
        return f"killed by signal {-exit_code}" + (" (by the system, for lack of memory?)" if exit_code == -9 else "")
    return f"ended with code {exit_code}, without an error message"

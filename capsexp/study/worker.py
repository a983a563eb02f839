"""One run inside a process of its own, that reports to the launcher."""

import os
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from capsexp.errors import INTERRUPTED, BusyError, CapsexpError, one_line
from capsexp.run.distributed import end_with_parent
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan
from capsexp.run.records import result_line

OUTPUT = "output.txt"  # in the run's folder: what it would show on a screen


@dataclass(frozen=True)
class Report:
    """What a run tells its launcher."""

    kind: Literal["epoch", "finished", "busy", "failed"]
    epoch: int = 0
    accuracy: float | None = None  # percent
    seconds: float | None = None  # of the epoch
    text: str = ""  # why it failed, or what came out


class _Reporter(Callback):
    """Reports every epoch."""

    def __init__(self, reports: Connection) -> None:
        self.reports = reports

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Where a run that goes on stands."""
        self._tell(module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """After the evaluation."""
        self._tell(module)

    def _tell(self, module: pl.LightningModule) -> None:
        assert isinstance(module, CapsuleModule)
        if module.history:
            row, evaluated = module.history[-1], module.planned.eval_split
            seconds = row["train_seconds"] + row[f"{evaluated}_seconds"]
            self.reports.send(Report("epoch", len(module.history), row[f"{evaluated}_accuracy"], seconds))


def work(planned: Plan, device: int | None, threads: int, reports: Connection) -> None:
    """Does a run, in a new process; ends it with the exit codes of the program.

    Args:
        device: the GPU that it gets; None: the CPU.
        threads: of the CPU.
        reports: where it says how it goes.
    """
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = _visible(device)
    end_with_parent()
    planned.folder.mkdir(parents=True, exist_ok=True)
    _write_to(planned.folder / OUTPUT)
    trainer = replace(planned.config.trainer, threads=threads, progress="lines")
    try:
        record = run(replace(planned.config, trainer=trainer), planned.command, _say, [_Reporter(reports)])
        reports.send(Report("finished", text=result_line(record)))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BusyError as error:
        reports.send(Report("busy", text=str(error)))
    except CapsexpError as error:
        _say(f"error: {error}")
        reports.send(Report("failed", text=str(error).removeprefix(f"{planned.name}: failed: ")))
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        reports.send(Report("failed", text=_told(error)))
        raise  # its traceback goes where the output goes
    finally:
        reports.close()


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {one_line(error)}"


def _visible(device: int) -> str:
    """The name of the launcher's GPU of that number: the launcher itself may see only some."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[device] if seen else str(device)


def _write_to(path: Path) -> None:
    """Sends standard output and errors to a file, after what earlier attempts wrote there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _say(line: str) -> None:
    print(line, flush=True)

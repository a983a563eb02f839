"""What a run shows: a bar on a terminal, a plain line an epoch elsewhere."""

import sys
import time

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from capsexp.data.loader import Batch, Several
from capsexp.run.module import CapsuleModule, Epoch


class EpochLines(Callback):
    """A line at the end of every epoch: losses, accuracies, the maximum so far, seconds, time left."""

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Prints the newest row of the history."""
        assert isinstance(module, CapsuleModule)
        print(epoch_line(module.history, module.evaluated, module.epochs), flush=True)


class EpochBar(EpochLines):
    """The lines of EpochLines above a bar over all epochs' batches."""

    def __init__(self) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stdout),
            transient=True,
        )
        self.task: TaskID | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Starts the bar where a continued run stands."""
        assert isinstance(module, CapsuleModule)
        loader = trainer.train_dataloader
        assert isinstance(loader, Several)
        batches = len(loader.loader)
        total, done = module.epochs * batches, trainer.current_epoch * batches
        self.task = self.progress.add_task(_description(module), total=total, completed=done)
        self.progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: object, batch: list[Batch], batch_idx: int
    ) -> None:
        """Moves the bar; reads nothing from the device."""
        if self.task is not None:
            self.progress.advance(self.task, len(batch))

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Prints the epoch above the bar."""
        assert isinstance(module, CapsuleModule)
        self.progress.console.print(epoch_line(module.history, module.evaluated, module.epochs), highlight=False)
        if self.task is not None:
            self.progress.update(self.task, description=_description(module))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Takes the bar away."""
        self.progress.stop()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Takes the bar away, whatever ended the run."""
        self.progress.stop()


def make_progress(kind: str) -> list[Callback]:
    """The callbacks for `trainer.progress`: bar, lines, none, or auto, which asks the terminal."""
    if kind == "auto":
        kind = "bar" if sys.stdout.isatty() else "lines"
    return [{"bar": EpochBar, "lines": EpochLines}[kind]()] if kind != "none" else []


def epoch_line(history: list[Epoch], evaluated: str, epochs: int) -> str:
    """One epoch in a line of less than 100 characters."""
    row = history[-1]
    accuracies = [entry[f"{evaluated}_accuracy"] for entry in history]
    best = max(accuracies)
    seconds = row["train_seconds"] + row[f"{evaluated}_seconds"]
    left = seconds * (epochs - len(history))
    return (
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}  loss {row['train_loss']:.4f}  "
        f"{evaluated} {accuracies[-1]:.2f} % (max {best:.2f} in epoch {accuracies.index(best) + 1})  "
        f"{seconds:.1f} s" + (f"  {duration(left)} left" if left else "")
    )


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return time.strftime(f"{int(seconds // 3600)} h %M min", time.gmtime(seconds))


def _description(module: CapsuleModule) -> str:
    done = len(module.history)
    accuracy = f", {module.history[-1][f'{module.evaluated}_accuracy']:.2f} %" if done else ""
    return f"epoch {min(done + 1, module.epochs)}/{module.epochs}{accuracy}"

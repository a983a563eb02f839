"""A run's progress: a bar on a terminal, a plain line per epoch elsewhere."""

import sys

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint
from rich.console import Console
from rich.progress import Progress, TaskID

from capsexp.cli import print_line
from capsexp.data.loader import Batch, BatchGroups
from capsexp.errors import duration
from capsexp.run.module import CapsuleModule
from capsexp.run.records import epoch_seconds


class EpochLines(Checkpoint):
    """A line on the training images, and one per epoch: loss, accuracy, the maximum so far, seconds, time left.

    A Checkpoint, since Lightning calls those last: an interruption after an epoch's line doesn't lose it.
    """

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Prints how much is trained: the images of an epoch can be fewer than the data set has."""
        assert isinstance(module, CapsuleModule)
        assert isinstance(trainer.train_dataloader, BatchGroups)
        loader, name = trainer.train_dataloader.loader, module.planned.config.data.name
        self.batches = len(loader)  # an epoch
        what = f"{module.trained_parameters:,} parameters on {loader.epoch_images:,} images of {name}"
        if module.planned.eval_split == "heldout":
            assert isinstance(trainer.val_dataloaders, BatchGroups)
            what += f", {len(trainer.val_dataloaders.loader.labels):,} more are held out"
        print_line(f"trains {what}, {self.batches:,} batches an epoch")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, CapsuleModule)
        print_line(epoch_line(module))


class EpochBar(EpochLines):
    """The same lines above a bar over the batches of all epochs; rich redirects stdout, so that they stand above it.

    Lightning's bars begin again in every epoch, and count calls of training_step, which are several batches each.
    """

    def __init__(self) -> None:
        self.progress = Progress(console=Console(file=sys.stdout), transient=True)
        self.task: TaskID

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Starts the bar, of a resumed run after its last epoch."""
        super().on_train_start(trainer, module)
        assert isinstance(module, CapsuleModule)
        epochs, done = module.planned.epochs, trainer.current_epoch * self.batches
        self.task = self.progress.add_task(f"{epochs} epochs", total=epochs * self.batches, completed=done)
        self.progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: object, batch: list[Batch], batch_idx: int
    ) -> None:
        """Advances the bar; reads nothing from the device."""
        self.progress.advance(self.task, len(batch))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.progress.stop()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.progress.stop()


def make_progress(kind: str) -> list[Callback]:
    """The callbacks for `trainer.progress`: bar, lines, none; auto is bar on a terminal and lines elsewhere."""
    if kind == "auto":
        kind = "bar" if sys.stdout.isatty() else "lines"
    return [{"bar": EpochBar, "lines": EpochLines}[kind]()] if kind != "none" else []


def epoch_line(module: CapsuleModule) -> str:
    """The last epoch in a line of less than 100 characters."""
    row, accuracies, epochs = module.history[-1], module.accuracies, module.planned.epochs
    best, seconds = max(accuracies), epoch_seconds(row)
    left = seconds * (epochs - len(accuracies))
    return (
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}  loss {row['train_loss']:.4f}  "
        f"{module.planned.eval_split} {accuracies[-1]:.2f} % (max {best:.2f} in epoch {accuracies.index(best) + 1})  "
        f"{seconds:.1f} s" + (f"  {duration(left)} left" if left else "")
    )

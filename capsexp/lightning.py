"""A network in training: loss, metrics, optimiser, schedule, and the history of its epochs."""

import math
import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, ReduceLROnPlateau
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy, MultilabelExactMatch

from capsexp.config import Optim
from capsexp.data.loader import derived_seed
from capsexp.errors import RunError
from capsexp.models import Prediction
from capsexp.nn.losses import reconstruction_loss
from capsexp.nn.precision import full_precision

Batch = tuple[Tensor, Tensor]
Epoch = dict[str, float | int]


class Metrics(nn.Module):
    """Mean loss and accuracy of a pass over a split, added up on the device.

    Args:
        classes: J.
        threshold: None where an image has one class: right is the greatest score. Where it has a set of classes:
            right is an image whose scores above the threshold are those of exactly its set (tsai, section 6).
    """

    def __init__(self, classes: int, threshold: float | None = None) -> None:
        super().__init__()
        self.threshold = threshold
        self.loss = MeanMetric(nan_strategy="disable")
        self.accuracy: MulticlassAccuracy | MultilabelExactMatch
        if threshold is None:
            self.accuracy = MulticlassAccuracy(classes, average="micro", validate_args=False)
        else:
            self.accuracy = MultilabelExactMatch(classes, validate_args=False)

    def update(self, loss: Tensor, scores: Tensor, labels: Tensor) -> None:
        """One batch: scalar, [B, J], [B] or [B, J]."""
        self.loss.update(loss, len(labels))
        # torchmetrics would guess from their values whether the scores are logits.
        self.accuracy.update(scores if self.threshold is None else (scores > self.threshold).long(), labels)

    def reset(self) -> None:
        """Begins a new pass."""
        self.loss.reset()
        self.accuracy.reset()

    def results(self, split: str) -> Epoch:
        """The pass in plain numbers; the accuracy in percent."""
        # float32 holds 99.71 % as 99.70999908: the share of a whole number of images is rounded back.
        accuracy = round(100 * self.accuracy.compute().item(), 5)
        return {f"{split}_loss": self.loss.compute().item(), f"{split}_accuracy": accuracy}


class CapsuleModule(pl.LightningModule):
    """Trains one network. After each epoch `history` holds one more row of plain numbers.

    Args:
        network: images [B, channels, H, W] -> Prediction.
        decoder: draws the images again from the class capsules, or None.
        loss: from scores and labels.
        reconstruction_weight: of the summed squared error.
        optim: optimiser and schedule.
        epochs: that this run does; the schedule's milestones are scaled to them.
        seed: the run's; each epoch's randomness follows from it and the epoch.
        classes: J.
        evaluated: what is evaluated after each epoch, `test` or `heldout`; names the columns of the history.
        mean, std: of the training pixels, one a channel, for a network that wants them normalised; else None.
        threshold: where labels are sets: see Metrics.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        decoder: nn.Module | None,
        loss: nn.Module,
        reconstruction_weight: float,
        optim: Optim,
        epochs: int,
        seed: int,
        classes: int,
        evaluated: str = "test",
        mean: list[float] | None = None,
        std: list[float] | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__()
        self.network, self.decoder, self.loss = network, decoder, loss
        self.reconstruction_weight = reconstruction_weight
        self.optim, self.epochs, self.seed, self.evaluated = optim, epochs, seed, evaluated
        self.register_buffer("mean", torch.tensor(mean or [0.0]).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std or [1.0]).view(-1, 1, 1))
        self.trained, self.tested = Metrics(classes, threshold), Metrics(classes, threshold)
        self.history: list[Epoch] = []
        self.schedule: LRScheduler | None = None
        self._schedule_state: dict[str, Any] | None = None
        self.resumed: list[int] = []  # after which epochs the run was interrupted and went on
        self.about: dict[str, Any] = {}  # what its checkpoints say of the run, as plain containers
        self._started = self._trained_at = 0.0

    def forward(self, pixels: Tensor) -> Prediction:
        """Pixels between 0 and 1, [B, channels, H, W] -> scores and class capsules."""
        prediction: Prediction = self.network((pixels - self.mean) / self.std)
        return prediction

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser; the schedule is stepped here, not by Lightning, so that a checkpoint has its newest state."""
        optim = self.optim
        optimizer: torch.optim.Optimizer
        if optim.name == "adam":
            optimizer = torch.optim.Adam(self.parameters(), optim.lr, weight_decay=optim.weight_decay)
        else:
            optimizer = torch.optim.SGD(
                self.parameters(), optim.lr, momentum=optim.momentum, weight_decay=optim.weight_decay
            )
        self.schedule = make_schedule(optimizer, optim, self.epochs)
        if self.schedule is not None and self._schedule_state is not None:
            self.schedule.load_state_dict(self._schedule_state)
        return optimizer

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """One batch: loss and gradient."""
        return self._step(batch, self.trained)

    def validation_step(self, batch: Batch, index: int) -> None:
        """One batch of the evaluation after an epoch."""
        self._step(batch, self.tested)

    def test_step(self, batch: Batch, index: int) -> None:
        """One batch of the test set, under protocol heldout."""
        self._step(batch, self.tested)

    def _step(self, batch: Batch, metrics: Metrics) -> Tensor:
        pixels, labels = batch
        scores, poses = self(pixels)
        with full_precision(scores):
            loss: Tensor = self.loss(scores.float(), labels)
        if self.decoder is not None:
            drawn = self.decoder(poses, labels)
            loss = loss + self.reconstruction_weight * reconstruction_loss(drawn.float(), pixels)
        metrics.update(loss.detach(), scores.detach(), labels)
        return loss

    def on_train_epoch_start(self) -> None:
        """Makes the epoch's randomness a function of seed and epoch alone."""
        torch.manual_seed(derived_seed(self.seed, self.current_epoch, 1))
        self.trained.reset()
        self._started = time.perf_counter()

    def on_validation_epoch_start(self) -> None:
        """Ends the clock of the training part."""
        self.tested.reset()
        self._wait_for_device()
        self._trained_at = time.perf_counter()

    def on_validation_epoch_end(self) -> None:
        """Adds the epoch's row to the history."""
        row: Epoch = {
            "epoch": self.current_epoch + 1,
            "learning_rate": self.trainer.optimizers[0].param_groups[0]["lr"],
            **self.trained.results("train"),
            **self.tested.results(self.evaluated),
            "train_seconds": self._trained_at - self._started,
            f"{self.evaluated}_seconds": time.perf_counter() - self._trained_at,
        }
        self.history.append(row)
        if not math.isfinite(row["train_loss"]):
            raise RunError(f"the training loss is {row['train_loss']} in epoch {row['epoch']}: the training diverged")

    def on_train_epoch_end(self) -> None:
        """Steps the schedule; the plateau's metric is the training loss (jiao doesn't say which)."""
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(self.history[-1]["train_loss"])
        elif self.schedule is not None:
            self.schedule.step()

    def on_test_epoch_start(self) -> None:
        """Begins to count anew."""
        self.tested.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Puts what the run is, history and schedule beside the weights, as plain containers."""
        checkpoint["capsexp"] = {**self.about, "epoch": len(self.history)}
        checkpoint["history"], checkpoint["resumed"] = self.history, self.resumed
        checkpoint["schedule"] = self.schedule.state_dict() if self.schedule is not None else None

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes history and schedule back; the schedule is made later, with the optimiser."""
        self.history = list(checkpoint["history"])
        self._schedule_state = checkpoint["schedule"]

    def test_accuracy(self) -> float:
        """Percent right in the last pass over the test set."""
        return float(self.tested.results("test")["test_accuracy"])

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def make_schedule(optimizer: torch.optim.Optimizer, optim: Optim, epochs: int) -> LRScheduler | None:
    """The learning rate's schedule, stepped once an epoch; milestones move with a reduced number of epochs."""
    if optim.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=optim.factor, patience=optim.patience)
    if optim.schedule == "steps":
        milestones = [round(milestone * epochs / optim.epochs) for milestone in optim.milestones]
        return MultiStepLR(optimizer, milestones, optim.factor)
    return None

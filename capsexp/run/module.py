"""A network in training: loss, metrics, optimiser, schedule, and the history of its epochs."""

import math
import time
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, ReduceLROnPlateau
from torchmetrics import Metric

from capsexp.config.schema import Optim
from capsexp.data.loader import Batch, derived_seed
from capsexp.errors import RunError
from capsexp.nn.losses import reconstruction_loss
from capsexp.nn.precision import full_precision
from capsexp.nn.scores import Prediction
from capsexp.run.optimization import EagerSteps, Outcome, RecordedSteps, Stepper, cuda_graph, make_recordable

Epoch = dict[str, float | int]


class Metrics(Metric):
    """Mean loss and accuracy of a pass over a split, added up on the device, and over the processes of a run.

    Args:
        threshold: None where an image has one class: right is the greatest score. Where it has a set of classes:
            right is an image whose scores above the threshold are those of exactly its set (tsai, section 6).
    """

    full_state_update = False
    loss: Tensor
    right: Tensor
    images: Tensor

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        self.threshold = threshold
        self.add_state("loss", torch.zeros((), dtype=torch.float64), "sum")
        self.add_state("right", torch.zeros((), dtype=torch.int64), "sum")
        self.add_state("images", torch.zeros((), dtype=torch.int64), "sum")

    def update(self, loss: Tensor, scores: Tensor, labels: Tensor) -> None:
        """One batch: scalar, [B, J], [B] or [B, J]."""
        self.loss += loss * len(labels)
        self.images += len(labels)
        if self.threshold is None:
            self.right += (scores.argmax(dim=1) == labels).sum()
        else:
            self.right += ((scores > self.threshold) == (labels > 0)).all(dim=1).sum()

    def compute(self) -> tuple[float, float]:
        """Mean loss, and the share of images that are right in percent. Waits for the device."""
        images = self.images.item()
        # The quotient of whole numbers is rounded, so that 99.71 % is that and not 99.71000000000001 %.
        return self.loss.item() / images, round(100 * self.right.item() / images, 5)

    def results(self, split: str) -> Epoch:
        """The pass in plain numbers."""
        loss, accuracy = self.compute()
        return {f"{split}_loss": loss, f"{split}_accuracy": accuracy}


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
        evaluated: what is evaluated after each epoch, `test` or `heldout`; names the columns of the history.
        mean, std: of the training pixels, one a channel, for a network that wants them normalised; else None.
        threshold: where labels are sets: see Metrics.
        recorded: on a GPU, steps are replayed from a recording; see capsexp.run.optimization.
    """

    automatic_optimization = False  # a call of `training_step` does several
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
        evaluated: str = "test",
        mean: list[float] | None = None,
        std: list[float] | None = None,
        threshold: float | None = None,
        recorded: bool = True,
    ) -> None:
        super().__init__()
        self.network, self.decoder, self.loss = network, decoder, loss
        self.reconstruction_weight = reconstruction_weight
        self.optim, self.epochs, self.seed, self.evaluated = optim, epochs, seed, evaluated
        self.register_buffer("mean", torch.tensor(mean or [0.0]).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std or [1.0]).view(-1, 1, 1))
        self.trained, self.tested = Metrics(threshold), Metrics(threshold)
        self.history: list[Epoch] = []
        self.schedule: LRScheduler | None = None
        self._schedule_state: dict[str, Any] | None = None
        self.resumed: list[int] = []  # after which epochs the run was interrupted and went on
        self.about: dict[str, Any] = {}  # what its checkpoints say of the run, as plain containers
        self.recorded = recorded
        self.stepper: Stepper | None = None
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

    def transfer_batch_to_device(self, batch: list[Batch], device: torch.device, index: int) -> list[Batch]:
        """They are there already."""
        return batch

    def on_train_start(self) -> None:
        """The optimiser is what the training goes on with, from a checkpoint or new."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        steps = EagerSteps(self.outcome, self.manual_backward, optimizer)
        self.stepper = steps
        if self.recorded and self.device.type == "cuda" and self.trainer.world_size == 1:
            make_recordable(optimizer)
            self.stepper = RecordedSteps(steps, cuda_graph)

    def training_step(self, batches: list[Batch], index: int) -> None:
        """So many optimisation steps: Lightning's own work, done once for all of them, takes longer than one."""
        assert self.stepper is not None
        for batch in batches:
            self.trained.update(*self.stepper(batch), batch.labels)

    def validation_step(self, batches: list[Batch], index: int) -> None:
        """Some batches of the evaluation after an epoch."""
        for batch in batches:
            self.tested.update(*self.outcome(batch), batch.labels)

    def test_step(self, batches: list[Batch], index: int) -> None:
        """Some batches of the test set, under protocol heldout."""
        self.validation_step(batches, index)

    def outcome(self, batch: Batch) -> Outcome:
        """Loss and scores of a batch."""
        pixels, labels, _ = batch
        scores, poses = self(pixels)
        with full_precision(scores):
            loss: Tensor = self.loss(scores.float(), labels)
        if self.decoder is not None:
            drawn = self.decoder(poses, labels)
            loss = loss + self.reconstruction_weight * reconstruction_loss(drawn.float(), pixels)
        return Outcome(loss, scores)

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

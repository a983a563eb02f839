"""A network in training: loss, metrics, and the history of its epochs."""

import math
import time
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from capsexp.cli import print_line
from capsexp.config.schema import is_multilabel
from capsexp.data.loader import Batch, BatchGroups, derived_seed
from capsexp.errors import RunError
from capsexp.nn.losses import SpreadLoss, reconstruction_loss
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.scores import Prediction
from capsexp.routing import fast
from capsexp.run import keys, records
from capsexp.run.build import Built, make_loss
from capsexp.run.optimization import CapturedStep, EagerStep, StepOutput, make_optimizer, make_schedule, make_step
from capsexp.run.plan import Plan

FORMAT = 1  # of a checkpoint's entry "capsexp"; raised when older ones can't be read any more

EpochMetrics = dict[str, float | int]
Pixels = tuple[list[float] | None, list[float] | None]  # mean and deviation a channel, between 0 and 1


class Metrics(Metric):
    """Mean loss, accuracy and reconstruction error of a pass over a split, summed on the device and over the processes
    of a run.

    torchmetrics' own accuracy divides in float32, whose rounding reaches the fifth decimal of a percentage, and
    launches more kernels a step.

    Args:
        threshold: None where an image has one class: the prediction is the greatest score. Where it has a set of
            classes: an image is right if the scores above the threshold are those of exactly its set (tsai, section 6).
        reconstructs: whether batches come with a reconstruction error.
    """

    full_state_update = False
    loss: Tensor
    error: Tensor
    correct: list[Tensor]

    def __init__(self, threshold: float | None = None, reconstructs: bool = False) -> None:
        super().__init__()
        self.threshold, self.reconstructs = threshold, reconstructs
        for name in ("loss", "error"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), "sum")
        self.add_state("correct", [], "cat")

    def update(self, loss: Tensor, scores: Tensor, labels: Tensor, error: Tensor | None = None) -> None:
        """Adds one batch: scalar, [B, J], [B] or [B, J], scalar."""
        self.loss += loss * len(labels)
        if error is not None:
            self.error += error * len(labels)
        if self.threshold is None:
            self.correct.append(scores.argmax(dim=1) == labels)
        else:
            self.correct.append(((scores > self.threshold) == (labels > 0)).all(dim=1))

    def compute(self) -> tuple[float, float, Tensor]:
        """Mean loss and error; whether each image is classified correctly, [N] bool, one process after the other."""
        correct = dim_zero_cat(self.correct)
        return self.loss.item() / len(correct), self.error.item() / len(correct), correct

    def results(self, split: str) -> EpochMetrics:
        """Means, the accuracy in percent, by the names of their columns in the history; waits for the device."""
        loss, error, correct = self.compute()
        row = {f"{split}_loss": loss, f"{split}_accuracy": records.percent(int(correct.sum()), correct.numel())}
        return row | ({f"{split}_reconstruction": error} if self.reconstructs else {})


class CapsuleModule(pl.LightningModule):
    """Trains the network of a run. After each epoch `history` has one more row of plain numbers.

    On one GPU its steps are replayed from a CUDA graph, unless trainer.cuda_graphs is off.
    """

    automatic_optimization = False  # a call of training_step does several steps
    mean: Tensor
    std: Tensor

    def __init__(self, planned: Plan, built: Built) -> None:
        super().__init__()
        config = planned.config
        self.planned = planned
        self.trained_parameters = built.parameters
        self.network, self.decoder, self.loss = built.network, built.decoder, make_loss(config.loss, built.network)
        if planned.device.type == "cpu" or planned.precision == "bf16":  # most convolutions take less time so
            nn.utils.convert_conv2d_weight_memory_format(self.network, torch.channels_last)
        normalize = config.preprocess.normalize  # by the mean and standard deviation of the training pixels
        mean, std = (config.data.mean, config.data.std) if normalize else ([0.0], [1.0])
        unknown = [torch.nan] * config.data.channels  # until the images are read, or a checkpoint is
        self.register_buffer("mean", torch.tensor(mean or unknown).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std or unknown).view(-1, 1, 1))
        threshold = self.loss.threshold if is_multilabel(config.data) else None
        self.train_metrics = Metrics(threshold)
        reconstructs = self.decoder is not None and config.reconstruction.weight > 0
        self.eval_metrics = Metrics(threshold, reconstructs)
        self.step: EagerStep | CapturedStep | None = None  # while it trains
        self.history: list[EpochMetrics] = []
        self.trained_images: Tensor | None = None  # the `digests` of somebody's own, of which it is trained
        self.pixels: Pixels = (config.data.mean, config.data.std)  # of the training images, if known
        self.correct: dict[str, str] = {}  # of a record
        self.routing_path = ""  # how the first batch was computed, see fast.paths
        self.resumed: list[int] = []  # the epochs after which the run was interrupted
        self.commits: list[str | None] = []  # of the code that trained before, between and after them
        self._first_scores: Tensor | None = None  # of the first epoch's first image, and whether all others' equal them
        self._constant: list[Tensor] = []
        self._started = self._trained = 0.0  # when the epoch and its evaluation began

    @property
    def accuracies(self) -> list[float]:
        """After each epoch, in percent, on the split that is evaluated."""
        return [row[f"{self.planned.eval_split}_accuracy"] for row in self.history]

    def forward(self, pixels: Tensor) -> Prediction:
        """Pixels between 0 and 1, [B, channels, H, W] -> scores and class capsules."""
        return self.network((pixels - self.mean) / self.std)

    def loss_and_scores(self, batch: Batch) -> StepOutput:
        pixels, labels, _ = batch
        scores, poses = self(pixels)
        loss = self._class_loss(scores, labels)
        if self.decoder is not None:
            drawn = self.decoder(poses, labels)
            chosen = self.planned.config.reconstruction
            loss = loss + chosen.weight * reconstruction_loss(at_least_float32(drawn), pixels, chosen.reduction)
        return StepOutput(loss, scores)

    def _class_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        with full_precision(scores):
            return self.loss(at_least_float32(scores), labels)

    def _backward(self, loss: Tensor) -> None:
        """Gives the parameters their gradient, clipped to the norm `optim.gradient_clip`."""
        self.manual_backward(loss)
        if limit := self.planned.config.optim.gradient_clip:
            nn.utils.clip_grad_norm_(self.parameters(), limit)

    def training_step(self, batches: list[Batch], index: int) -> None:
        """Several optimisation steps: on a GPU, Lightning's work around one call takes as long as a step."""
        assert self.step is not None
        for batch in batches:
            self.train_metrics.update(*self.step(batch), batch.labels)
        self.routing_path = self.routing_path or fast.paths(self.network)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Counts the steps, as Lightning's own optimisers do, and without which its ModelCheckpoint writes nothing."""
        self.trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total.completed += len(batch)

    def validation_step(self, batches: list[Batch], index: int) -> None:
        for batch in batches:
            self.add_evaluated(self.loss_and_scores(batch), batch.labels)

    test_step = validation_step  # under protocol heldout

    def add_evaluated(self, output: StepOutput, labels: Tensor) -> None:
        """Adds a batch to the metrics; the reconstruction's error is what its loss has beside that of the classes."""
        if not self.history:
            self._first_scores = output.scores[:1].clone() if self._first_scores is None else self._first_scores
            self._constant.append((output.scores == self._first_scores).all())
        error = None
        if self.eval_metrics.reconstructs:
            error = (output.loss - self._class_loss(output.scores, labels)) / self.planned.config.reconstruction.weight
        self.eval_metrics.update(*output, labels, error)

    def transfer_batch_to_device(self, batch: list[Batch], device: torch.device, index: int) -> list[Batch]:
        """The batches as they are: loaders yield them on the device. Lightning's hook would walk through each."""
        return batch

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser and, where there is one, the learning rate's schedule; checkpoints hold the state of both."""
        optim = self.planned.config.optim
        optimizer = make_optimizer(self.parameters(), optim)
        schedule = make_schedule(optimizer, optim, self.planned.epochs)
        return optimizer if schedule is None else ([optimizer], [schedule])

    def on_train_start(self) -> None:
        """Makes the step, whose optimiser is new or from a checkpoint; gives the loss the number of steps."""
        if isinstance(self.loss, SpreadLoss):
            groups = self.trainer.train_dataloader
            assert isinstance(groups, BatchGroups)
            self.loss.grow_over(self.planned.epochs * len(groups.loader))
        cuda, optimizer = self.device.type == "cuda", self.trainer.optimizers[0]
        captured = cuda and self.planned.config.trainer.cuda_graphs and self.trainer.world_size == 1
        step = EagerStep(self.loss_and_scores, self._backward, optimizer, [*self.buffers()])
        self.step = make_step(step, cuda, captured)

    def on_train_epoch_start(self) -> None:
        """Seeds the epoch, by the run's seed and the epoch alone, so that resumed runs draw the same numbers."""
        torch.manual_seed(derived_seed(self.planned.config.seed, self.current_epoch, 1))
        self.train_metrics.reset()
        self._started = time.perf_counter()

    def on_validation_epoch_start(self) -> None:
        """Ends the training's time and begins the evaluation's."""
        self.eval_metrics.reset()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._trained = time.perf_counter()

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Adds the epoch's row to the history; raises RunError when the training diverged."""
        split = self.planned.eval_split
        row: EpochMetrics = {
            "epoch": self.current_epoch + 1,
            "learning_rate": self.trainer.optimizers[0].param_groups[0]["lr"],
            **self.train_metrics.results("train"),
            **self.eval_metrics.results(split),
            "train_seconds": self._trained - self._started,
            f"{split}_seconds": time.perf_counter() - self._trained,
        }
        self.history.append(row)
        if self._constant and torch.stack(self._constant).all():
            print_line(f"{self.planned.name}: all images have the same scores: the output doesn't depend on its input")
        self._constant = []
        self.log_dict({name: value for name, value in row.items() if name != "epoch"}, logger=False)  # for callbacks
        if split == "test":
            self._keep_correct("last_accuracy", self.trainer.val_dataloaders)
            if row["test_accuracy"] > max(self.accuracies[:-1], default=-1):
                self.correct["max_accuracy"] = self.correct["last_accuracy"]
        if not math.isfinite(row["train_loss"]):
            rate = f"optim.lr={self.planned.config.optim.lr:g}"
            where = f"the training loss is {row['train_loss']} in epoch {row['epoch']}"
            raise RunError(f"{where}: the training diverged with {rate}")

    def on_train_epoch_end(self) -> None:
        """Steps the schedule; what the plateau is of is an option, since jiao doesn't say it."""
        schedule = self.lr_schedulers()
        if isinstance(schedule, ReduceLROnPlateau):
            by_loss = self.planned.config.optim.plateau_of == "train_loss"
            schedule.step(self.history[-1]["train_loss"] if by_loss else self.accuracies[-1])
        elif isinstance(schedule, LRScheduler):
            schedule.step()

    def on_test_epoch_end(self) -> None:
        """Keeps which test images the epoch chosen on held-out images classifies correctly."""
        self._keep_correct("heldout_accuracy", self.trainer.test_dataloaders)

    def _keep_correct(self, accuracy: str, groups: object) -> None:
        assert isinstance(groups, BatchGroups)
        *_, correct = self.eval_metrics.compute()
        self.correct[accuracy] = records.packed(groups.loader.in_order(correct.view(-1)).tolist())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds, as plain containers, the run (see capsexp.run.restore.Header) and its history."""
        planned = self.planned
        checkpoint["capsexp"] = {
            "format": FORMAT,
            "name": planned.name,
            "config": keys.stored_config(planned.config),
            "precision": planned.precision,
            "note": planned.note,
            "unlisted": planned.unlisted,
            "epoch": len(self.history),
        }
        checkpoint |= {
            "history": self.history,
            "correct": dict(self.correct),
            "routing_path": self.routing_path,
            "resumed": self.resumed,
            "commits": self.commits,
            "rerun": planned.config.rerun,
            "stopped": self.trainer.should_stop,  # by a callback, before the last epoch
        } | ({} if self.trained_images is None else {"trained_images": self.trained_images, "pixels": self.pixels})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the history back. Checkpoints of earlier versions have no `correct` and no `routing_path`."""
        self.routing_path = checkpoint.get("routing_path", "")
        self.history, self.correct = list(checkpoint["history"]), dict(checkpoint.get("correct", {}))

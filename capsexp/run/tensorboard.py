"""A run's TensorBoard pages: curves, histograms, reconstructions, the network, what the HParams page compares.

All of it is written between two epochs, into a folder beside those of the runs' checkpoints, tensorboard/NAME, since
TensorBoard calls a run by its folder: `make tensorboard` shows them all. Nothing of it changes the run's numbers. Steps
are epochs, counted from 1. TensorBoard sorts by name and opens the first two groups: accuracy and loss.

| where      | what                                                                                            |
|------------|-------------------------------------------------------------------------------------------------|
| scalars    | accuracies in percent, losses, learning rate, peak memory in MB, the mean entropy of the routing |
|            | coefficients, by layer and iteration, seconds; at the end once, for hparams: the maximum         |
| histograms | scores of the correct class and of the others; routing coefficients                              |
| images     | one evaluated image of each class: `reconstructions`, above the image, below its reconstruction;  |
|            | `routing`, below it the coefficients to its class, by position of the child, layer by layer      |
| text       | the command that repeats the run, the parameters                                                |
| graph      | the network                                                                                     |
| hparams    | the configuration, and the accuracies                                                           |
"""

import copy
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from pytorch_lightning.callbacks import Callback
from tensorboard.plugins.hparams import summary_v2 as hparams
from torch import Tensor, nn
from torch.utils.tensorboard import FileWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams as hparams_summaries

from capsexp.data.loader import Batch, BatchGroups, DeviceLoader
from capsexp.nn.losses import multi_hot
from capsexp.nn.scores import Scores
from capsexp.routing import fast
from capsexp.run import records
from capsexp.run.capture import Capture, capture, entropy
from capsexp.run.environment import peak_memory_mb
from capsexp.run.loggers import display_name, final_scalars, hyperparameters, scalars
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan

FOLDER = "tensorboard"  # below paths.logs
EXAMPLES = 10  # images of which reconstructions and routing coefficients are shown, each of another class
BINS = 50  # of a histogram
MARGIN = 56  # pixels at the left of routing's images, above and below them
_CLOSING = 2.0  # seconds that closing the file of an interrupted run may take

#: The name of the scores' histograms, by what stands for a capsule's presence.
_SCORES = {"length": "class_lengths", "activation": "class_activations", "pose": "class_logits"}


class TensorBoard(Callback):
    """Writes a run's event files.

    A run that starts at its beginning removes the event files of earlier attempts; one that is resumed after epoch n
    hides what they hold of later epochs. Lightning's TensorBoardLogger would leave the first, write an hparams.yaml and
    add a nameless entry to the HParams page that is finished from the start.
    """

    def __init__(self, planned: Plan) -> None:
        self.planned = planned
        self.writer: SummaryWriter | None = None
        self.hook = threading.excepthook
        self.scores: list[Tensor] = []
        self.labels: list[Tensor] = []

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Opens the event file, and writes what is known before the first epoch."""
        assert isinstance(module, CapsuleModule)
        done = len(module.history)
        if not done:
            for earlier in folder_of(self.planned).glob("events.out.tfevents.*"):
                earlier.unlink()
        self.writer = self._open(purge_step=done + 1)
        if not done:
            with _isolated(module):
                self._write_configuration(self.writer, module)
            self.writer.flush()

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        outputs: Any,
        batch: list[Batch],
        *args: object,
    ) -> None:
        """Keeps scores and labels, in epochs with histograms; reads nothing from the device."""
        if has_histograms(trainer.current_epoch + 1, self.planned.epochs):
            self.scores += outputs["scores"]
            self.labels += [one.labels for one in batch]

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the epoch."""
        assert isinstance(module, CapsuleModule)
        assert self.writer is not None
        epoch = len(module.history)
        memory = peak_memory_mb(self.planned.device)
        for tag, value in scalars(module.history[-1], memory).items():
            self.writer.add_scalar(tag, value, epoch)
        if self.scores:
            scores, labels = torch.cat(self.scores), torch.cat(self.labels)
            self.scores, self.labels = [], []
            assert isinstance(trainer.val_dataloaders, BatchGroups)
            shown = examples(trainer.val_dataloaders.loader, scores.shape[1])
            with _isolated(module), trainer.precision_plugin.forward_context():
                _write_scores(self.writer, module, scores, labels, epoch)
                _write_routing(self.writer, module, *shown, epoch)
        self.writer.flush()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Closes the event file, if possible: Ctrl-C may have come while TensorBoard held a lock, and left it held."""
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(_CLOSING)
        threading.excepthook = self.hook

    def _open(self, purge_step: int | None = None) -> SummaryWriter:
        """A writer whose thread doesn't print an OSError: the writer raises it again, and the run names its folder."""

        def print_others(failure: threading.ExceptHookArgs) -> None:
            if not isinstance(failure.exc_value, OSError):
                self.hook(failure)

        threading.excepthook = print_others
        return SummaryWriter(folder_of(self.planned), purge_step=purge_step)

    def _close(self) -> None:
        if self.writer is not None:
            with suppress(OSError):  # the run ends with an error already
                self.writer.close()

    def finish(self, record: records.Record) -> None:
        """Writes the maximum, its first epoch, and the end of the HParams page's session."""
        writer = self.writer or self._open()
        for tag, value in final_scalars(record).items():
            writer.add_scalar(tag, value, record.first_epoch_to_max)
        _, _, session_end = hparams_summaries({}, {})  # type: ignore[no-untyped-call]
        _events(writer).add_summary(session_end)
        try:
            writer.close()
        finally:
            threading.excepthook = self.hook

    def _write_configuration(self, writer: SummaryWriter, module: CapsuleModule) -> None:
        """Hyperparameters, command, parameters, the network's graph."""
        shown = {key: str(one) if type(one) is int else one for key, one in hyperparameters(self.planned).items()}
        sessions = hparams.hparams_pb(shown, trial_id=display_name(self.planned))  # whole numbers as 3, not 3.0000
        _events(writer).add_summary(sessions)
        if self.planned.command:
            writer.add_text("command", f"`{self.planned.command}`")
        writer.add_text("parameters", parameter_table(module))
        data = self.planned.config.data
        untraced = suppress(RuntimeError, TypeError, ValueError)  # a network that can't be traced goes without a graph
        with untraced, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            writer.add_graph(TracedNetwork(module), torch.zeros(1, data.channels, data.size, data.size))


def folder_of(planned: Plan) -> Path:
    """Where a run's event files are: its name, without blanks."""
    return planned.folder.parent / FOLDER / display_name(planned).replace(" · ", "_").replace(" ", "-")


def event_folders(logs: Path, key: str) -> list[Path]:
    """The folders with the event files of the run with this key, at most one but for equal beginnings of keys."""
    return sorted((logs / FOLDER).glob(f"*_{key[:6]}"))


def has_histograms(epoch: int, epochs: int) -> bool:
    """Whether an epoch gets histograms and images: the first ten, each tenth and the last, so that files stay small."""
    return epoch <= 10 or epoch % 10 == 0 or epoch == epochs


def examples(loader: DeviceLoader, classes: int) -> tuple[Tensor, Tensor]:
    """The first image of each of the first EXAMPLES classes, and their labels."""
    present = multi_hot(loader.labels, classes)
    first = present.argmax(dim=0)[present.any(dim=0)][:EXAMPLES]
    return loader.images[first].float() / 255, loader.labels[first]


def parameter_table(module: CapsuleModule) -> str:
    """The network's parameters in Markdown, and the sum of the trainable ones."""
    lines = ["| parameter | shape | number |", "| :-- | --: | --: |"]
    for name, parameter in module.named_parameters():
        shape = "×".join(map(str, parameter.shape)) or "1"
        fixed = "" if parameter.requires_grad else ", not trained"
        lines.append(f"| {name} | {shape} | {parameter.numel():,}{fixed} |")
    return "\n".join([*lines, f"| **together** | | **{module.trained_parameters:,}** |"])


class TracedNetwork(nn.Module):
    """A copy of the network and its decoder on the CPU, with the reference routing, for the graph."""

    def __init__(self, module: CapsuleModule) -> None:
        super().__init__()
        self.network, self.decoder = copy.deepcopy((module.network, module.decoder))
        fast.disable(self.cpu().eval())

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Scores, and the reconstruction of the class with the greatest."""
        scores, poses = self.network(images)
        return (scores,) if self.decoder is None else (scores, self.decoder(poses, scores.argmax(dim=1)))


def _write_histogram(writer: SummaryWriter, tag: str, values: Tensor, epoch: int) -> None:
    """Adds the histogram of the finite values, if there are any."""
    finite = values[values.isfinite()]
    if len(finite):
        writer.add_histogram(tag, finite.float(), epoch, BINS)


def _write_scores(writer: SummaryWriter, module: CapsuleModule, scores: Tensor, labels: Tensor, epoch: int) -> None:
    """Histograms of the scores [N, J], of the correct classes and of the others."""
    kind = getattr(module.network, "scores", None)
    if not isinstance(kind, Scores):
        return
    correct = multi_hot(labels, scores.shape[1]).bool()
    for name, values in (("correct", scores[correct]), ("others", scores[~correct])):
        _write_histogram(writer, f"{_SCORES[kind.presence]}/{name}", values, epoch)


def _write_routing(writer: SummaryWriter, module: CapsuleModule, pixels: Tensor, labels: Tensor, epoch: int) -> None:
    """Routing coefficients, their entropies, maps of them, and the reconstructions of some images."""
    coefficients = defaultdict[str, list[Tensor]](list)
    drawn, maps = [], []
    for image, label in zip(pixels[:, None], labels[:, None], strict=True):  # one by one, for the memory of the votes
        observed = capture(module, image)
        for layer in observed.layers:
            for number, distributions in enumerate(layer.coefficients, start=1):
                coefficients[f"{layer.name}/iteration_{number}"].append(distributions.float().cpu())
        maps += _maps(observed, label, image.shape[-1])
        if module.decoder is not None:
            drawn.append(module.decoder(observed.prediction.poses, label).float())
    for name, values in coefficients.items():
        writer.add_scalar(f"routing_entropy/{name}", entropy(torch.cat(values)), epoch)
        _write_histogram(writer, f"routing_coefficients/{name}", torch.cat(values), epoch)
    if maps:
        columns = torch.cat([pixels.mean(dim=1, keepdim=True), torch.stack(maps)], dim=2)
        writer.add_figure("routing", _titled(torch.cat(list(columns), dim=2)[0], labels, pixels.shape[-1]), epoch)
    if drawn:
        columns = torch.cat([pixels, torch.cat(drawn)], dim=2)  # each image above its reconstruction
        writer.add_image("reconstructions", torch.cat(list(columns), dim=2), epoch)


def _maps(observed: Capture, label: Tensor, size: int) -> list[Tensor]:
    """A picture of one image's coefficients to its class, [1, layers · size, size]; none without children at positions.

    A map a layer, one below the other: the mean over the types of children, from the least, black, to the greatest,
    white. Of several classes it is the first.
    """
    classes = multi_hot(label, observed.prediction.scores.shape[1]).argmax(dim=1)
    maps = []
    for coefficients in observed.coefficients_to(classes) if observed.layers else []:
        heat = coefficients.float().mean(dim=-1)[:, None]  # [1, 1, H, W]
        if heat.shape[-1] > 1:
            heat = (heat - heat.amin()) / (heat.amax() - heat.amin()).clamp(min=1e-12)
            maps.append(nn.functional.interpolate(heat, size=(size, size), mode="nearest")[0])
    return [torch.cat(maps, dim=1)] if maps else []


def _titled(picture: Tensor, labels: Tensor, size: int) -> Figure:
    """A picture [rows · size, columns · size] of images and maps from 0 to 1, each pixel twice, with its axes."""
    rows, columns = (length // size for length in picture.shape)
    width, height = MARGIN + 2 * picture.shape[1], 2 * MARGIN + 2 * picture.shape[0]
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axis = figure.add_axes((MARGIN / width, MARGIN / height, 1 - MARGIN / width, 1 - 2 * MARGIN / height))
    axis.imshow(picture.cpu(), cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    ticks = [size * (number + 0.5) - 0.5 for number in range(max(rows, columns))]
    names = ["image", *(f"layer {layer}" if rows > 2 else "children" for layer in range(1, rows))]
    classes = labels if labels.ndim == 1 else labels.argmax(dim=1)
    axis.set_xticks(ticks[:columns], [str(label) for label in classes.tolist()], fontsize=8)
    axis.set_yticks(ticks[:rows], names, fontsize=8)
    axis.set_xlabel("class", fontsize=8)
    axis.set_title("coefficients to the class, mean over types of children, black: least, white: greatest", fontsize=7)
    return figure


@contextmanager
def _isolated(module: CapsuleModule) -> Iterator[None]:
    """Without gradients, and with the random states restored at the end."""
    devices = [module.device] if module.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        yield


def _events(writer: SummaryWriter) -> FileWriter:
    events = writer.file_writer
    assert isinstance(events, FileWriter)
    return events

"""A run's TensorBoard pages: curves, reconstructions, routing coefficients, what the HParams page compares.

All of it is written between two epochs, into a folder beside those of the runs' checkpoints, tensorboard/NAME, since
TensorBoard calls a run by its folder: `make tensorboard` shows them all. Nothing of it changes the run's numbers. Steps
are epochs, counted from 1. TensorBoard sorts by name and opens the first two groups: accuracy and loss.

| where   | what                                                                                              |
|---------|---------------------------------------------------------------------------------------------------|
| scalars | accuracies in percent, losses, learning rate, peak memory in MB, seconds; at the end the maximum  |
| images  | one evaluated image of each class: `reconstructions`, above the image, below its reconstruction;  |
|         | `routing`, below it the coefficients to its class, by position of the child, layer by layer       |
| hparams | the configuration, and the accuracies                                                             |
"""

import threading
from contextlib import suppress
from pathlib import Path

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from tensorboard.plugins.hparams import summary_v2 as hparams
from torch import Tensor, nn
from torch.utils.tensorboard import FileWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams as hparams_summaries

from capsexp.data.loader import BatchGroups, DeviceLoader
from capsexp.nn.losses import multi_hot
from capsexp.run import records
from capsexp.run.environment import peak_memory_mb
from capsexp.run.loggers import RunLogger, display_name, final_scalars, hyperparameters, scalars
from capsexp.run.module import CapsuleModule
from capsexp.run.observe import Observed, observe
from capsexp.run.plan import Plan

FOLDER = "tensorboard"  # below paths.logs
EXAMPLES = 10  # images of which reconstructions and routing coefficients are shown, each of another class
MARGIN = 56  # pixels at the left of routing's images, above and below them
_CLOSING = 2.0  # seconds that closing the file of an interrupted run may take


class TensorBoard(RunLogger):
    """Writes a run's event files.

    A run that starts at its beginning removes the event files of earlier attempts; one that is resumed after epoch n
    hides what they hold of later epochs. Lightning's TensorBoardLogger would leave the first, write an hparams.yaml and
    add a nameless entry to the HParams page that is finished from the start.
    """

    def __init__(self, planned: Plan) -> None:
        self.planned = planned
        self.writer: SummaryWriter | None = None
        self.hook = threading.excepthook

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Opens the event file, and writes the hyperparameters before the first epoch."""
        assert isinstance(module, CapsuleModule)
        done = len(module.history)
        if not done:
            for earlier in folder_of(self.planned).glob("events.out.tfevents.*"):
                earlier.unlink()
        self.writer = self._open(purge_step=done + 1)
        if not done:
            shown = {key: str(one) if type(one) is int else one for key, one in hyperparameters(self.planned).items()}
            sessions = hparams.hparams_pb(shown, trial_id=display_name(self.planned))  # whole numbers as 3, not 3.0000
            _events(self.writer).add_summary(sessions)
            self.writer.flush()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the epoch."""
        assert isinstance(module, CapsuleModule)
        assert self.writer is not None
        epoch = len(module.history)
        memory = peak_memory_mb(self.planned.device)
        for tag, value in scalars(module.history[-1], memory).items():
            self.writer.add_scalar(tag, value, epoch)
        if has_pictures(epoch, self.planned.epochs):
            assert isinstance(trainer.val_dataloaders, BatchGroups)
            shown = examples(trainer.val_dataloaders.loader, self.planned.config.data.classes)
            with torch.no_grad(), trainer.precision_plugin.forward_context():
                _write_pictures(self.writer, module, *shown, epoch)
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


def folder_of(planned: Plan) -> Path:
    """Where a run's event files are: its name, without blanks."""
    return planned.folder.parent / FOLDER / display_name(planned).replace(" · ", "_").replace(" ", "-")


def event_folders(logs: Path, key: str) -> list[Path]:
    """The folders with the event files of the run with this key, at most one but for equal beginnings of keys."""
    return sorted((logs / FOLDER).glob(f"*_{key[:6]}"))


def has_pictures(epoch: int, epochs: int) -> bool:
    """Whether an epoch gets images: the first ten, each tenth and the last, so that files stay small."""
    return epoch <= 10 or epoch % 10 == 0 or epoch == epochs


def examples(loader: DeviceLoader, classes: int) -> tuple[Tensor, Tensor]:
    """The first image of each of the first EXAMPLES classes, and their labels."""
    present = multi_hot(loader.labels, classes)
    first = present.argmax(dim=0)[present.any(dim=0)][:EXAMPLES]
    return loader.images[first].float() / 255, loader.labels[first]


def _write_pictures(writer: SummaryWriter, module: CapsuleModule, pixels: Tensor, labels: Tensor, epoch: int) -> None:
    """Maps of routing coefficients, and reconstructions, of some images."""
    drawn, maps = [], []
    for image, label in zip(pixels[:, None], labels[:, None], strict=True):  # one by one, for the memory of the votes
        observed = observe(module, image)
        maps += _maps(observed, label, image.shape[-1])
        if module.decoder is not None:
            drawn.append(module.decoder(observed.prediction.poses, label).float())
    if maps:
        columns = torch.cat([pixels.mean(dim=1, keepdim=True), torch.stack(maps)], dim=2)
        writer.add_figure("routing", _titled(torch.cat(list(columns), dim=2)[0], labels, pixels.shape[-1]), epoch)
    if drawn:
        columns = torch.cat([pixels, torch.cat(drawn)], dim=2)  # each image above its reconstruction
        writer.add_image("reconstructions", torch.cat(list(columns), dim=2), epoch)


def _maps(observed: Observed, label: Tensor, size: int) -> list[Tensor]:
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


def _events(writer: SummaryWriter) -> FileWriter:
    events = writer.file_writer
    assert isinstance(events, FileWriter)
    return events

"""A run's TensorBoard pages: curves, reconstructions, what the HParams page compares.

All of it is written between two epochs, into a folder beside those of the runs' checkpoints, tensorboard/NAME, since
TensorBoard calls a run by its folder: `make tensorboard` shows them all. Nothing of it changes the run's numbers. Steps
are epochs, counted from 1. TensorBoard sorts by name and opens the first two groups: accuracy and loss.

| where   | what                                                                                              |
|---------|---------------------------------------------------------------------------------------------------|
| scalars | accuracies in percent, losses, reconstruction error, learning rate, peak memory in MB, seconds;   |
|         | at the end the maximum                                                                            |
| images  | `reconstructions`: an evaluated image of each class, and below it its reconstruction              |
| hparams | the keys in which many runs differ, of one those typed; four, which leave accuracies in view      |
| text    | the command, and the record                                                                       |
"""

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor, nn
from torch.utils.tensorboard.summary import hparams as hparams_summaries
from torch.utils.tensorboard.summary import image as image_summary
from torch.utils.tensorboard.summary import text

from capsexp.data.loader import BatchGroups, DeviceLoader
from capsexp.errors import DONE, InputError
from capsexp.files import opened
from capsexp.nn.losses import multi_hot
from capsexp.routing.observe import observe
from capsexp.run.loggers import RunLogger, display_name
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan
from capsexp.run.records import Record

FOLDER = "tensorboard"  # below paths.logs
UNCOMPARED = ("budget", "trainer", "-")  # words of a command that HParams leaves out
COLUMNS = 4  # keys on its page, behind which an accuracy is in view at 1,280 px
EXAMPLES = 10  # images of which reconstructions are shown, each of another class


class TensorBoard(RunLogger):
    """Writes a run's event files.

    A run that starts at its beginning removes the event files of earlier attempts; one that is resumed after epoch n
    hides what they hold of later epochs. Lightning's TensorBoardLogger would leave the first, write an hparams.yaml and
    add a nameless entry to the HParams page that is finished from the start. It and torch's SummaryWriter write in a
    thread, which prints the error of a full disk, and has a lock that Ctrl-C can leave locked.
    """

    def __init__(self, planned: Plan) -> None:
        super().__init__(planned)
        folder = folder_of(planned)
        if folder.is_symlink():
            raise InputError(f"{folder}: a link; move it away")
        # TensorBoard reads the files of a folder in the order of their names.
        self.file = folder / f"events.out.tfevents.{time.time_ns()}"

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begins the event file, with what was typed if it is the run's first."""
        assert isinstance(module, CapsuleModule)
        done = len(module.history)
        if not done:
            for earlier in self.file.parent.glob("events.out.tfevents.*"):
                earlier.unlink()
        self._append(0, file_version="brain.Event:2")
        self._append(done + 1, session_log=SessionLog(status=SessionLog.START))
        if not done:
            words = shlex.split(self.planned.command or "")
            typed = {key.lstrip("+"): value for key, equals, value in (word.partition("=") for word in words) if equals}
            keys = [*self.planned.varied] or [key for key in typed if not key.startswith(UNCOMPARED)]
            compared = {key: typed[key] for key in keys[:COLUMNS] if key in typed}
            self._append(0, summary=hparams.hparams_pb(compared, trial_id=display_name(self.planned)))
            self._append(0, summary=text("command", self.planned.command or ""))  # type: ignore[no-untyped-call]

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_epoch_end(trainer, module)
        assert isinstance(module, CapsuleModule)
        epoch = len(module.history)
        if module.decoder is not None and has_pictures(epoch, self.planned.epochs):
            assert isinstance(trainer.val_dataloaders, BatchGroups)
            images = examples(trainer.val_dataloaders.loader, self.planned.config.data.classes)
            with torch.no_grad(), trainer.precision_plugin.forward_context():
                picture = reconstructions(module, module.decoder, *images)
            self._append(epoch, summary=image_summary("reconstructions", picture, dataformats="CHW"))  # type: ignore[no-untyped-call]

    def finish(self, record: Record) -> None:
        super().finish(record)
        fields = {name: value for name, value in asdict(record).items() if name not in ("epochs", "correct")}
        self._append(0, summary=text("record", f"```\n{json.dumps(fields, indent=1)}\n```"))  # type: ignore[no-untyped-call]

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        self._append(epoch, summary=Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in numbers.items()]))

    def close(self, exit_code: int) -> None:
        """Writes the end of the HParams page's session, if the run is done."""
        if exit_code == DONE:
            _, _, session_end = hparams_summaries({}, {})  # type: ignore[no-untyped-call]
            self._append(0, summary=session_end)

    def _append(self, step: int, **content: Any) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        event = Event(wall_time=time.time(), step=step, **content)
        with opened(self.file, "ab") as stream:
            RecordWriter(stream).write(event.SerializeToString())


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


def reconstructions(module: CapsuleModule, decoder: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
    """Images [B, channels, H, W] side by side, each above its reconstruction: [channels, 2 H, B W]."""
    columns = []
    for image, label in zip(pixels[:, None], labels[:, None], strict=True):  # one at a time, for the memory
        drawn = decoder(observe(module, image).prediction.poses, label).float()
        columns.append(torch.cat([image, drawn], dim=2)[0])
    return torch.cat(columns, dim=2)

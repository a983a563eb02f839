"""Checkpoints that a kill can't spoil and that load without running code from them."""

import io
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from capsexp.errors import InputError
from capsexp.files import write_atomically
from capsexp.run import records
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan

LAST, BEST = "last.ckpt", "best.ckpt"

FORMAT = 1  # of what a checkpoint says of its run; raised when capsexp can't read what it wrote before


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, to the disk, then renames; reads tensors and plain containers only."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Either the whole checkpoint stands at `path` afterwards, or what stood there before."""
        _save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """See `load`."""
        return load(Path(path), map_location)


class EpochCheckpoint(Checkpoint):
    """Writes `last.ckpt` after every epoch, and `best.ckpt` when an epoch is more accurate than all before.

    Under protocol paper "best" is chosen on the test set, as the papers choose their maxima; under heldout, on the
    held-out tenth. Lightning runs it after the module's own end of the epoch, so history and schedule are current.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The end of an epoch, its evaluation included."""
        assert isinstance(module, CapsuleModule)
        accuracies = [row[f"{module.evaluated}_accuracy"] for row in module.history]
        if accuracies[-1] > max(accuracies[:-1], default=-1):
            trainer.save_checkpoint(self.folder / BEST, weights_only=True)
        trainer.save_checkpoint(self.folder / LAST)


def about(planned: Plan) -> records.Json:
    """What a checkpoint says of its run: see capsexp.inspect.restore.About."""
    return {
        "format": FORMAT,
        "name": planned.name,
        "config": records.described(planned.config),
        "precision": planned.precision,
        "note": planned.note,
    }


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint as a dictionary; raises InputError when there is none, it can't be read, or it is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's, about files that it then refuses
            checkpoint: dict[str, Any] = torch.load(io.BytesIO(content), map_location, weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        raise InputError(f"{path}: {_why_not(content, error)}") from None
    return checkpoint


def _why_not(content: bytes, error: Exception) -> str:
    """Why a file isn't a checkpoint. Torch's own words are about itself, or invite to run what the file says."""
    if not content:
        return "empty, not a checkpoint"
    if refused := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: it holds more than tensors and plain containers ({refused[1]})"
    return "not a checkpoint, or damaged"


def drop_optimizer(path: Path) -> None:
    """Takes the optimiser's state, two thirds of the file under Adam, out of a finished run's checkpoint."""
    checkpoint = load(path)
    if checkpoint.pop("optimizer_states", None) is not None:
        _save(checkpoint, path)


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    """In memory first: on a full disk torch's writer raises errors of its own, which don't say what is full."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    write_atomically(path, lambda stream: stream.write(content.getbuffer()))

"""Checkpoints that survive a kill at any moment and load without running code from them."""

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
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import BEST, LAST


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to disk, then renames; reads tensors and plain containers only.

    Lightning's own writes to the system's temporary folder and moves from there: never flushed to disk, and copied,
    which a kill can interrupt, where that folder is on another file system.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Replaces `path` by the whole checkpoint, or leaves it as it was."""
        _save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """See `load`."""
        return load(Path(path), map_location)


class EpochCheckpoint(Checkpoint):
    """Writes `last.ckpt` after every epoch, and `best.ckpt` when an epoch is more accurate than all before.

    Under protocol paper the best epoch is chosen on the test set, as in the papers; under heldout, on the held-out
    tenth. Lightning calls it after the module's own on_train_epoch_end, so history and schedule are current.

    Lightning's ModelCheckpoint writes nothing unless the trainer has counted optimisation steps, which replays of a
    CUDA graph bypass, and forgets the best accuracy when a run is resumed in another folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the epoch's checkpoints, after its evaluation."""
        assert isinstance(module, CapsuleModule)
        accuracies = [row[f"{module.planned.eval_split}_accuracy"] for row in module.history]
        if accuracies[-1] > max(accuracies[:-1], default=-1):
            trainer.save_checkpoint(self.folder / BEST, weights_only=True)
        trainer.save_checkpoint(self.folder / LAST)


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint as a dictionary; raises InputError for a file that is missing, unreadable or damaged."""
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
        raise InputError(f"{path}: {_reason(content, error)}") from None
    return checkpoint


def _reason(content: bytes, error: Exception) -> str:
    """Why a file isn't a checkpoint. Torch's own messages suggest loading it with code and all."""
    if not content:
        return "empty, not a checkpoint"
    if refused := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: it holds more than tensors and plain containers ({refused[1]})"
    return "not a checkpoint, or damaged"


def drop_optimizer(path: Path) -> None:
    """Removes the optimiser's state, two thirds of the file under Adam, from a finished run's checkpoint."""
    checkpoint = load(path)
    if checkpoint.pop("optimizer_states", None) is not None:
        _save(checkpoint, path)


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    """Serialises in memory first: torch's writer doesn't say that a disk is full."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    write_atomically(path, lambda stream: stream.write(content.getbuffer()))

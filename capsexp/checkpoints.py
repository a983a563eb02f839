"""Checkpoints that a kill can't spoil and that load without running code from them."""

import io
import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from capsexp.errors import InputError, one_line
from capsexp.files import write_atomically
from capsexp.lightning import CapsuleModule

LAST, BEST = "last.ckpt", "best.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, to the disk, then renames; reads tensors and plain containers only."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Either the whole checkpoint stands at `path` afterwards, or what stood there before."""
        write_atomically(Path(path), lambda stream: torch.save(checkpoint, stream))

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


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint as a dictionary; raises InputError when there is none or it is damaged."""
    try:
        checkpoint: dict[str, Any] = torch.load(io.BytesIO(path.read_bytes()), map_location, weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        raise InputError(f"{path}: not a checkpoint, or damaged ({one_line(error)})") from None
    return checkpoint


def drop_optimizer(path: Path) -> None:
    """Takes the optimiser's state, two thirds of the file under Adam, out of a finished run's checkpoint."""
    checkpoint = load(path)
    if checkpoint.pop("optimizer_states", None) is not None:
        write_atomically(path, lambda stream: torch.save(checkpoint, stream))

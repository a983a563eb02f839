"""Checkpoints that survive a kill at any moment and load without running code from them."""

import copy
import io
import os
import re
import time
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from capsexp import Log
from capsexp.errors import DamagedError, InputError
from capsexp.files import write_file
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import BEFORE, BEST, LAST, Plan

#: Seconds from one writing of checkpoints to the next, where epochs are shorter.
INTERVAL = 30.0

#: Checkpoints in memory, by the file that they are for.
Held = dict[Path, dict[str, Any]]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to disk, then renames; reads tensors and plain containers only.

    Lightning's own writes to the system's temporary folder and moves from there: never flushed to disk, and copied,
    which a kill can interrupt, where that folder is on another file system.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Replaces `path` by the whole checkpoint, or leaves it as it was; of LAST, the one before it is kept.

        With `storage_options`, the checkpoint is copied to it instead.
        """
        path = Path(path)
        if storage_options is not None:
            storage_options[path] = copy.deepcopy(checkpoint)
            return
        if path.name == LAST:
            _keep_before(path)
        _save(checkpoint, path)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """See `load`."""
        return load(Path(path), map_location)


class EpochCheckpoint(Checkpoint):
    """Holds `last.ckpt` after every epoch, and `best.ckpt` of the most accurate so far, and writes them by time.

    They are written at the end of the first epoch, of the last one, and of each that ends INTERVAL seconds or more
    after the last writing, and when the run is interrupted: a kill loses the current epoch and less than INTERVAL
    before it. Writing takes as long as a GPU's epoch.

    Under protocol paper the best epoch is chosen on the test set, as in the papers; under heldout, on the held-out
    tenth. Lightning calls it after the module's own on_train_epoch_end, so history and schedule are current.

    Lightning's ModelCheckpoint writes nothing unless the trainer has counted optimisation steps, which replays of a
    CUDA graph bypass, and forgets the best accuracy when a run is resumed in another folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: Held = {}
        self.written: float | None = None  # when

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Holds the epoch's checkpoints, after its evaluation, and writes them if it is time."""
        assert isinstance(module, CapsuleModule)
        accuracies = [row[f"{module.planned.eval_split}_accuracy"] for row in module.history]
        if accuracies[-1] > max(accuracies[:-1], default=-1):
            trainer.save_checkpoint(self.folder / BEST, weights_only=True, storage_options=self.held)
        trainer.save_checkpoint(self.folder / LAST, storage_options=self.held)
        due = self.written is None or time.monotonic() - self.written >= INTERVAL
        if due or len(module.history) >= module.planned.epochs:
            self._write(trainer)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Writes what is held: an interrupted run continues after its last whole epoch."""
        self._write(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        """Writes what is held, once: not again where that fails."""
        held, self.held = self.held, {}
        for path in sorted(held, key=lambda path: path.name == LAST):  # BEST first: from LAST on, no epoch is repeated
            trainer.strategy.checkpoint_io.save_checkpoint(held[path], path)
        self.written = time.monotonic()


def load(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """A checkpoint as a dictionary; raises DamagedError for a file that is missing or damaged, InputError without
    the permission to read it.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DamagedError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    try:
        _check_crcs(content)
        with warnings.catch_warnings(action="ignore"):  # torch's, about files that it then refuses
            checkpoint: dict[str, Any] = torch.load(io.BytesIO(content), map_location, weights_only=True)
    except Exception as error:  # zipfile and torch raise half a dozen kinds for a damaged file
        raise DamagedError(f"{path}: {_reason(content, error)}") from None
    return checkpoint


def resumable(planned: Plan, log: Log) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that the run continues from: the last, or where that is damaged the one before it, or None.

    A damaged one is removed, so that it isn't kept as the one before the next.
    """
    damaged = False
    for path in (planned.folder / LAST, planned.folder / BEFORE):
        if not path.exists():
            continue
        try:
            return path, _of_run(planned, path)
        except DamagedError as error:
            log(f"{planned.name}: {error}; removed")
            path.unlink(missing_ok=True)
            damaged = True
    if damaged:
        log(f"{planned.name}: no checkpoint is left; starts over")
    return None


def drop_optimizer(folder: Path) -> None:
    """Removes what only a run that goes on needs: the optimiser's state, two thirds of LAST under Adam, and BEFORE."""
    checkpoint = load(folder / LAST)
    if checkpoint.pop("optimizer_states", None) is not None:
        _save(checkpoint, folder / LAST)
    (folder / BEFORE).unlink(missing_ok=True)


def _of_run(planned: Plan, path: Path) -> dict[str, Any]:
    """A checkpoint with all that the run needs to go on; raises DamagedError."""
    checkpoint = load(path)
    header = checkpoint.get("capsexp") if isinstance(checkpoint, dict) else None
    if not isinstance(header, dict) or header.get("name") != planned.name:
        raise DamagedError(f"{path}: not of this run")
    if planned.config.protocol == "heldout":
        load(planned.folder / BEST)  # is tested at the end
    return checkpoint


def _check_crcs(content: bytes) -> None:
    """Raises BadZipFile for a member whose bits don't give its CRC-32: torch writes them, and reads without a look.

    Members are stored as they are, so that memory is limited by the file's size.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if packed or sum(member.file_size for member in members) > len(content) or archive.testzip():
            raise zipfile.BadZipFile


def _reason(content: bytes, error: Exception) -> str:
    """Why a file isn't a checkpoint. Torch's own messages suggest loading it with code and all."""
    if not content:
        return "empty, not a checkpoint"
    if refused := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: it holds more than tensors and plain containers ({refused[1]})"
    return "not a checkpoint, or damaged"


def _keep_before(path: Path) -> None:
    """Makes the present checkpoint also the one before the next: `path` itself is there at every moment.

    Does nothing where there is none, or no hard links.
    """
    link, before = path.with_name(f".{BEFORE}.part"), path.with_name(BEFORE)
    with suppress(OSError):
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, before)


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    """Serialises in memory first: torch's writer doesn't say that a disk is full."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    write_file(path, content.getbuffer())

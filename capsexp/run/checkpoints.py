"""Checkpoints that survive a kill at any moment and load without running code from them."""

import io
import os
import re
import time
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytorch_lightning as pl
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from capsexp.cli import print_line
from capsexp.errors import DamagedError, InputError, RunError, first_line, printable, raise_interruption
from capsexp.files import opened, write_file
from capsexp.run import records
from capsexp.run.memory import is_out_of_memory
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import BEFORE, BEST, LAST, Plan

#: Seconds from one writing of checkpoints to the next, where epochs are shorter.
INTERVAL = 30.0


class PendingCheckpointIO(TorchCheckpointIO):
    """Keeps checkpoints in memory until they are written; reads tensors and plain containers only.

    Lightning's own writes to the system's temporary folder and moves from there: never flushed to disk, and copied,
    which a kill can interrupt, where that folder is on another file system.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[Path, dict[str, Any]] = {}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Keeps a copy, in the host's memory."""
        copied = apply_to_collection(checkpoint, torch.Tensor, lambda tensor: tensor.to("cpu", copy=True))
        self.pending[Path(path)] = copied

    def remove_checkpoint(self, path: str | Path) -> None:
        self.pending.pop(Path(path), None)
        super().remove_checkpoint(Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return load(Path(path))

    def write(self) -> None:
        """Writes the pending ones; not again where that fails. Each file is replaced whole, or left as it was.

        BEST first: from LAST on, no epoch is repeated. Of LAST, the one before it is kept. After a KeyboardInterrupt
        all are still pending.
        """
        pending, self.pending = self.pending, {}
        try:
            for path in sorted(pending, key=lambda path: path.name == LAST):
                if path.name == LAST:
                    _keep_before(path)
                _save(pending[path], path)
        except KeyboardInterrupt:
            self.pending = pending
            raise


class EpochCheckpoint(Checkpoint):
    """Keeps `last.ckpt` after every epoch, and `best.ckpt` of the most accurate so far, and writes them by time.

    They are written at the end of the first epoch, of the last one, and of each that ends INTERVAL seconds or more
    after the last writing, and when the run is interrupted: a kill loses the current epoch and less than INTERVAL
    before it. Writing takes as long as a GPU's epoch.

    Under protocol paper the best epoch is chosen on the test set, as in the papers; under heldout, on the held-out
    tenth. Lightning calls it after the module's own on_train_epoch_end, so history and schedule are current.

    Lightning's ModelCheckpoint forgets the best accuracy when a run is resumed in another folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, PendingCheckpointIO()
        self.written: float | None = None  # when

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, CapsuleModule)
        if module.accuracies[-1] > max(module.accuracies[:-1], default=-1):
            trainer.save_checkpoint(self.folder / BEST, weights_only=True)
        trainer.save_checkpoint(self.folder / LAST)
        due = self.written is None or time.monotonic() - self.written >= INTERVAL
        if due or len(module.history) >= module.planned.epochs:
            self.files.write()
            self.written = time.monotonic()

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes what is pending: of a callback that ended the training, or that writes checkpoints of its own."""
        self.files.write()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Writes what is pending: an interrupted run continues after its last whole epoch."""
        self.files.write()


def load(path: Path) -> dict[str, Any]:
    """A checkpoint as a dictionary, in the host's memory.

    Raises DamagedError for a file that is missing or whose bits aren't those that were written, InputError for one that
    can't be read or holds more than tensors and plain containers, RunError where memory is short.
    """
    try:  # torch warns of some files before it refuses them
        with opened(path, "rb") as stream, warnings.catch_warnings(action="ignore"):
            _check_crcs(stream, path.stat().st_size)
            stream.seek(0)
            return torch.load(stream, "cpu", weights_only=True)
    except FileNotFoundError:
        raise DamagedError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except InputError:
        raise
    except Exception as error:  # torch raises half a dozen kinds for what isn't a checkpoint
        raise_interruption(error)
        if is_out_of_memory(error):
            raise RunError(f"{path}: can't be loaded: out of memory") from error
        if refused := re.search(r"GLOBAL (\S+)", str(error)):  # torch's own message suggests loading it with its code
            what = f"it holds more than tensors and plain containers ({printable(refused[1])})"
            raise InputError(f"{path}: refused: {what}") from None
        if isinstance(error, RuntimeError) and "PytorchStreamReader failed" not in str(error):  # of a newer torch
            raise InputError(f"{path}: can't be loaded: {printable(first_line(error))}") from error
        reason = "not a checkpoint, or damaged" if path.stat().st_size else "empty, not a checkpoint"
        raise DamagedError(f"{path}: {reason}") from None


def resumable(planned: Plan) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that the run continues from: the last, or where that is damaged the one before it, or None.

    Under protocol heldout, BEST is needed beside it: it is tested at the end. Raises as `load`, but renames
    damaged files.
    """
    last, before, best = (planned.folder / name for name in (LAST, BEFORE, BEST))
    if not (last.exists() or before.exists()):
        return None
    tested = _whole(planned, best)
    for path in (last, before):
        checkpoint = _whole(planned, path)
        if checkpoint and (planned.config.protocol != "heldout" or (tested and _fits(tested, checkpoint))):
            return path, checkpoint
    print_line(f"{planned.name}: no checkpoint is left; starts over")
    return None


def drop_optimizer(folder: Path) -> None:
    """Removes what only a run that goes on needs: the optimiser's state, two thirds of LAST under Adam, and BEFORE."""
    checkpoint = load(folder / LAST)
    if checkpoint.pop("optimizer_states", None) is not None:
        _save(checkpoint, folder / LAST)
    (folder / BEFORE).unlink(missing_ok=True)


def _whole(planned: Plan, path: Path) -> dict[str, Any] | None:
    """A checkpoint of the run; None for one that is missing, or damaged, which is then renamed."""
    if not path.exists():
        return None
    try:
        checkpoint = load(path)
    except DamagedError as error:
        aside = path.with_name(f"{path.name}.damaged")
        with suppress(FileNotFoundError):  # another process of the run was faster
            path.replace(aside)
        print_line(f"{planned.name}: {error}; renamed to {aside.name}")
        return None
    header = checkpoint.get("capsexp") if isinstance(checkpoint, dict) else None
    if not isinstance(header, dict) or header.get("name") != planned.name:
        raise InputError(f"{path}: not of this run; rerun=true starts over")
    accuracy, history = f"{planned.eval_split}_accuracy", checkpoint.get("history")
    rows = history if isinstance(history, list) and history else [None]
    whole = all(isinstance(row, dict) and isinstance(row.get(accuracy), float) for row in rows)
    goes_on = path.name != BEST and len(rows) < planned.epochs and not checkpoint.get("stopped")
    if not whole or (goes_on and "optimizer_states" not in checkpoint):
        raise InputError(f"{path}: not what a run continues from; rerun=true starts over")
    return checkpoint


def _fits(best: dict[str, Any], last: dict[str, Any]) -> bool:
    """Whether BEST holds the best of LAST's epochs, or a later one, which a run that goes on from LAST repeats."""
    epoch, accuracies = len(best["history"]), [row["heldout_accuracy"] for row in last["history"]]
    return epoch > len(accuracies) or epoch == records.best_epoch(accuracies)


def _check_crcs(stream: BinaryIO, size: int) -> None:
    """Raises BadZipFile for a member whose bits don't give its CRC-32: torch writes them, but doesn't check them.

    Members are stored as they are, so that memory is limited by the file's size.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > size or archive.testzip():
                raise zipfile.BadZipFile
    except (NotImplementedError, RuntimeError) as error:  # of a flipped bit among a member's flags
        raise zipfile.BadZipFile from error


def _keep_before(path: Path) -> None:
    """Makes the present checkpoint also the one before the next: `path` itself is there at every moment.

    Does nothing where there is none, or no hard links.
    """
    link, before = path.with_name(f".{BEFORE}.part"), path.with_name(BEFORE)
    with suppress(OSError):
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, before)
        link.unlink(missing_ok=True)  # left by os.replace where both were the same file already


def _save(checkpoint: dict[str, Any], path: Path) -> None:
    """Serialises in memory first: torch's writer doesn't say that a disk is full."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    write_file(path, content.getbuffer())

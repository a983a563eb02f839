"""What TensorBoard shows of a run: written after each epoch, into the folder of its checkpoints."""

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from tensorboard.plugins.hparams import summary_v2 as hparams
from torch.utils.tensorboard import SummaryWriter

from capsexp import records
from capsexp.lightning import CapsuleModule
from capsexp.plan import Plan
from capsexp.provenance import peak_memory_mb

#: What the HParams page compares, under the names that a record has for them.
METRICS = ("max_accuracy", "first_epoch_to_max", "last_accuracy", "heldout_accuracy")


class Board(Callback):
    """Writes one run's event files; of several processes that train it, the first does.

    Steps are epochs, 1 is the first. A run that starts at its beginning removes the event files of an earlier attempt;
    one that goes on after epoch n hides what was written of later ones, which its checkpoint doesn't know.
    """

    def __init__(self, planned: Plan) -> None:
        self.planned = planned
        self.writer: SummaryWriter | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Opens the event file, and says what is run."""
        assert isinstance(module, CapsuleModule)
        if not trainer.is_global_zero:
            return
        done = len(module.history)
        if not done:
            for earlier in self.planned.folder.glob("events.out.tfevents.*"):
                earlier.unlink()
        self.writer = SummaryWriter(self.planned.folder, purge_step=done + 1)
        if not done:
            self._write_hparams()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the newest row of the history."""
        assert isinstance(module, CapsuleModule)
        if self.writer is None:
            return
        row = dict(module.history[-1])
        epoch = int(row.pop("epoch"))
        scalars: dict[str, float | None] = {_tag(name): value for name, value in row.items()}
        maximum, first, last, _ = records.summary(module.history, module.evaluated)
        if module.evaluated == "test":
            scalars |= {_tag("max_accuracy"): maximum, _tag("last_accuracy"): last}
        scalars[_tag("first_epoch_to_max")] = first
        scalars["seconds/epoch"] = row["train_seconds"] + row[f"{module.evaluated}_seconds"]
        scalars |= {f"peak_memory_mb/{name}": value for name, value in peak_memory_mb(self.planned.device).items()}
        for tag, value in scalars.items():
            if value is not None:
                self.writer.add_scalar(tag, value, epoch)
        self.writer.flush()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Closes the event file, whatever ended the run."""
        self._close()

    def conclude(self, record: records.Record) -> None:
        """Says that the run came to its end, with the test accuracy of protocol heldout."""
        writer = self.writer or SummaryWriter(self.planned.folder)
        if record.heldout_accuracy is not None:
            writer.add_scalar(_tag("heldout_accuracy"), record.heldout_accuracy, len(record.epochs))
        self.writer = writer
        self._close()

    def _close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _write_hparams(self) -> None:
        """The axes of the tables, for TensorBoard's HParams page."""
        assert self.writer is not None
        identity, config = self.planned.identity, self.planned.config
        parameters = {
            "model": identity["model"]["name"],
            "data": identity["data"]["name"],
            "routing": identity["routing"]["name"],
            "routing.iterations": config.routing.get("iterations", 0),
            **{f"attention.{key}": getattr(config.attention, key) for key in ("cbam", "conv", "caps")},
            "budget": config.budget.name,
            "precision": self.planned.precision,
            "seed": config.seed,
        }
        metrics = [hparams.Metric(_tag(name), display_name=name) for name in METRICS]
        events = self.writer.file_writer
        assert events is not None
        events.add_summary(hparams.hparams_config_pb([], metrics))
        events.add_summary(hparams.hparams_pb(parameters, trial_id=self.planned.name))


def _tag(name: str) -> str:
    """TensorBoard's groups: train_loss -> loss/train, so that the losses of all splits stand together."""
    if name in METRICS:
        return f"result/{name}"
    split, _, quantity = name.partition("_")
    return f"{quantity}/{split}" if split in ("train", "test", "heldout") else name

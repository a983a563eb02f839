"""What TensorBoard shows of a run: curves, histograms, reconstructions, the network, what the HParams page compares.

All of it is written between two epochs, into the folder of the run's checkpoints; nothing of it changes the run's
numbers. Steps are epochs, 1 is the first.

| where      | what                                                                                            |
|------------|-------------------------------------------------------------------------------------------------|
| scalars    | losses, accuracies in percent, the maximum so far and its first epoch, learning rate, seconds,   |
|            | peak memory in MB, the mean entropy of the routing coefficients, by layer and iteration          |
| histograms | what the class capsules say of the class that is there and of the others; routing coefficients   |
| images     | `reconstructions`: above, one image a class of those that are evaluated; below, drawn again      |
| text       | the command that repeats the run, the parameters                                                |
| graph      | the network                                                                                     |
| hparams    | what was run; what came out is under accuracy                                                   |
"""

import copy
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from tensorboard.plugins.hparams import summary_v2 as hparams
from torch import Tensor, nn
from torch.utils.tensorboard import FileWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams as session

from capsexp.config.checks import NAME, TARGET
from capsexp.data.loader import Batch, DeviceLoader, Several
from capsexp.nn.capsules import use_reference
from capsexp.nn.capture import entropy, observe
from capsexp.nn.losses import multi_hot
from capsexp.nn.scores import Prediction, Scores
from capsexp.run import records
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan
from capsexp.run.provenance import peak_memory_mb

EXAMPLES = 10  # images that are looked into, each of another class
BINS = 50  # of a histogram
_PATIENCE = 2.0  # seconds that closing the file of a run that broke off may take

#: What the scores are, by what says that a capsule is there.
_SCORES = {"length": "class_lengths", "activation": "class_activations", "pose": "class_logits"}


class Board(Callback):
    """Writes one run's event files; of several processes that train it, the first does.

    A run that starts at its beginning removes the event files of earlier attempts; one that goes on after epoch n hides
    what was written of later ones, which its checkpoint doesn't know.
    """

    def __init__(self, planned: Plan) -> None:
        self.planned = planned
        self.writer: SummaryWriter | None = None
        self.evaluation: _Evaluation | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Opens the event file, and says what is run."""
        assert isinstance(module, CapsuleModule)
        if not trainer.is_global_zero:
            return
        done = len(module.history)
        if not done:
            for earlier in self.planned.folder.glob("events.out.tfevents.*"):
                earlier.unlink()
        self.writer = _open(self.planned.folder, purge_step=done + 1)
        if not done:
            with _aside(module):
                self._introduce(self.writer, module)
            self.writer.flush()

    def on_validation_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begins to keep the scores, where this epoch is looked into."""
        assert isinstance(module, CapsuleModule)
        if self.writer is not None and looked_into(trainer.current_epoch + 1, module.epochs):
            self.evaluation = _Evaluation(module.network)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: object, batch: list[Batch], *args: object
    ) -> None:
        """Keeps the labels beside the scores; reads nothing from the device."""
        if self.evaluation is not None:
            self.evaluation.labels.extend(one.labels for one in batch)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the epoch."""
        assert isinstance(module, CapsuleModule)
        if self.writer is None:
            return
        epoch = len(module.history)
        for tag, value in self._scalars(module).items():
            self.writer.add_scalar(tag, value, epoch)
        if self.evaluation is not None:
            with _aside(module), trainer.precision_plugin.forward_context():
                self._look(self.writer, *self.evaluation.end(), trainer, module, epoch)
            self.evaluation = None
        self.writer.flush()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Closes the event file, if it can be: Ctrl-C may have come while TensorBoard held a lock, and left it held."""
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(_PATIENCE)

    def _close(self) -> None:
        if self.writer is not None:
            with suppress(OSError):  # what ended the run has been said
                self.writer.close()

    def conclude(self, record: records.Record) -> None:
        """Says that the run came to its end, with what came out."""
        writer = self.writer or _open(self.planned.folder)
        last, tested = record.last_accuracy, record.heldout_accuracy
        if last is not None:
            writer.add_scalar("accuracy/last", last, len(record.epochs))
        if tested is not None:
            writer.add_scalar("accuracy/test", tested, record.first_epoch_to_max)
        _, _, end = session({}, {})  # type: ignore[no-untyped-call]
        _events(writer).add_summary(end)
        writer.close()

    def _introduce(self, writer: SummaryWriter, module: CapsuleModule) -> None:
        """What is known before the first epoch."""
        events = _events(writer)
        events.add_summary(hparams.hparams_pb(axes(self.planned), trial_id=records.key_of(self.planned.identity)))
        if self.planned.command:
            writer.add_text("command", f"`{self.planned.command}`")
        writer.add_text("parameters", parameter_table(module))
        data = self.planned.config.data
        with suppress(Exception), warnings.catch_warnings():  # a network that can't be traced goes without a graph
            warnings.simplefilter("ignore")
            writer.add_graph(Network(module), torch.zeros(1, data.channels, data.size, data.size))

    def _scalars(self, module: CapsuleModule) -> dict[str, float]:
        """The newest row of the history, under TensorBoard's names."""
        row, evaluated = module.history[-1], module.evaluated
        maximum, first, _, _ = records.summary(module.history, evaluated)
        found: dict[str, float | None] = {_tag(name): value for name, value in row.items() if name != "epoch"}
        found |= {"accuracy/first_epoch_to_max": first, "accuracy/max": maximum if evaluated == "test" else None}
        found["seconds/epoch"] = row["train_seconds"] + row[f"{evaluated}_seconds"]
        found |= {f"peak_memory_mb/{name}": value for name, value in peak_memory_mb(self.planned.device).items()}
        return {tag: value for tag, value in found.items() if value is not None}

    def _look(
        self,
        writer: SummaryWriter,
        scores: Tensor,
        there: Tensor,
        trainer: pl.Trainer,
        module: CapsuleModule,
        epoch: int,
    ) -> None:
        """Histograms, entropies, reconstructions."""
        kind = getattr(module.network, "scores", None)
        if isinstance(kind, Scores):
            tag, bounded = _SCORES[kind.presence], kind.presence != "pose"
            for name, chosen in (("correct", scores[there]), ("others", scores[~there])):
                _histogram(writer, f"{tag}/{name}", [_counted(chosen, bounded)], epoch)
        assert isinstance(trainer.val_dataloaders, Several)
        pixels, labels = examples(trainer.val_dataloaders.loader, scores.shape[1])
        entropies, counted, drawn = defaultdict(list), defaultdict(list), []
        for image, label in zip(pixels[:, None], labels[:, None], strict=True):  # one by one: all votes are held
            seen = observe(module, image)
            for layer in seen.layers:
                for number, coefficients in enumerate(layer.coefficients, start=1):
                    name = f"{layer.name}/iteration_{number}"
                    entropies[name].append(entropy(coefficients))
                    counted[name].append(_counted(coefficients))
            if module.decoder is not None:
                drawn.append(module.decoder(seen.prediction.poses, label).float())
        for name, values in entropies.items():
            writer.add_scalar(f"routing_entropy/{name}", sum(values) / len(values), epoch)
            _histogram(writer, f"routing_coefficients/{name}", counted[name], epoch)
        if drawn:
            rows = torch.cat([pixels, torch.cat(drawn)], dim=2)  # an image above its reconstruction
            writer.add_image("reconstructions", torch.cat(list(rows), dim=2), epoch)


def looked_into(epoch: int, epochs: int) -> bool:
    """Whether an epoch gets histograms and pictures: the first 25, then each tenth, the last; files stay small so."""
    return epoch <= 25 or epoch % 10 == 0 or epoch == epochs


def examples(loader: DeviceLoader, classes: int) -> tuple[Tensor, Tensor]:
    """The first image of each of the first EXAMPLES classes, and its labels."""
    there = multi_hot(loader.labels, classes)
    first = there.argmax(dim=0)[there.any(dim=0)][:EXAMPLES]
    return loader.images[first].float() / 255, loader.labels[first]


def axes(planned: Plan) -> dict[str, bool | float | str]:
    """What runs are compared by: the names of what was chosen, and the numbers that a sweep is likely to change."""
    config = planned.config
    components = {"model": config.model, "routing": config.routing}
    inner = {
        f"{group}.{key}": value if isinstance(value, bool | int | float | str) else str(value)
        for group, node in components.items()
        for key, value in node.items()
        if key not in (NAME, TARGET)
    }
    return inner | {
        "data": config.data.name,
        "loss": config.loss[NAME],
        "reconstruction": config.reconstruction.enabled,
        **{group: node[NAME] for group, node in components.items()},
        **{f"attention.{key}": getattr(config.attention, key) for key in ("cbam", "conv", "caps")},
        **{f"optim.{key}": getattr(config.optim, key) for key in ("name", "lr", "batch_size")},
        "epochs": planned.epochs,
        "budget": config.budget.name,
        "precision": planned.precision,
        "protocol": config.protocol,
        "seed": config.seed,
    }


def parameter_table(module: CapsuleModule) -> str:
    """The network's parameters in Markdown; those that are trained make the sum."""
    lines = ["| parameter | shape | number |", "| :-- | --: | --: |"]
    total = 0
    for name, parameter in module.named_parameters():
        shape = "×".join(map(str, parameter.shape)) or "1"
        lines.append(
            f"| {name} | {shape} | {parameter.numel():,}{'' if parameter.requires_grad else ', not trained'} |"
        )
        total += parameter.numel() if parameter.requires_grad else 0
    return "\n".join([*lines, f"| **together** | | **{total:,}** |"])


class _Evaluation:
    """The scores and labels of one evaluation, kept on the device as they come by."""

    def __init__(self, network: nn.Module) -> None:
        self.scores: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.handle = network.register_forward_hook(self._keep)

    def end(self) -> tuple[Tensor, Tensor]:
        """The scores [N, J], and which classes are there [N, J]."""
        self.handle.remove()
        scores = torch.cat(self.scores)
        return scores, multi_hot(torch.cat(self.labels), scores.shape[1]).bool()

    def _keep(self, network: nn.Module, images: object, prediction: Prediction) -> None:
        self.scores.append(prediction.scores)


class Network(nn.Module):
    """What the graph shows: a copy of the network and its decoder, on the CPU, that routes as the papers write it."""

    def __init__(self, module: CapsuleModule) -> None:
        super().__init__()
        self.network, self.decoder = copy.deepcopy((module.network, module.decoder))
        use_reference(self.cpu().eval())

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Scores, and what is drawn of the winning class."""
        scores, poses = self.network(images)
        return (scores,) if self.decoder is None else (scores, self.decoder(poses, scores.argmax(dim=1)))


@contextmanager
def _aside(module: CapsuleModule) -> Iterator[None]:
    """What is computed here leaves no gradient, and the random states as they were."""
    devices = [module.device] if module.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        yield


class _Counted(NamedTuple):
    """What a histogram needs of some values."""

    limits: Tensor  # [BINS + 1]
    counts: Tensor  # [BINS]
    facts: Tensor  # least, greatest, number, sum, sum of squares


def _counted(values: Tensor, bounded: bool = True) -> _Counted:
    """Counts on the device that has the values, from 0 to 1 or, where nothing bounds them, as far as they go."""
    values = values[values.isfinite()].float()
    least, greatest = values.aminmax() if len(values) else values.new_zeros(2)
    low, high = (0.0, 1.0) if bounded else (float(least), float(greatest))
    facts = torch.stack([least, greatest, least.new_tensor(len(values)), values.sum(), values.square().sum()])
    return _Counted(torch.linspace(low, high, BINS + 1), torch.histc(values, BINS, low, high), facts)


def _histogram(writer: SummaryWriter, tag: str, parts: list[_Counted], epoch: int) -> None:
    """Writes what was counted in several parts with the same limits."""
    least, greatest, *sums = torch.stack([part.facts for part in parts]).unbind(dim=1)
    number, total, squares = (float(each.sum()) for each in sums)
    writer.add_histogram_raw(
        tag,
        min=float(least.min()),
        max=float(greatest.max()),
        num=int(number),
        sum=total,
        sum_squares=squares,
        bucket_limits=parts[0].limits[1:].tolist(),
        bucket_counts=torch.stack([part.counts for part in parts]).sum(dim=0).tolist(),
        global_step=epoch,
    )


def _open(folder: Path, purge_step: int | None = None) -> SummaryWriter:
    """A writer whose thread doesn't print what the system refuses: the writer raises it again, where it is named."""

    def fail(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, OSError):
            threading.__excepthook__(failure)

    threading.excepthook = fail
    return SummaryWriter(folder, purge_step=purge_step)


def _events(writer: SummaryWriter) -> FileWriter:
    events = writer.file_writer
    assert isinstance(events, FileWriter)
    return events


def _tag(name: str) -> str:
    """TensorBoard's groups: train_loss -> loss/train, so that the losses of all splits stand together."""
    split, _, quantity = name.partition("_")
    return f"{quantity}/{split}" if split in ("train", "test", "heldout") else name

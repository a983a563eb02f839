"""What a trained network does with test images: how many are right, and which classes it takes for which."""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from capsexp.data import source
from capsexp.data.cache import Log
from capsexp.data.loader import DeviceLoader
from capsexp.data.module import Split, test_split
from capsexp.data.source import class_names
from capsexp.inspect.restore import Restored
from capsexp.nn.losses import multi_hot


@dataclass(frozen=True)
class Evaluation:
    """A pass over test images. Right is the class of the greatest score; of sets of classes, exactly the set."""

    images: int
    note: str | None  # what the data files are, where they aren't the published ones
    accuracy: float  # percent
    loss: float
    confusion: pd.DataFrame | None  # images by true class (rows) and answer (columns); None for sets of classes
    classes: pd.DataFrame  # a row a class: precision, recall, f1 in percent, NaN where undefined; images


def evaluate(restored: Restored, say: Log = print) -> Evaluation:
    """The network on the test images of its configuration; raises InputError where the data aren't there."""
    images = source.load(restored.config.data, say)
    split = test_split(images, restored.config)
    loss, accuracy, scores, labels = measured(restored, split)
    names = class_names(restored.config.data)
    truth = multi_hot(labels, len(names)).bool()
    threshold = restored.module.eval_metrics.threshold
    answers = scores > threshold if threshold is not None else multi_hot(scores.argmax(dim=1), len(names)).bool()
    return Evaluation(
        images=len(labels),
        note=images.note,
        accuracy=accuracy,
        loss=loss,
        confusion=confusion_of(truth, answers, names) if threshold is None else None,
        classes=by_class(truth, answers, names),
    )


def measured(restored: Restored, split: Split) -> tuple[float, float, Tensor, Tensor]:
    """Loss, accuracy in percent, scores [N, J] and labels, as the run itself evaluates: batch by batch."""
    module = restored.module
    images, labels = (part.to(module.device) for part in split)
    scores: list[Tensor] = []
    module.eval_metrics.reset()
    with torch.inference_mode(), restored.autocast():
        for batch in DeviceLoader(images, labels, restored.config.trainer.eval_batch_size):
            output = module.loss_and_scores(batch)
            module.eval_metrics.update(*output, batch.labels)
            scores.append(output.scores.float())
    found = module.eval_metrics.results("test")
    return found["test_loss"], found["test_accuracy"], torch.cat(scores).cpu(), labels.cpu()


def most_confused(confusion: pd.DataFrame, count: int) -> list[tuple[str, str, int]]:
    """The pairs (true class, answer, images) that are wrong most often, at most so many; of equals the first."""
    counts = confusion.to_numpy()
    wrong = [(int(counts[i, j]), i, j) for i, j in zip(*counts.nonzero(), strict=True) if i != j]
    names = [str(name) for name in confusion]
    return [(names[i], names[j], images) for images, i, j in sorted(wrong, key=lambda pair: -pair[0])[:count]]


def confusion_of(truth: Tensor, answers: Tensor, names: list[str]) -> pd.DataFrame:
    """From [N, J] of bool, with one class in each row."""
    counts = truth.T.double() @ answers.double()
    return pd.DataFrame(counts.long().numpy(), index=names, columns=names)


def by_class(truth: Tensor, answers: Tensor, names: list[str]) -> pd.DataFrame:
    """From [N, J] of bool: which classes are there, which ones the network names."""
    right, there, named = (part.sum(dim=0).double() for part in (truth & answers, truth, answers))
    columns = {"precision": right / named, "recall": right / there, "f1": 2 * right / (there + named)}
    table = pd.DataFrame({name: (100 * share).numpy() for name, share in columns.items()}, index=names)
    return table.assign(images=there.long().numpy())

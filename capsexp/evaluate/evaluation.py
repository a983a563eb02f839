"""A trained network on test images: accuracy, by class too, and confusion matrix; on images in files: their classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsexp import Log
from capsexp.config.schema import Data
from capsexp.data import source
from capsexp.data.folder import conversion_of, has_test, source_of
from capsexp.data.listing import TABLES, pictures_of
from capsexp.data.loader import DeviceLoader
from capsexp.data.module import Split, test_split
from capsexp.data.pictures import converted, files_below, listed
from capsexp.data.reader import fit
from capsexp.data.source import ImageSet
from capsexp.errors import InputError
from capsexp.nn.losses import multi_hot
from capsexp.run.module import EpochMetrics, Pixels
from capsexp.run.restore import Restored


@dataclass(frozen=True)
class Evaluation:
    """A pass over test images. The prediction is the class with the highest score, or all above a threshold."""

    images: int  # how many
    note: str | None  # what the data files are, where they aren't the published ones
    summary: list[str]  # lines on the classes of the set
    accuracy: float  # in percent
    loss: float  # the mean over the images
    confusion: pd.DataFrame | None  # [J, J], by true class (rows) and prediction (columns); None for sets of classes
    classes: pd.DataFrame  # [J, 4]: precision, recall, f1 in percent, NaN where undefined; images of the class
    reconstruction: float | None = None  # the mean squared error, as the loss has it; None without a decoder
    correct: NDArray[np.bool_] | None = None  # [N], for each image whether the prediction is exactly right


def evaluate(restored: Restored, log: Log = print) -> Evaluation:
    """The network on the test images of its configuration; raises InputError for missing data.

    Of somebody's own images that aren't those of the run, all are test images, unless test images are given; without
    those that it was trained on.
    """
    images = _without_trained(restored, source.load(restored.config.data, log), log)
    split = test_split(images, restored.config)
    for line in unlike(restored.module.pixels, split[0], "data.reader.invert=true inverts somebody's own"):
        log(line)
    results, scores, labels = evaluate_split(restored, split)
    names = source.class_names(restored.config.data)
    true = multi_hot(labels, len(names)).bool()
    threshold = restored.module.eval_metrics.threshold
    predicted = scores > threshold if threshold is not None else multi_hot(scores.argmax(dim=1), len(names)).bool()
    return Evaluation(
        images=len(labels),
        note=images.note,
        summary=source.summary(restored.config.data, images),
        accuracy=results["test_accuracy"],
        loss=results["test_loss"],
        confusion=confusion_matrix(true, predicted, names) if threshold is None else None,
        classes=by_class(true, predicted, names),
        reconstruction=results.get("test_reconstruction"),
        correct=(true == predicted).all(dim=1).numpy(),
    )


def _without_trained(restored: Restored, images: ImageSet, log: Log) -> ImageSet:
    """The images, of which those are test images that `evaluate` takes."""
    data, module = restored.config.data, restored.module
    if data.path is None or images.unlisted == module.planned.unlisted:
        return images
    pixels, labels = images.test_images, images.test_labels
    if not has_test(source_of(vars(data))):
        pixels, labels = torch.cat([images.train_images, pixels]), torch.cat([images.train_labels, labels])
    new = torch.ones(len(labels), dtype=torch.bool)
    if module.trained_images is not None:
        new = ~torch.isin(source.digests(pixels), module.trained_images)
    left = f"{int((~new).sum()):,} of its {len(new):,} images are left out: the run was trained on them"
    left = "the run was trained on none of its images" if new.all() else left
    log(f"data.path={data.path}: isn't the set of the run; {left}")
    if not new.any():
        raise InputError(f"data.path={data.path}: has no image on which the run wasn't trained")
    note = "own images, of another folder than the run's"
    tested = replace(images, test_images=pixels[new], test_labels=labels[new], validation=0, note=note)
    return replace(tested, train_images=images.train_images[:0], train_labels=images.train_labels[:0])


def evaluate_split(restored: Restored, split: Split) -> tuple[EpochMetrics, Tensor, Tensor]:
    """Metrics, scores [N, J] and labels, computed batch by batch as in the run's own evaluations."""
    module = restored.module
    images, labels = (tensor.to(module.device) for tensor in split)
    scores: list[Tensor] = []
    module.eval_metrics.reset()
    with torch.inference_mode(), restored.autocast():
        for batch in DeviceLoader(images, labels, restored.config.trainer.eval_batch_size):
            output = module.loss_and_scores(batch)
            module.add_evaluated(output, batch.labels)
            scores.append(output.scores.float())
    return module.eval_metrics.results("test"), torch.cat(scores).cpu(), labels.cpu()


def predictions(restored: Restored, places: Sequence[Path], log: Log = print, invert: bool = False) -> pd.DataFrame:
    """A row per file, image in a folder and row of a table: file, class, score, next (best class), next_score.

    With `invert`, of the negatives. Raises InputError for files that are no images; in a folder they are left out.
    """
    data, names = restored.config.data, source.class_names(restored.config.data)
    found = [(place, file) for place in places for file in _pictures_at(place, data)]
    files = [file for _, file in found]
    images, problems = converted(files, conversion_of(data, invert))
    if refused := [problem for number, problem in problems.items() if not found[number][0].is_dir()]:
        raise InputError(listed(refused))
    for problem in problems.values():
        log(f"left out: {problem}")
    files = [file for number, file in enumerate(files) if number not in problems]
    if not files:
        raise InputError(f"{places[0]}: has no images")
    pixels = fit(np.delete(images, list(problems), axis=0), data.size, data.channels, data.name)
    remedy = "leave out --invert" if invert else "--invert takes their negatives"
    for line in unlike(restored.module.pixels, torch.from_numpy(pixels), remedy):
        log(line)
    batches = torch.split(torch.from_numpy(pixels), restored.config.trainer.eval_batch_size)
    scores = torch.cat([restored(batch.to(restored.module.device).float() / 255).scores.float() for batch in batches])
    best, classes = scores.cpu().topk(2)  # [files, 2]
    table: dict[str, object] = {"file": files}
    for at, (name, score) in enumerate((("class", "score"), ("next", "next_score"))):
        table |= {name: [names[label] for label in classes[:, at].tolist()], score: best[:, at].numpy()}
    return pd.DataFrame(table)


def _pictures_at(place: Path, data: Data) -> Iterable[Path]:
    if place.is_dir():
        return files_below(place)
    column = data.columns[0] if data.columns else None
    return pictures_of(place, column) if place.suffix.lower() in TABLES else [place]


def unlike(trained_on: Pixels, pixels: Tensor, remedy: str) -> list[str]:
    """A line on images, uint8 [N, C, H, W], whose negatives are more like those that a network was trained on."""
    mean, std = trained_on
    if not (mean and std):
        return []
    trained, deviation, here = sum(mean) / len(mean), sum(std) / len(std), pixels.double().mean().item() / 255
    if abs(here - trained) < max(deviation, abs(1 - here - trained)):
        return []
    than = "lighter" if here > trained else "darker"
    means = f"a mean of {here:.2f}, there {trained:.2f}"
    return [f"images {than} than those that the network was trained on ({means}): inverted? {remedy}"]


def confusion_matrix(true: Tensor, predicted: Tensor, names: list[str]) -> pd.DataFrame:
    """Images by true class (rows) and prediction (columns), from [N, J] of bool with one class in each row."""
    counts = true.T.double() @ predicted.double()
    return pd.DataFrame(counts.long().numpy(), index=names, columns=names)


def by_class(true: Tensor, predicted: Tensor, names: list[str]) -> pd.DataFrame:
    """`Evaluation.classes`, from [N, J] of bool."""
    both, of_class, as_class = (part.sum(dim=0).double() for part in (true & predicted, true, predicted))
    columns = {"precision": both / as_class, "recall": both / of_class, "f1": 2 * both / (of_class + as_class)}
    table = pd.DataFrame({name: (100 * values).numpy() for name, values in columns.items()}, index=names)
    return table.assign(images=of_class.long().numpy())


def most_confused(confusion: pd.DataFrame, count: int) -> list[tuple[str, str, int]]:
    """The pairs (true class, prediction, images) that are wrong most often, at most so many; of equals the first."""
    counts, names = confusion.to_numpy(), [str(name) for name in confusion]
    wrong = [(names[i], names[j], int(counts[i, j])) for i, j in zip(*counts.nonzero(), strict=True) if i != j]
    return sorted(wrong, key=lambda pair: -pair[2])[:count]

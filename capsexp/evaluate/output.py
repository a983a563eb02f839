"""An evaluation on the terminal, and as JSON."""

import math
from typing import Any

import pandas as pd

from capsexp.errors import InputError
from capsexp.evaluate.evaluation import Evaluation, most_confused
from capsexp.run.records import of_images, unpacked
from capsexp.run.restore import Restored
from capsexp.tables.table import Table
from capsexp.tables.terminal import print_table

MANY = 20  # classes: of more, the ten worst are printed and no matrix


def to_json(restored: Restored, evaluation: Evaluation) -> dict[str, Any]:
    """All numbers of an evaluation; null where they are undefined."""
    classes = evaluation.classes.astype(object).where(evaluation.classes.notna(), None)
    return {
        "checkpoint": str(restored.path),
        "run": restored.name,
        "epoch": restored.epoch,
        "data": restored.config.data.name,
        "note": evaluation.note,
        "device": restored.module.device.type,
        "precision": restored.precision,
        "images": evaluation.images,
        "accuracy": evaluation.accuracy,
        "loss": _finite(evaluation.loss),
        "reconstruction": _finite(evaluation.reconstruction),
        "classes": classes.reset_index(names="class").to_dict("records"),
        "confusion": None if evaluation.confusion is None else evaluation.confusion.to_numpy().tolist(),
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def print_evaluation(restored: Restored, evaluation: Evaluation) -> None:
    """Prints accuracy, loss and the tables of the classes; of many classes only the worst."""
    device = f"on {restored.module.device.type} in {restored.precision}"
    right = "accuracy" if evaluation.confusion is not None else "accuracy (exactly the right set of classes)"
    print(f"{restored.name}, {restored.path.name}, after epoch {restored.epoch}")
    print(f"{evaluation.images:,} test images of {restored.config.data.name}, {device}", *evaluation.summary, sep="\n")
    if evaluation.note:
        print(f"data files: {evaluation.note}")
    error = evaluation.reconstruction
    drawn = "" if error is None else f", squared error of a reconstruction {error:.4g}"
    print(f"{right} {of_images(evaluation.accuracy, evaluation.images)}, loss {evaluation.loss:.4f}{drawn}")
    print(f"{against_training(restored, evaluation)}\n".lstrip())
    shown, title = evaluation.classes, "by class"
    if len(shown) > MANY:
        title = f"the ten worst of {len(shown)} classes (--output=FILE has all)"
        shown = shown.sort_values("f1", kind="stable", na_position="last").head(10)
    rows = [
        [str(name), *("–" if math.isnan(value) else f"{value:.2f}" for value in percents), f"{images:,}"]
        for name, *percents, images in shown.itertuples()
    ]
    _print_table(title, ["class", "precision %", "recall %", "F1 %", "images"], rows)
    if evaluation.confusion is not None:
        _print_confusion(evaluation.confusion)


def against_training(restored: Restored, evaluation: Evaluation) -> str:
    """Whether the training had the same images right after this epoch, or how many others and why; else nothing.

    Raises InputError where the checkpoint holds no bits for as many images.
    """
    planned, bits = restored.module.planned, restored.module.correct.get("last_accuracy")
    if not bits or restored.config is not planned.config or evaluation.note != planned.note:
        return ""  # without test images in the training, and for other images
    try:
        right = unpacked(bits, evaluation.images)
    except ValueError as error:
        raise InputError(f"{restored.path}: damaged: correct: {error}") from None
    others = int((right != evaluation.correct).sum())
    if not others:
        return "image by image as in its training"
    why = ["weights in half precision"] * restored.halved
    why += [f"trained in {planned.precision}"] * (restored.precision != planned.precision)
    return f"{others:,} images otherwise than in its training: {', '.join(why) or 'another machine'}"


def _print_confusion(confusion: pd.DataFrame) -> None:
    names = [str(name) for name in confusion]
    if len(names) <= MANY:
        numbers = [str(number) for number in range(len(names))]
        rows = [
            [number if name == number else f"{number} {name}", *(str(count or "·") for count in counts)]
            for number, name, counts in zip(numbers, names, confusion.to_numpy().tolist(), strict=True)
        ]
        _print_table("images by true class (rows) and prediction (columns)", ["", *numbers], rows)
    pairs = [[true, predicted, str(images)] for true, predicted, images in most_confused(confusion, 10)]
    if pairs:
        _print_table("most often confused", ["true class", "prediction", "images"], pairs, 2)


def _print_table(title: str, columns: list[str], rows: list[list[str]], names: int = 1) -> None:
    """Prints a table; `names` is the number of columns that are left-aligned."""
    print_table(Table(title, columns, "l" * names + "r" * (len(columns) - names), rows))
    print()

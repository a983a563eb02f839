"""Folders of small pictures, for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from support import composed_config

from capsexp.config.schema import Config, Data
from capsexp.data.module import CapsuleData
from capsexp.data.source import ImageSet, load

GREY, COLOUR = (8, 8), (8, 8, 3)


def save(path: Path, image: NDArray[np.uint8], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)


def numbered(place: Path, first: int, count: int, shape: tuple[int, ...] = GREY) -> None:
    """Images of one value each, `first`, `first` + 1, …, in a class folder."""
    for value in range(first, first + count):
        save(place / f"{value:03}.png", np.full(shape, value, np.uint8))


def two(place: Path, first: int, count: int) -> None:
    """The class folders ant and bee, whose images have values from `first` and from 100 + `first` on."""
    for name, begin in (("ant", first), ("bee", 100 + first)):
        numbered(place / name, begin, count)


def config(path: Path, *words: str) -> Config:
    """The checked configuration of a run on the images at a path."""
    return composed_config("data=folder", f"data.path={path}", "data.size=8", *words)


def data(path: Path, *words: str) -> Data:
    """The configuration of the images at a path."""
    return config(path, *words).data


def splits_of(config: Config) -> CapsuleData:
    """The splits of a run's images, on the CPU."""
    splits = CapsuleData(load(config.data), config)
    splits.place(torch.device("cpu"))
    return splits


def values(images: ImageSet) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Value and label of each training and of each test image of one value."""
    splits = (images.train_images, images.train_labels), (images.test_images, images.test_labels)
    train, test = (list(zip(pixels[:, 0, 0, 0].tolist(), labels.tolist(), strict=True)) for pixels, labels in splits)
    return train, test

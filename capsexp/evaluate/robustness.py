"""Accuracy under affine maps of growing size: rotation, shear and scale, one at a time (alberti; affNIST's maps).

affNIST draws from rotations by up to 20°, shears by up to 0.2 and scales between 0.8 and 1.2, and alberti prints one
number for all of them together (`data=affine_mnist`). The maps here go twice as far.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from capsexp import Log
from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.data.module import Split, test_split
from capsexp.data.source import ImageSet
from capsexp.data.synthesis import AffineMNIST, affine_maps, transformed
from capsexp.evaluate.evaluation import evaluate_split
from capsexp.run.restore import Restored

#: Kind of map -> values: degrees clockwise; pixels to the right a pixel down; ratio of lengths.
GRID: Mapping[str, Sequence[float]] = {
    "rotation": tuple(range(-40, 41, 10)),
    "shear": tuple(tenths / 10 for tenths in range(-4, 5)),
    "scale": tuple(tenths / 10 for tenths in range(6, 15)),
}

_CHUNK = 250  # images mapped at a time


def robustness(restored: Restored, grid: Mapping[str, Sequence[float]] = GRID, log: Log = print) -> pd.DataFrame:
    """A row per map: map, a kind of `grid`; value, in the unit of GRID; accuracy in percent; images, how many.

    The test images are rotated, sheared or scaled about their centre; outside of them is black, and what leaves the
    image is lost. Those of affine MNIST are its digits in the middle of the canvas, without its own maps.

    Raises InputError for missing data.
    """
    split = unmapped(source.load(restored.config.data, log), restored.config)
    images, labels = (tensor.to(restored.module.device) for tensor in split)
    rows = []
    for kind, values in grid.items():
        for value in values:
            moved = mapped(images, matrix(kind, value), restored.config.data.size)
            _, accuracy, _, _ = evaluate_split(restored, (moved, labels))
            rows.append({"map": kind, "value": float(value), "accuracy": accuracy, "images": len(labels)})
    return pd.DataFrame(rows)


def unmapped(images: ImageSet, config: Config) -> Split:
    """The test images without any map."""
    if config.data.synthesis and issubclass(config.data.synthesis.cls, AffineMNIST):
        config = replace(config, data=replace(config.data, synthesis=None))
    return test_split(images, config)


def matrix(kind: str, value: float) -> Tensor:
    """The matrix A of one map of GRID, [2, 2]."""
    values = {"rotation": 0.0, "shear": 0.0, "scale": 1.0, kind: value}
    angle, shear = torch.tensor([math.radians(values["rotation"])]), torch.tensor([values["shear"]])
    return affine_maps(angle, shear, torch.full((1, 2), values["scale"]))[0]


def mapped(images: Tensor, matrix: Tensor, size: int) -> Tensor:
    """All images under one map about their centre: [N, C, h, h] -> [N, C, size, size], uint8."""
    matrix, shift = matrix.to(images.device), torch.zeros(2, device=images.device)
    chunks = torch.split(images, _CHUNK)
    return torch.cat([transformed(c, matrix.expand(len(c), 2, 2), shift.expand(len(c), 2), size) for c in chunks])

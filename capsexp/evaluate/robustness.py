"""Accuracy under affine maps of growing size: rotation, shear and scale, each alone (alberti; affNIST's maps).

affNIST draws from rotations by up to 20°, shears by up to 0.2 and scales between 0.8 and 1.2; alberti prints one number
for all of them together (`data=affine_mnist`). Here each map stands alone, and goes twice as far.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from capsexp.config.schema import Config
from capsexp.data import source
from capsexp.data.cache import Log
from capsexp.data.module import Split, test_split
from capsexp.data.source import ImageSet
from capsexp.data.synthesis import AffineMNIST, affine_maps, make_synthesis, transformed
from capsexp.evaluate.evaluation import measured
from capsexp.inspect.restore import Restored

#: What is changed, to what: degrees clockwise; pixels to the right for each pixel down; lengths over lengths.
GRID: Mapping[str, Sequence[float]] = {
    "rotation": tuple(range(-40, 41, 10)),
    "shear": tuple(tenths / 10 for tenths in range(-4, 5)),
    "scale": tuple(tenths / 10 for tenths in range(6, 15)),
}

_CHUNK = 250  # images in the making at a time


def robustness(restored: Restored, grid: Mapping[str, Sequence[float]] = GRID, say: Log = print) -> pd.DataFrame:
    """A row a map: map (rotation, shear or scale), value, accuracy in percent, images.

    The test images are turned, sheared or scaled about their centre, black moves in, and what leaves the image is
    lost. Those of affine MNIST are its digits in the middle of the canvas, as they are before its own maps.

    Raises InputError where the data aren't there.
    """
    split = upright(source.load(restored.config.data, say), restored.config)
    images, labels = (part.to(restored.module.device) for part in split)
    rows = []
    for kind, values in grid.items():
        for value in values:
            moved = mapped(images, matrix(kind, value), restored.config.data.size)
            _, accuracy, _, _ = measured(restored, (moved, labels))
            rows.append({"map": kind, "value": float(value), "accuracy": accuracy, "images": len(labels)})
    return pd.DataFrame(rows)


def upright(images: ImageSet, config: Config) -> Split:
    """The test images before any map."""
    if isinstance(make_synthesis(config.data), AffineMNIST):
        config = replace(config, data=replace(config.data, synthesis=None))
    return test_split(images, config)


def matrix(kind: str, value: float) -> Tensor:
    """A of one map, [2, 2]: see GRID."""
    sizes = {"rotation": 0.0, "shear": 0.0, "scale": 1.0, kind: value}
    angle, shear = torch.tensor([math.radians(sizes["rotation"])]), torch.tensor([sizes["shear"]])
    return affine_maps(angle, shear, torch.full((1, 2), sizes["scale"]))[0]


def mapped(images: Tensor, matrix: Tensor, size: int) -> Tensor:
    """All images under one map about their centre: [N, C, h, h] -> [N, C, size, size], uint8."""
    parts = []
    for part in torch.split(images, _CHUNK):
        maps = matrix.to(part.device).expand(len(part), 2, 2)
        parts.append(transformed(part, maps, torch.zeros(len(part), 2, device=part.device), size))
    return torch.cat(parts)

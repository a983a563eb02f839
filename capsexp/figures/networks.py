"""Trained networks from their checkpoints, their test images, and pictures of images."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor
from torchvision.utils import make_grid

from capsexp.data import source
from capsexp.data.module import test_split
from capsexp.figures.sources import Missing, Sources
from capsexp.results.collect import Line
from capsexp.run.restore import Restored, restore


def trained(sources: Sources, line: Line, *overrides: str, device: str | None = "cpu") -> Restored | Missing:
    """The network of a row's first seed with a checkpoint; raises InputError for one that can't be used.

    Args:
        overrides: of its configuration; see `restore`.
        device: None: a GPU where there is one.
    """
    for run in line.runs:
        folder = sources.folder(run)
        if folder.is_dir() and any(folder.glob("*.ckpt")):
            return restore(folder, device, overrides)
    return sources.unlogged(line, "checkpoint")


def examples(network: Restored) -> tuple[Tensor, Tensor]:
    """The first test image of each class, [n, channels, H, W] between 0 and 1, and the labels [n].

    Raises InputError for missing data.
    """
    images, labels = test_split(source.load(network.config.data), network.config)
    first = [int((labels == label).nonzero()[0]) for label in sorted(set(labels.tolist()))]
    return images[first].float() / 255, labels[first]


def mosaic(images: Tensor) -> NDArray[np.float32]:
    """[rows, columns, channels, H, W] -> one picture, with a white line around each image."""
    grid: NDArray[np.float32] = make_grid(images.flatten(0, 1), images.shape[1], padding=1, pad_value=1).numpy()
    return grid.transpose(1, 2, 0)


def show(axis: Axes, picture: NDArray[np.float32] | NDArray[np.uint8]) -> None:
    """Draws a picture without ticks and without interpolation."""
    axis.imshow(picture, interpolation="none", aspect="equal", vmin=0)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

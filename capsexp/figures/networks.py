"""Trained networks from their checkpoints, and pictures of images."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from capsexp.figures.sources import Sources
from capsexp.results.collect import Line
from capsexp.run.restore import Restored, restore


def trained(sources: Sources, line: Line, *overrides: str, device: str | None = "cpu") -> Restored:
    """The network of a row's first seed with a checkpoint.

    Args:
        overrides: of its configuration; see `restore`.
        device: None: a GPU where there is one.

    Raises UndrawnError where there is none, InputError for one that can't be used.
    """
    for run in line.runs:
        folder = sources.logs / run.name
        if folder.is_dir() and any(folder.glob("*.ckpt")):
            return restore(folder, device, overrides)
    raise sources.unlogged(line, "checkpoint")


def first_of_each(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The first image of each class, [n, channels, H, W] between 0 and 1, and the labels [n], ascending.

    Args:
        images: uint8, [N, channels, H, W].
        labels: [N].
    """
    first = [int((labels == label).nonzero()[0]) for label in sorted(set(labels.tolist()))]
    return images[first].float() / 255, labels[first]


def show(axis: Axes, picture: NDArray[np.float32] | NDArray[np.uint8]) -> None:
    """Draws a picture without ticks and without interpolation."""
    axis.imshow(picture, interpolation="none", aspect="equal", vmin=0)
    hide(axis)


def hide(axis: Axes) -> None:
    """Neither ticks nor a frame."""
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

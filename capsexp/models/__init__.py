"""Each published network, assembled from `nn` and `routing`: a page each.

A network is built as `Network(image_shape, classes, routing, attention, *, …)`: what stands before the star comes
from the rest of the configuration, the keyword-only arguments are the keys under `model`. A configuration that
makes no network raises ValueError with one line.
"""

from typing import NamedTuple

from torch import Tensor


class Prediction(NamedTuple):
    """What a network says of a batch."""

    scores: Tensor  # [B, J]: one a class; the largest is the answer, and the loss reads them
    poses: Tensor | None  # [B, J, D]: the class capsules, None for a network without any


def scaled(channels: int, width: float) -> int:
    """So many channels of a narrower network, at least one."""
    return max(1, round(channels * width))


def convolved(size: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """Pixels a side after a convolution; raises ValueError when the kernel doesn't fit."""
    if size + 2 * padding < kernel:
        raise ValueError(f"a {kernel}×{kernel} kernel doesn't fit on {size}×{size} positions")
    return (size + 2 * padding - kernel) // stride + 1

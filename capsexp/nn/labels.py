"""Labels: one class an image, [B] int64, or the set of those that are in it, [B, J] of 0 and 1."""

from torch import Tensor, nn


def present(labels: Tensor, classes: int) -> Tensor:
    """Which classes are there: either kind of labels -> [B, J] of 0 and 1, int64."""
    return labels if labels.ndim == 2 else nn.functional.one_hot(labels, classes)

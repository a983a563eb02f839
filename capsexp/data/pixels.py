"""Images of any size and colour as the configuration wants them: uint8 [N, C, size, size]."""

import numpy as np
from numpy.typing import NDArray

from capsexp.errors import InputError

_CHUNK = 512  # images; bounds the memory for the sums


def fit(images: NDArray[np.uint8], size: int | None, channels: int, name: str) -> NDArray[np.uint8]:
    """[N, H, H] or [N, H, H, 3] → [N, channels, size, size], None for the size that they have.

    Raises InputError where that isn't possible.
    """
    grey = images.ndim == 3
    if channels == 1 and not grey:
        raise InputError(f"data.channels=1: must be 3, since the images of {name} are in colour")
    side = images.shape[1]
    size = side if size is None else size
    if images.shape[2] != side or size > side:
        raise InputError(f"data.size={size}: must be at most {side}; images of {name} are {side}×{images.shape[2]}")
    planes = images[:, None] if grey else images.transpose(0, 3, 1, 2)
    planes = planes if size == side else _averaged(planes, size)
    return np.array(np.broadcast_to(planes, (len(planes), channels, size, size)), order="C")


def _averaged(planes: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Each new pixel is the mean over the area that it covers, rounded half up; [N, C, H, H] → [N, C, size, size].

    With lengths counted in 1/size of an old pixel, an old pixel is `size` and a new one H long, so the weights are
    whole numbers with sum H², and everything up to the rounding is exact.
    """
    side = planes.shape[2]
    weights = _overlaps(side, size).astype(np.float64)
    averaged = np.empty((*planes.shape[:2], size, size), np.uint8)
    for start in range(0, len(planes), _CHUNK):
        sums = weights @ (planes[start : start + _CHUNK] @ weights.T)
        averaged[start : start + _CHUNK] = (2 * sums.astype(np.int64) + side**2) // (2 * side**2)
    return averaged


def _overlaps(old: int, new: int) -> NDArray[np.int64]:
    """[new, old]: how much of the old pixel i the new pixel j covers."""
    i, j = np.arange(old), np.arange(new)[:, None]
    covered: NDArray[np.int64] = np.minimum((j + 1) * old, (i + 1) * new) - np.maximum(j * old, i * new)
    return covered.clip(0)

"""Regions of full precision under autocast: routing logits, softmax, squash, norms and losses are in float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A context without autocast on the tensor's device; the meta device has no autocast."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; float64 stays float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()

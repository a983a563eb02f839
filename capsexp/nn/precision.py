"""Where bfloat16 stops: routing logits, softmax, squash, norms and losses are computed in float32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """No autocast on the tensor's device; tensors without storage (meta) have none to begin with."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if that is what it has."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()

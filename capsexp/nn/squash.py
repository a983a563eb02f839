"""The squash function: keeps the direction of a vector and maps its length to below one.

squash(s) = ‖s‖² / (k + ‖s‖²) · s / ‖s‖ = ‖s‖ s / (k + ‖s‖²), with k = 1 in Sabour et al. 2017, Eq. 1
(misprinted as Eq. 1 of jiao), and k = 0.5 in huang, Eq. 1. `exponential_squash` is that of mazzia.
"""

import torch
from torch import Tensor


def squash(s: Tensor, constant: float = 1.0) -> Tensor:
    """The squashed vectors, in the shape of `s`.

    Args:
        s: any shape, the pose size last.
        constant: k, above 0.

    The value and the gradient at s = 0 are 0: the second form has no division by ‖s‖, and torch defines
    the gradient of a norm at 0 as 0.
    """
    length = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s * (length / (constant + length.square()))


def exponential_squash(s: Tensor) -> Tensor:
    """(1 − e^−‖s‖) s / ‖s‖, in the shape of `s`, the pose size last (mazzia).

    Poses that are short keep their length, where `squash` gives its square. At s = 0 the gradient is the identity.
    """
    length = torch.linalg.vector_norm(s, dim=-1, keepdim=True).clamp(min=1e-7)
    return s * (-torch.expm1(-length) / length)

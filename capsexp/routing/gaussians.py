"""The Gaussians of EM routing (Hinton, Sabour, Frosst 2018, procedure 1): their fit to votes, and the votes' density.

Their gradients are written out, with c = v − μ and the normalised weights s_ij = R_ij a_i / Σ_k R_kj a_k:

μ_jd = Σ_i s_ij v_ijd                 G = ∂L/∂μ − 2 ∂L/∂σ² (μ − μ Σ_i s_ij)
σ²_jd = Σ_i s_ij c²_ijd               ∂v = s (G + 2 ∂L/∂σ² c),  ∂s_ij = Σ_d c (G + ∂L/∂σ² c) + Σ_d G μ

log p_ij = −½ Σ_d (c² / σ² + log σ²)  ∂v = −g c / σ²,  ∂μ = −Σ_i ∂v,  ∂σ² = ½ (Σ_i g c² / σ⁴ − Σ_i g / σ²)

Votes are by far the largest tensors of these networks. Autograd would keep several tensors of their size for the
backward pass of every iteration; here only the votes are kept.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Added to every σ²: the density of votes that agree exactly would be infinite.
VARIANCE_FLOOR = 1e-4

#: Added to every Σ_i R_ij, which is 0 where all children have activation 0.
WEIGHT_FLOOR = 1e-8


class Gaussians(NamedTuple):
    """One Gaussian with a diagonal covariance for each parent."""

    mean: Tensor  # μ, [..., J, D]
    variance: Tensor  # σ², [..., J, D]
    weight: Tensor  # Σ_i R_ij · J / I, [..., J]: 1 on average where all children have activation 1


def fitted(votes: Tensor, weights: Tensor) -> Gaussians:
    """The M-step's Gaussians, from votes [..., I, J, D] and weights R_ij · a_i, [..., I, J]."""
    total = weights.sum(dim=-2)
    mean, variance = _Moments.apply(votes, weights / (total[..., None, :] + WEIGHT_FLOOR))  # type: ignore[no-untyped-call]
    children, parents = weights.shape[-2:]
    return Gaussians(mean, variance + VARIANCE_FLOOR, total * (parents / children))


def log_density(votes: Tensor, gaussians: Gaussians) -> Tensor:
    """log p_ij of the votes [..., I, J, D] -> [..., I, J], without the constant D/2 · log 2π, which cancels."""
    density: Tensor = _LogDensity.apply(votes, gaussians.mean, gaussians.variance)  # type: ignore[no-untyped-call]
    return density


class _Moments(torch.autograd.Function):
    """Votes [..., I, J, D] and normalised weights [..., I, J] -> mean and variance, [..., J, D]."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        mean = (votes * weights[..., None]).sum(dim=-3)
        variance = (votes - mean[..., None, :, :]).square_().mul_(weights[..., None]).sum(dim=-3)
        ctx.save_for_backward(votes, weights, mean)
        return mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mean: Tensor, to_variance: Tensor) -> tuple[Tensor, Tensor]:
        votes, weights, mean = ctx.saved_tensors
        along = to_mean - 2 * to_variance * mean * (1 - weights.sum(dim=-2))[..., None]
        centred = votes - mean[..., None, :, :]
        slope = torch.addcmul(along[..., None, :, :], centred, to_variance[..., None, :, :])
        to_weights = (slope * centred).sum(dim=-1) + (along * mean).sum(dim=-1)[..., None, :]
        return slope.addcmul_(centred, to_variance[..., None, :, :]).mul_(weights[..., None]), to_weights


class _LogDensity(torch.autograd.Function):
    """Votes [..., I, J, D], mean and variance [..., J, D] -> [..., I, J]."""

    @staticmethod
    def forward(ctx: Any, votes: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        ctx.save_for_backward(votes, mean, variance)
        distances = (votes - mean[..., None, :, :]).square_().mul_(variance.reciprocal()[..., None, :, :])
        return (distances.sum(dim=-1) + variance.log().sum(dim=-1)[..., None, :]).div_(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        votes, mean, variance = ctx.saved_tensors
        pulled = (votes - mean[..., None, :, :]).mul_(variance.reciprocal()[..., None, :, :])
        weighted = pulled * gradient[..., None]
        to_variance = (weighted * pulled).sum(dim=-3) - gradient.sum(dim=-2)[..., None] / variance
        to_mean = weighted.sum(dim=-3)
        return weighted.neg_(), to_mean, to_variance / 2

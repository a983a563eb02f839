"""Variational Bayes routing (De Sousa Ribeiro, Leontidis, Kollias: Capsule Routing via Variational Bayes, AAAI 2020).

Parents are Gaussians with diagonal precisions Λ_j, mixed with weights π_j; unlike in EM routing they have priors.

R_ij ← 1 / J
for t iterations:
    for each parent j, the posteriors:
        R_ij ← R_ij · a_i,  R_j = Σ_i R_ij
        α_j = α_0 + R_j,  κ_j = κ_0 + R_j,  ν_j = ν_0 + R_j
        m_jh ← Σ_i R_ij V_ijh / κ_j
        1/Ψ_jh ← 1 + κ_0 m_jh² + Σ_i R_ij (V_ijh − m_jh)²
        E[ln π_j] = ψ(α_j) − ψ(Σ_k α_k)                                    ψ the digamma function
        E[ln |Λ_j|] = Σ_h ψ((ν_j + 1 − h) / 2) + D ln 2 + Σ_h ln Ψ_jh      h = 1, …, D
    for each child i:
        ln p_ij = (E[ln |Λ_j|] − D / κ_j − ν_j Σ_h Ψ_jh (V_ijh − m_jh)²) / 2
        R_ij ← π_j p_ij / Σ_k π_k p_ik,  π_j = exp E[ln π_j]
p_j = norm(m_j),  a_j = logistic(norm(β_a − π_j (β_u + H_j))),  H_j = (D ln 2πe − E[ln |Λ_j|]) / 2, the entropy

The priors are those of the authors' release: α_0 = κ_0 = 1, ν_0 = D + 1, mean 0, scale 1. So is `norm`, a batch norm of
each parent without weights: without it, deep networks' activations are 0 at first. The release has β_u outside of the
bracket, where it is the same as −β_a, and lacks π_j above the fraction bar. In a convolutional layer the parents that
compete for a child are those at one position, as in EM routing here.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp import Iterations
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing


class Posteriors(NamedTuple):
    """What is known of each parent's Gaussian."""

    mean: Tensor  # m, [..., J, D]
    distances: Tensor  # (V − m)², [..., I, J, D]
    scale: Tensor  # Ψ, [..., J, D]
    weight: Tensor  # R_j, [..., J]
    log_mixing: Tensor  # E[ln π], [..., J]
    log_precision: Tensor  # E[ln |Λ|], [..., J]


def posteriors(votes: Tensor, weights: Tensor) -> Posteriors:
    """From votes [..., I, J, D] and weights R_ij · a_i, [..., I, J]."""
    size = votes.shape[-1]
    weight = weights.sum(dim=-2)
    mean = torch.einsum("...ij,...ijd->...jd", weights, votes) / (1 + weight)[..., None]
    distances = (votes - mean[..., None, :, :]).square()
    inverse = 1 + mean.square() + torch.einsum("...ij,...ijd->...jd", weights, distances)
    log_mixing = torch.digamma(1 + weight) - torch.digamma((1 + weight).sum(dim=-1, keepdim=True))
    steps = torch.arange(size, device=votes.device, dtype=votes.dtype)
    digammas = torch.digamma((size + 1 + weight[..., None] - steps) / 2).sum(dim=-1)
    log_precision = digammas + size * math.log(2) - inverse.log().sum(dim=-1)
    return Posteriors(mean, distances, 1 / inverse, weight, log_mixing, log_precision)


class VariationalBayesRouting(Routing):
    """Votes [..., I, J, D] and activations [..., I] -> poses and activations of J parents, in float32 or float64.

    Args:
        parents: J, each with its own β_u and β_a, which are 0 at first.
        iterations: t, at least 1.

    Raises ValueError for children without activations.
    """

    presence = "activation"
    uses_activations = True

    def __init__(self, parents: int, *, iterations: Iterations = 3) -> None:
        super().__init__(iterations)
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))
        self.pose_norm = nn.BatchNorm1d(parents, affine=False)
        self.activation_norm = nn.BatchNorm1d(parents, affine=False)

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """[..., I, J, D], [..., I] -> the means [..., J, D], the activations [..., J]."""
        if activations is None:
            raise ValueError("variational Bayes routing weighs votes with activations, and the children have none")
        with full_precision(votes):
            votes, present = at_least_float32(votes), at_least_float32(activations)[..., None]
            found = posteriors(votes, present * self.softmax(votes.new_zeros(votes.shape[:-1])))
            for _ in range(self.iterations - 1):
                found = posteriors(votes, present * self.softmax(found.log_mixing[..., None, :] + log_density(found)))
            entropy = (votes.shape[-1] * math.log(2 * math.pi * math.e) - found.log_precision) / 2
            logits = self.beta_a - found.log_mixing.exp() * (self.beta_u + entropy)
            return Capsules(
                _normalised(found.mean, 2, self.pose_norm), _normalised(logits, 1, self.activation_norm).sigmoid()
            )


def log_density(found: Posteriors) -> Tensor:
    """E[ln p_ij] of the votes, [..., I, J], without the constant D/2 · ln 2π, which cancels."""
    size = found.mean.shape[-1]
    squares = (
        torch.einsum("...ijd,...jd->...ij", found.distances, found.scale) * (size + 1 + found.weight)[..., None, :]
    )
    return ((found.log_precision - size / (1 + found.weight))[..., None, :] - squares) / 2


def _normalised(values: Tensor, own: int, norm: nn.BatchNorm1d) -> Tensor:
    """Over all dimensions but J, the first of the last `own`; by the running statistics where there is one value."""
    flat = values.reshape(-1, *values.shape[-own:])
    several = norm.training and len(flat) > 1
    return functional.batch_norm(flat, norm.running_mean, norm.running_var, training=several).view_as(values)

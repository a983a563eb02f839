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

The priors are those of the authors' release: α_0 = κ_0 = 1, ν_0 = D + 1, mean 0, scale 1. The last makes 1 the unit of
votes: with matrices of standard deviation 1, R is one-hot and its gradient chaotic. From the release, too, is `norm`, a
batch norm of each parent without weights: without it, deep networks' activations are 0 at first. The release has β_u
outside of the bracket, where it is the same as −β_a, and lacks π_j above the fraction bar. In a convolutional layer the
parents that compete for a child are those at one position, as in EM routing here.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp import Iterations
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing

#: Of the norms' running mean and variance.
NORM_MOMENTUM = 0.1


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
    log_mixing = digamma(1 + weight) - digamma((1 + weight).sum(dim=-1, keepdim=True))
    steps = torch.arange(size, device=votes.device, dtype=votes.dtype)
    digammas = digamma((size + 1 + weight[..., None] - steps) / 2).sum(dim=-1)
    log_precision = digammas + size * math.log(2) - inverse.log().sum(dim=-1)
    return Posteriors(mean, distances, 1 / inverse, weight, log_mixing, log_precision)


def digamma(x: Tensor) -> Tensor:
    """ψ(x) for x of at least 1, to 1e-12 in float64, in operators that ONNX has (DLMF 5.5.2 and 5.11.2)."""
    y = x + 8
    square = y.square().reciprocal()
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return y.log() - 0.5 / y - series - sum((x + k).reciprocal() for k in range(8))


class VariationalBayesRouting(Routing):
    """Votes [..., I, J, D] and activations [..., I] -> poses and activations of J parents, in float32 or float64.

    Args:
        parents: J, each with its own β_u and β_a, which are 0 at first.
        iterations: t, at least 1.

    Raises ValueError for children without activations.
    """

    presence = "activation"
    uses_activations = True
    scale = 0.04  # about that of the release, Xavier's

    def __init__(self, *, parents: int, iterations: Iterations = 3) -> None:
        super().__init__(iterations, parents=parents)
        self.beta_u = nn.Parameter(torch.zeros(parents))
        self.beta_a = nn.Parameter(torch.zeros(parents))
        self.pose_norm = nn.BatchNorm1d(parents, affine=False, momentum=NORM_MOMENTUM)
        self.activation_norm = nn.BatchNorm1d(parents, affine=False, momentum=NORM_MOMENTUM)

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """[..., I, J, D], [..., I] -> the means [..., J, D], the activations [..., J]."""
        if activations is None:
            raise ValueError("variational Bayes routing weighs votes with activations, and the children have none")
        with full_precision(votes):
            votes, present = at_least_float32(votes), at_least_float32(activations)[..., None]
            known = posteriors(votes, present * self.softmax(votes.new_zeros(votes.shape[:-1])))
            for _ in range(self.iterations - 1):
                known = posteriors(votes, present * self.softmax(known.log_mixing[..., None, :] + log_density(known)))
            entropy = (votes.shape[-1] * math.log(2 * math.pi * math.e) - known.log_precision) / 2
            logits = self.beta_a - known.log_mixing.exp() * (self.beta_u + entropy)
            activations = _over_batch(logits, 1, self.activation_norm).sigmoid()
            return Capsules(_over_batch(known.mean, 2, self.pose_norm), activations)


def log_density(known: Posteriors) -> Tensor:
    """E[ln p_ij] of the votes, [..., I, J], without the constant D/2 · ln 2π, which cancels."""
    size = known.mean.shape[-1]
    squares = torch.einsum("...ijd,...jd->...ij", known.distances, known.scale)
    squares = squares * (size + 1 + known.weight)[..., None, :]
    return ((known.log_precision - size / (1 + known.weight))[..., None, :] - squares) / 2


def _over_batch(values: Tensor, own: int, norm: nn.BatchNorm1d) -> Tensor:
    """Normalised over all dimensions but J, the first of the last `own`.

    In evaluation, and where a process has one value alone, by the running statistics, corrected as Adam corrects its
    moments: after n batches 0.9ⁿ of them is still the 0 and 1 that they start with, and the variance is about 1e-4.
    """
    flat = values.reshape(-1, *values.shape[-own:])
    if norm.training and (len(flat) > 1 or isinstance(norm, nn.SyncBatchNorm)):
        return norm(flat).view_as(values)
    assert norm.num_batches_tracked is not None
    start = (1 - NORM_MOMENTUM) ** norm.num_batches_tracked.to(flat.dtype)
    seen = (1 - start).clamp(min=NORM_MOMENTUM)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance = norm.running_mean / seen, torch.where(start < 1, (norm.running_var - start) / seen, 1)
    return functional.batch_norm(flat, mean, variance, eps=norm.eps).view_as(values)

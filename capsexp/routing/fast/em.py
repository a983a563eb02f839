"""One iteration of EM routing (Hinton, Sabour, Frosst 2018, procedure 1) without stored votes: on the CPU the loops of
`loops`, on CUDA the kernels of `triton_em`, each where it applies.

E-step     R_ij ← softmax_j(offset_j − ½ Σ_d precision_jd (v_ijd − μ'_jd)²)      μ' of the iteration before
M-step     w_ij = R_ij a_i,  T_j = Σ_i w_ij,  μ_jd = Σ_i s_ij v_ijd,  σ²_jd = Σ_i s_ij c²_ijd
           with s_ij = w_ij / (T_j + ε) and c = v − μ

The backward pass computes the votes and R again; children, matrices and Gaussians are all that is kept. With
G = ∂L/∂μ − 2 ∂L/∂σ² μ (1 − Σ_i s_ij), and Σ_i s_ij ∂s_ij = Σ_d (G μ + ∂L/∂σ² σ²):

∂s_ij  = Σ_d (c (G + ∂L/∂σ² c) + G μ)
∂w_ij  = ∂L/∂T_j + Σ_d (G c + ∂L/∂σ² (c² − σ²)) / (T_j + ε)
∂v_ijd = s_ij (G + 2 ∂L/∂σ² c) − l_ij precision_jd (v − μ'),  l_ij = R_ij (a_i ∂w_ij − Σ_k R_ik a_i ∂w_ik)
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules
from capsexp.routing.em import VARIANCE_FLOOR, WEIGHT_FLOOR, EMRouting, Gaussians
from capsexp.routing.fast.loops import Loops, em_backward, em_forward
from capsexp.routing.fast.votes import FastRouting, VoteInputs, in_autocast_dtype


class FastEMRouting(FastRouting, EMRouting):
    """EMRouting, without stored votes."""

    def applies(self, votes: VoteInputs) -> bool:
        """Where there are activations, and loops or kernels."""
        if votes.activations is None:
            return False
        if votes.poses.is_cuda and find_spec("triton"):
            from capsexp.routing.fast import triton_em

            return triton_em.applies(votes.poses, votes.weight)
        return super().applies(votes)

    def forward(self, votes: Tensor | VoteInputs, activations: Tensor | None = None) -> Capsules:
        """All iterations: -> the means [..., J, D], the activations [..., J]."""
        if not isinstance(votes, VoteInputs):
            return super().forward(votes, activations)
        assignment: Sequence[Tensor] = ()
        weight = in_autocast_dtype(votes.weight)
        with full_precision(weight):
            for iteration in range(1, self.iterations + 1):
                gaussians = fitted_without_votes(votes, weight, assignment)
                logits = self.logits(gaussians, iteration)
                scale = 1 / gaussians.mean.shape[-1] if self.density == "mean" else 1  # of log p
                offset = logsigmoid(logits) - scale * gaussians.variance.log().sum(dim=-1) / 2
                assignment = gaussians.mean, scale / gaussians.variance, offset
            return Capsules(votes.of_places(gaussians.mean), votes.of_places(logits.sigmoid()))


def fitted_without_votes(votes: VoteInputs, weight: Tensor, assignment: Sequence[Tensor]) -> Gaussians:
    """The Gaussians [B, H', W', J, …] of an iteration.

    Args:
        votes: with activations.
        weight: theirs, in the type of the products' factors.
        assignment: of the iteration before, mean and precision [B, H', W', J, D] and offset [B, H', W', J], with which
            log p_ij + log a_j = offset_j − ½ Σ_d precision_jd (v_ijd − mean_jd)²; on a CPU also queries
            [B, H', W', J, D] alone, with which R_i is the softmax of v_ij · query_j; with nothing all R_ij are 1/J.
    """
    assert votes.activations is not None
    children = at_least_float32(votes.poses)
    inputs = children, weight, votes.activations.to(children.dtype), *assignment
    total, mean, variance = _Iteration.apply(votes.kernel, votes.stride, *inputs)  # type: ignore[no-untyped-call]
    return Gaussians(mean, variance + VARIANCE_FLOOR, total * (total.shape[-1] / len(weight)))


class _Iteration(torch.autograd.Function):
    """An E-step and the M-step -> T, μ, σ² without its floor."""

    @staticmethod
    def forward(ctx: Any, kernel: int, stride: int, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        children, weight, activations, *assignment = tensors
        if loops := Loops.of(children, weight, kernel, stride):
            moments = em_forward(loops, activations, assignment)
        else:
            from capsexp.routing.fast import triton_em

            with torch.cuda.device_of(children):  # type: ignore[no-untyped-call]  # Triton launches on the current GPU
                moments = triton_em.forward(children, weight, activations, assignment, kernel, stride)
        ctx.save_for_backward(*tensors, *moments)
        ctx.window = kernel, stride
        return moments

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, grad_mean: Tensor, grad_variance: Tensor) -> tuple[Tensor | None, ...]:
        children, weight, activations, *assignment, total, mean, variance = ctx.saved_tensors
        scale = (total + WEIGHT_FLOOR).reciprocal()
        quadratic = grad_variance * scale[..., None]
        linear = grad_mean * scale[..., None] - 2 * quadratic * mean * (WEIGHT_FLOOR * scale)[..., None]
        moments = mean, grad_total - (quadratic * variance).sum(dim=-1), linear, quadratic
        if loops := Loops.of(children, weight, *ctx.window):
            return None, None, *em_backward(loops, activations, assignment, moments)
        from capsexp.routing.fast import triton_em

        return None, None, *triton_em.backward(children, weight, activations, assignment, moments, *ctx.window)

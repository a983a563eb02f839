"""One iteration of EM routing (Hinton, Sabour, Frosst 2018, procedure 1) without stored votes: on the CPU the loops of
`compiled`, on CUDA the kernels of `triton_em`, each where it applies.

E-step     R_ij ← softmax_j(offset_j − ½ Σ_d precision_jd (v_ijd − μ'_jd)²)      μ' of the iteration before
M-step     w_ij = R_ij a_i,  T_j = Σ_i w_ij,  μ_jd = Σ_i s_ij v_ijd,  σ²_jd = Σ_i s_ij c²_ijd
           with s_ij = w_ij / (T_j + ε) and c = v − μ

The backward pass computes the votes and R again; children, matrices and Gaussians are all that is kept. With
G = ∂L/∂μ − 2 ∂L/∂σ² μ (1 − Σ_i s_ij), and Σ_i s_ij ∂s_ij = Σ_d (G μ + ∂L/∂σ² σ²) (see `gaussians` for ∂s):

∂w_ij  = ∂L/∂T_j + Σ_d (G c + ∂L/∂σ² (c² − σ²)) / (T_j + ε)
∂v_ijd = s_ij (G + 2 ∂L/∂σ² c) − l_ij precision_jd (v − μ'),  l_ij = R_ij (a_i ∂w_ij − Σ_k R_ik a_i ∂w_ik)
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.capsules import factor
from capsexp.nn.precision import at_least_float32
from capsexp.nn.routing import VoteInputs
from capsexp.routing.compiled import Loops, em_backward, em_forward
from capsexp.routing.gaussians import VARIANCE_FLOOR, WEIGHT_FLOOR, Gaussians


class Assignment(NamedTuple):
    """What the E-step reads: log p_ij + log a_j = offset_j − ½ Σ_d precision_jd (v_ijd − mean_jd)²."""

    mean: Tensor  # [B, H', W', J, D]
    precision: Tensor  # [B, H', W', J, D]
    offset: Tensor  # [B, H', W', J]


class RecomputedVotes:
    """The votes of a layer, recomputed in each iteration.

    Args:
        inputs: with activations.
    """

    def __init__(self, inputs: VoteInputs) -> None:
        assert inputs.activations is not None
        self.children, self.weight = at_least_float32(inputs.poses), factor(inputs.weight)
        self.activations, self.window = inputs.activations.to(self.children.dtype), (inputs.kernel, inputs.stride)

    @property
    def fusible(self) -> bool:
        """Whether `fitted` can be called."""
        if self.children.is_cuda and find_spec("triton"):
            from capsexp.routing import triton_em

            return triton_em.applies(self.children, self.weight)
        return Loops.of(self.children, self.weight, *self.window) is not None

    def fitted(self, assignment: Assignment | None) -> Gaussians:
        """The Gaussians [B, H', W', J, …] of an iteration; without assignment all R_ij are 1/J."""
        arguments = assignment or (None, None, None)
        moments = _Iteration.apply(self.children, self.weight, self.activations, *arguments, *self.window)  # type: ignore[no-untyped-call]
        total, mean, variance = moments
        return Gaussians(mean, variance + VARIANCE_FLOOR, total * (total.shape[-1] / len(self.weight)))


class _Iteration(torch.autograd.Function):
    """An E-step and the M-step -> T, μ, σ² without its floor."""

    @staticmethod
    def forward(
        ctx: Any, children: Tensor, weight: Tensor, activations: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        *assignment, kernel, stride = rest
        if loops := Loops.of(children, weight, kernel, stride):
            total, mean, variance = em_forward(loops, activations, assignment)
        else:
            from capsexp.routing import triton_em

            total, mean, variance = triton_em.forward(children, weight, activations, assignment, kernel, stride)
        ctx.save_for_backward(children, weight, activations, *assignment, total, mean, variance)
        ctx.window = kernel, stride
        return total, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_total: Tensor, by_mean: Tensor, by_variance: Tensor) -> tuple[Tensor | None, ...]:
        children, weight, activations, *assignment, total, mean, variance = ctx.saved_tensors
        scale = (total + WEIGHT_FLOOR).reciprocal()
        quadratic = by_variance * scale[..., None]
        linear = by_mean * scale[..., None] - 2 * quadratic * mean * (WEIGHT_FLOOR * scale)[..., None]
        moments = mean, by_total - (quadratic * variance).sum(dim=-1), linear, quadratic
        if loops := Loops.of(children, weight, *ctx.window):
            found = em_backward(loops, weight, activations, assignment, moments)
        else:
            from capsexp.routing import triton_em

            found = triton_em.backward(children, weight, activations, assignment, moments, *ctx.window)
        return *found, None, None

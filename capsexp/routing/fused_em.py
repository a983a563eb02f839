"""One iteration of EM routing (Hinton, Sabour, Frosst 2018, procedure 1) without stored votes, on the CPU.

E-step     R_ij ← softmax_j(offset_j − ½ Σ_d precision_jd (v_ijd − μ'_jd)²)      μ' of the iteration before
M-step     w_ij = R_ij a_i,  T_j = Σ_i w_ij,  μ_jd = Σ_i s_ij v_ijd,  σ²_jd = Σ_i s_ij c²_ijd
           with s_ij = w_ij / (T_j + ε) and c = v − μ

The backward pass computes the votes and R again; children, matrices and Gaussians are all that is kept. With
G = ∂L/∂μ − 2 ∂L/∂σ² μ (1 − Σ_i s_ij), and Σ_i s_ij ∂s_ij = Σ_d (G μ + ∂L/∂σ² σ²) (see `gaussians` for ∂s):

∂w_ij  = ∂L/∂T_j + Σ_d (G c + ∂L/∂σ² (c² − σ²)) / (T_j + ε)
∂v_ijd = s_ij (G + 2 ∂L/∂σ² c) − l_ij precision_jd (v − μ'),  l_ij = R_ij (a_i ∂w_ij − Σ_k R_ik a_i ∂w_ik)
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.capsules import factor
from capsexp.nn.precision import at_least_float32
from capsexp.nn.routing import VoteInputs
from capsexp.routing.compiled import PLACES, Loops
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
    def compiled(self) -> bool:
        """Whether `fitted` can be called."""
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
        loops = Loops.of(children, weight, kernel, stride)
        assert loops is not None
        total = loops.new(loops.parents)
        mean, variance = (loops.new(loops.inner, loops.rows, loops.parents) for _ in range(2))
        split = [loops.children, activations.contiguous(), *_packed(loops, assignment), total, mean, variance]
        kept = children.new_empty(loops.threads, PLACES * len(weight) * loops.parents)
        loops.run("em_forward", [loops.repeated(), kept], split)
        mean, variance = loops.unpack(mean), loops.unpack(variance)
        ctx.save_for_backward(children, weight, activations, *assignment, total, mean, variance)
        ctx.window = kernel, stride
        return total, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_total: Tensor, by_mean: Tensor, by_variance: Tensor) -> tuple[Tensor | None, ...]:
        children, weight, activations, *assignment, total, mean, variance = ctx.saved_tensors
        loops = Loops.of(children, weight, *ctx.window)
        assert loops is not None
        scale = (total + WEIGHT_FLOOR).reciprocal()
        quadratic = by_variance * scale[..., None]
        linear = by_mean * scale[..., None] - 2 * quadratic * mean * (WEIGHT_FLOOR * scale)[..., None]
        constant = by_total - (quadratic * variance).sum(dim=-1)
        packed = _packed(loops, assignment)
        reads = [*packed, loops.pack(mean), constant, loops.pack(linear), loops.pack(quadratic)]
        by_children, by_activations = torch.zeros_like(loops.children), torch.zeros_like(activations.contiguous())
        by_matrices = torch.zeros_like(loops.repeated(), memory_format=torch.contiguous_format)
        by_assignment = [None if part is None else torch.empty_like(part) for part in packed]
        split = [loops.children, activations.contiguous(), *reads, by_children, by_activations, *by_assignment]
        loops.run("em_backward", [loops.repeated(), by_matrices], split)
        gradients = by_children, loops.summed(by_matrices, weight), by_activations
        by_old, by_precision, by_offset = by_assignment
        if by_old is None or by_precision is None:
            return *gradients, None, None, None, None, None
        return *gradients, loops.unpack(by_old), loops.unpack(by_precision), by_offset, None, None


def _packed(loops: Loops, assignment: list[Tensor | None]) -> list[Tensor | None]:
    """Mean, precision and offset in the layout of the loops."""
    mean, precision, offset = assignment
    if mean is None or precision is None or offset is None:
        return [None, None, None]
    return [loops.pack(mean), loops.pack(precision), offset.contiguous()]

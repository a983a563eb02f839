"""One iteration of inverted dot-product routing (tsai, procedure 1) without stored votes: on the CPU the loops of
`loops`, on CUDA the kernels of `triton_inverted`.

s_j = Σ_i r_ij v_ij,  r_i = softmax_j(p_j · v_ij / √D),  v_ij = W_ij p_i

The votes for one parent have K · I · D / C times as many elements as the pose of one child: hundreds of megabytes in
the papers' networks. As in attention that doesn't materialise its matrix, votes are computed for a few children,
compared with the parents' previous poses p_j (the queries), weighted, summed and discarded. The backward pass
recomputes them from children, matrices and queries, the only tensors that are kept. With g_j = ∂L/∂s_j:

∂r_ij = g_j · v_ij,  ∂a_ij = r_ij (∂r_ij − Σ_l r_il ∂r_il),  a_ij = p_j · v_ij / √D
∂v_ij = r_ij g_j + ∂a_ij p_j / √D,  ∂p_j = Σ_i ∂a_ij v_ij / √D,  ∂W_ij = Σ ∂v_ij p_iᵀ,  ∂p_i = Σ W_ijᵀ ∂v_ij

With activations a_i, s_j = Σ_i a_i r_ij v_ij is T_j + ε times the mean of EM routing's M-step, see `em`, whose loops
take queries p_j / √D for r_ij.

One layout serves both structures: W_ij is Z × Y, a child Y × X, a vote Z × X, with X = 1 for vectors and X = Y = Z = √D
for matrices. A linear layer is a convolution with one position and a kernel of 1.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules
from capsexp.routing.em import WEIGHT_FLOOR, Activation
from capsexp.routing.fast.em import fitted_without_votes
from capsexp.routing.fast.loops import Loops, inverted_backward, inverted_forward
from capsexp.routing.fast.votes import FastRouting, VoteInputs, in_autocast_dtype
from capsexp.routing.inverted import InvertedRouting


class FastInvertedRouting(FastRouting, InvertedRouting):
    """InvertedRouting, without stored votes where it applies."""

    def applies(self, votes: VoteInputs) -> bool:
        """Where there are loops or kernels; with activations where there are loops and children with activations."""
        if votes.poses.is_cuda:
            return not self.uses_activations and find_spec("triton") is not None
        return (votes.activations is not None or not self.uses_activations) and super().applies(votes)

    def iteration(self, votes: Tensor | VoteInputs, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first: all r_ij are 1/J."""
        if not isinstance(votes, VoteInputs):
            return super().iteration(votes, activations, parents)
        if self.activation is not None:
            return self._with_activations(votes, parents, self.activation)
        if parents is None:
            total = votes.sum()
            with full_precision(total):
                return Capsules(self.norm(at_least_float32(total) / total.shape[-2]))
        weight = in_autocast_dtype(votes.weight)  # under autocast only the factors of products, no sums, have its type
        with full_precision(weight):
            inputs = at_least_float32(votes.poses), weight, _on_grid(parents)
            total = _Iteration.apply(votes.kernel, votes.stride, *inputs)  # type: ignore[no-untyped-call]
            return Capsules(self.norm(votes.of_places(total)))

    def _with_activations(self, votes: VoteInputs, parents: Tensor | None, activation: Activation) -> Capsules:
        """One iteration with activations; the module's docstring has the formula."""
        weight = in_autocast_dtype(votes.weight)
        with full_precision(weight):
            queries = [] if parents is None else [_on_grid(parents) / parents.shape[-1] ** 0.5]
            gaussians = fitted_without_votes(votes, weight, queries)
            divisor = gaussians.weight * (len(weight) / weight.shape[1]) + WEIGHT_FLOOR  # T_j + ε
            poses = self.norm(gaussians.mean * divisor[..., None])
            present = activation(gaussians, self.inverse_temperature).sigmoid()
            return Capsules(votes.of_places(poses), votes.of_places(present))


def _on_grid(parents: Tensor) -> Tensor:
    """[..., J, D] -> [B, H', W', J, D], of a linear layer with one place."""
    return at_least_float32(parents if parents.ndim == 5 else parents[:, None, None])


class _Iteration(torch.autograd.Function):
    """`forward` and `backward` of the loops or the kernels as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, kernel: int, stride: int, children: Tensor, weight: Tensor, parents: Tensor) -> Tensor:
        ctx.save_for_backward(children, weight, parents)
        ctx.window = kernel, stride
        if loops := Loops.of(children, weight, kernel, stride):
            return inverted_forward(loops, parents)
        from capsexp.routing.fast import triton_inverted

        with torch.cuda.device_of(children):  # type: ignore[no-untyped-call]  # Triton launches on the current GPU
            return triton_inverted.forward(children, weight, parents, kernel, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        children, weight, parents = ctx.saved_tensors
        if loops := Loops.of(children, weight, *ctx.window):
            return None, None, *inverted_backward(loops, parents, gradient)
        from capsexp.routing.fast import triton_inverted

        return None, None, *triton_inverted.backward(gradient, children, weight, parents, *ctx.window)

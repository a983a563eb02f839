"""Dynamic routing without stored votes: on a CPU, by the loops of `loops`.

All agreements of a child with a parent, b_ij = Σ_t û_ij · v_j, are one product, û_ij · q_j, with a query
q_j = Σ_t v_j; with logits=replace it is v_j of the iteration before. So an iteration reads children, matrices and
queries only:

s_j = Σ_i c_ij û_ij,  c_i = softmax_j(û_ij · q_j)       q_j = 0 in the first

The backward pass computes the votes again. With g_j = ∂L/∂s_j:

∂b_ij = c_ij (g_j · û_ij − Σ_k c_ik g_k · û_ik),  ∂û_ij = c_ij g_j + ∂b_ij q_j,  ∂q_j = Σ_i ∂b_ij û_ij
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules
from capsexp.nn.squash import squash
from capsexp.routing.dynamic import DynamicRouting
from capsexp.routing.fast.loops import LanesLoops, dynamic_backward, dynamic_forward
from capsexp.routing.fast.votes import FastRouting, VoteInputs, in_autocast_dtype

#: Max numbers in a row of a child's pose: with more, computing votes again takes longer than storing them.
MAX_COLUMNS = 16


class FastDynamicRouting(FastRouting, DynamicRouting):
    """DynamicRouting, without stored votes."""

    def applies(self, votes: VoteInputs) -> bool:
        """On a CPU where there are loops, for poses of at most MAX_COLUMNS."""
        here = votes.poses.device.type == "cpu" and votes.weight.shape[3] <= MAX_COLUMNS
        return here and super().applies(votes)

    def forward(self, votes: Tensor | VoteInputs, activations: Tensor | None = None) -> Capsules:
        """All iterations: -> poses [..., J, D]."""
        if not isinstance(votes, VoteInputs):
            return super().forward(votes, activations)
        options = self.iterations, self.squash_constant, self.accumulate, self.detach
        weight = in_autocast_dtype(votes.weight)
        with full_precision(weight):
            inputs = at_least_float32(votes.poses), weight, votes.kernel, votes.stride
            total: Tensor = _ByLoops.apply(*inputs, *options)  # type: ignore[no-untyped-call]
            return Capsules(squash(votes.of_places(total), self.squash_constant))


class _ByLoops(torch.autograd.Function):
    """All iterations: [B, H, W, I, C] and [K · I, J, Z, Y] -> s of the last one, [B, H', W', J, D]."""

    @staticmethod
    def forward(ctx: Any, children: Tensor, weight: Tensor, kernel: int, stride: int, *options: Any) -> Tensor:
        iterations, squash_constant, accumulate, _ = options
        loops = LanesLoops.of(children, weight, kernel, stride)
        assert loops is not None
        query, queries, totals = None, list[Tensor](), [dynamic_forward(loops, None)]
        for _ in range(iterations - 1):
            parents = squash(totals[-1], squash_constant)
            query = parents if query is None or not accumulate else query + parents
            queries.append(query)
            totals.append(dynamic_forward(loops, query))
        ctx.save_for_backward(*queries, *totals[:-1])
        ctx.loops, ctx.options = loops, options
        return totals[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        iterations, squash_constant, accumulate, detach = ctx.options
        rest, loops = [*ctx.saved_tensors], ctx.loops
        queries, totals = [None, *rest[: iterations - 1]], rest[iterations - 1 :]
        sums, grad_parents = loops.zeros(), None
        while True:
            grad_query = dynamic_backward(loops, queries.pop(), grad_total.contiguous(), sums, detach or not totals)
            if grad_query is None:
                return sums[0], loops.summed(sums[1]), *[None] * 6
            grad_parents = grad_query if grad_parents is None or not accumulate else grad_parents + grad_query
            grad_total = _through_squash(totals.pop(), grad_parents, squash_constant)


def _through_squash(s: Tensor, grad_squashed: Tensor, constant: float) -> Tensor:
    """The gradient by s, from that by squash(s) = ‖s‖ s / (k + ‖s‖²); 0 at s = 0."""
    length = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    below = constant + length.square()
    along = (s * grad_squashed).sum(dim=-1, keepdim=True) * (constant - length.square()) / below.square()
    return grad_squashed * length / below + s * torch.where(length > 0, along / length, 0)

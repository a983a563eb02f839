"""Dynamic routing on a GPU by matrix products without votes, in value and gradient; the procedure is in
capsexp.routing.dynamic.

A vote û_ij = W_ij u_i occurs in two expressions only, and both can be computed without it:

s_j = Σ_i c_ij û_ij = Σ_(c,i) (c_ij u_ic) W_ij·c        for each parent a product of [B, C·I] and [C·I, D]
û_ij · x_j          = Σ_c u_ic (W_ijᵀ x_j)_c            for each parent a product of [B, D] and [D, C·I]

The products are large enough for matrix units; their cost grows with C, that of the procedure on votes with D. The
backward pass uses the same two expressions and is written out, since automatic differentiation would keep the
intermediate results of all iterations. I is innermost, so that sums over the C components run along contiguous memory.
Logits, coefficients and parents are in float32 at least. `grad_x` is the gradient of the loss by x.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.precision import full_precision
from capsexp.nn.squash import squash
from capsexp.routing.fast.votes import VoteInputs, in_autocast_dtype


def applies(votes: VoteInputs) -> bool:
    """Not in convolutional layers, for matrix poses and for C > D."""
    rows, columns = votes.weight.shape[-2:]
    return not votes.places and votes.poses.shape[-1] == columns <= rows


def routed(
    poses: Tensor, weight: Tensor, iterations: int, squash_constant: float, accumulate: bool, detach: bool
) -> Tensor:
    """Child poses [B, I, C] and vector matrices [I, J, D, C] -> parent poses [B, J, D], after all iterations.

    `accumulate` and `detach` are those of DynamicRouting. Under autocast the products are in its type.
    """
    weight = in_autocast_dtype(weight)
    poses = poses.to(weight.dtype)
    with full_precision(poses):
        children = poses.transpose(1, 2).contiguous()
        matrices = weight.permute(1, 2, 3, 0).flatten(2).contiguous()
        options = iterations, squash_constant, accumulate, detach
        totals: Tensor = _LastTotals.apply(children, matrices, *options)  # type: ignore[no-untyped-call]
        return squash(totals.transpose(0, 1), squash_constant)


class _LastTotals(torch.autograd.Function):
    """`route` and `gradients` as one operation of autograd: [B, C, I] and [J, D, C·I] -> [J, B, D]."""

    @staticmethod
    def forward(ctx: Any, children: Tensor, matrices: Tensor, iterations: int, *options: Any) -> Tensor:
        (*totals, last), logits = route(children, matrices, iterations, *options)
        ctx.save_for_backward(children, matrices, *totals, *logits)
        ctx.options = options
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        trains = ctx.needs_input_grad[1]
        grad_children, grad_matrices = gradients(
            ctx.saved_tensors, grad_total.contiguous(), *ctx.options, trains=trains
        )
        return grad_children, grad_matrices if trains else None, None, None, None, None


def route(
    children: Tensor, matrices: Tensor, iterations: int, squash_constant: float, accumulate: bool, detach: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """[B, C, I] and [J, D, C·I] -> s of each iteration, [J, B, D], and the logits that follow from each but the last,
    [J, B, I].
    """
    transposed = matrices.mT.contiguous()
    totals, logits = [_weighted(children, transposed, None)], list[Tensor]()
    for _ in range(iterations - 1):
        agreement = _agreement(children, matrices, squash(totals[-1], squash_constant))
        logits.append(logits[-1] + agreement if logits and accumulate else agreement)
        totals.append(_weighted(children, transposed, logits[-1].softmax(dim=0)))
    return totals, logits


def gradients(
    saved: tuple[Tensor, ...],
    grad_total: Tensor,
    squash_constant: float,
    accumulate: bool,
    detach: bool,
    *,
    trains: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients by children and, if `trains`, by matrices, from `grad_total`, that by the last s.

    `saved` are children, matrices, and the s and the logits of all iterations but the last, as `route` takes and
    returns them.
    """
    children, matrices, *steps = saved
    totals, logits = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    sums, transposed = _Gradients(children, matrices, trains), matrices.mT.contiguous()
    grad_logits: Tensor | None = None
    for before, b in zip(reversed(totals), reversed(logits), strict=True):
        c = b.softmax(dim=0)
        grad_c = sums.add(c, grad_total, agreement=not detach)  # of s_j = Σ_i c_ij û_ij
        if detach:
            return sums.children.to(children.dtype), sums.matrices.to(matrices.dtype)
        assert grad_c is not None
        change = c * (grad_c - (c * grad_c).sum(dim=0))
        grad_logits = change if grad_logits is None or not accumulate else change + grad_logits
        sums.add(grad_logits, squash(before, squash_constant), agreement=False)  # of û_ij · v_j
        grad_parents = _weighted(children, transposed, grad_logits)
        grad_total = through_squash(before, grad_parents, squash_constant)
    first = grad_total.new_full((len(matrices), len(children), children.shape[-1]), 1 / len(matrices))
    sums.add(first, grad_total, agreement=False)
    return sums.children.to(children.dtype), sums.matrices.to(matrices.dtype)


class _Gradients:
    """The gradients by children and matrices, summed over all occurrences of the votes, in float32 at least."""

    def __init__(self, children: Tensor, matrices: Tensor, trains: bool) -> None:
        self.u, self.w, self.trains = children, matrices, trains
        self.children = children.new_zeros(children.shape, dtype=_wide(children))
        self.matrices = matrices.new_zeros(matrices.shape if trains else 0, dtype=_wide(children))

    def add(self, scale: Tensor, x: Tensor, agreement: bool) -> Tensor | None:
        """Adds those of Σ_ij scale_ij û_ij · x_j; with `agreement` returns that by the scale, û_ij · x_j, [J, B, I]."""
        x, weights = x.to(self.w.dtype), scale[:, :, None].to(self.u.dtype)
        down = _components(x @ self.w, self.u)
        self.children += (down * weights.to(self.children.dtype)).sum(dim=0)
        if self.trains:
            self.matrices += x.mT @ (self.u * weights).flatten(2)
        return _summed(down * self.u) if agreement else None


def _weighted(children: Tensor, matrices: Tensor, coefficients: Tensor | None) -> Tensor:
    """s_j = Σ_i c_ij û_ij, [J, B, D], with c of [J, B, I], or 1/J, and matrices of [J, C·I, D]."""
    if coefficients is None:
        return (children.flatten(1)[None] @ matrices).to(_wide(children)) / len(matrices)
    scaled = children * coefficients[:, :, None].to(children.dtype)
    return (scaled.flatten(2) @ matrices).to(_wide(children))


def _agreement(children: Tensor, matrices: Tensor, parents: Tensor) -> Tensor:
    """û_ij · v_j, [J, B, I], with v of [J, B, D]."""
    return _summed(_components(parents.to(matrices.dtype) @ matrices, children) * children)


def through_squash(s: Tensor, grad_squashed: Tensor, constant: float) -> Tensor:
    """The gradient by s, from that by squash(s) = ‖s‖ s / (k + ‖s‖²); 0 at s = 0."""
    length = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    below = constant + length.square()
    along = (s * grad_squashed).sum(dim=-1, keepdim=True) * (constant - length.square()) / below.square()
    return grad_squashed * length / below + s * torch.where(length > 0, along / length, 0)


def _components(product: Tensor, children: Tensor) -> Tensor:
    return product.view(*product.shape[:-1], *children.shape[1:])


def _summed(products: Tensor) -> Tensor:
    return products.sum(dim=-2, dtype=_wide(products))


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)

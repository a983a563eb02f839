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
        totals: Tensor = _ByProducts.apply(children, matrices, *options)  # type: ignore[no-untyped-call]
        return squash(totals.transpose(0, 1), squash_constant)


class _ByProducts(torch.autograd.Function):
    """All iterations: [B, C, I] and [J, D, C·I] -> s of the last one, [J, B, D]."""

    @staticmethod
    def forward(ctx: Any, children: Tensor, matrices: Tensor, iterations: int, *options: Any) -> Tensor:
        squash_constant, accumulate, _ = options
        transposed = matrices.mT.contiguous()
        totals, logits = [_weighted(children, transposed, None)], list[Tensor]()
        for _ in range(iterations - 1):
            agreement = _summed(_down(squash(totals[-1], squash_constant), matrices, children) * children)
            logits.append(logits[-1] + agreement if logits and accumulate else agreement)
            totals.append(_weighted(children, transposed, logits[-1].softmax(dim=0)))
        ctx.save_for_backward(children, matrices, *totals[:-1], *logits)
        ctx.options = options
        return totals[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        children, matrices, *steps = ctx.saved_tensors
        squash_constant, accumulate, detach = ctx.options
        totals, logits = steps[: len(steps) // 2], steps[len(steps) // 2 :]
        transposed, wide = matrices.mT.contiguous(), _wide(children)
        grad_children, grad_matrices = torch.zeros_like(children, dtype=wide), None
        if ctx.needs_input_grad[1]:
            grad_matrices = torch.zeros_like(matrices, dtype=wide)

        def add(scale: Tensor, x: Tensor) -> Tensor:
            """Adds the gradients of Σ_ij scale_ij û_ij · x_j; returns W_ijᵀ x_j, [J, B, C, I]."""
            x, weights = x.to(matrices.dtype), scale[:, :, None].to(children.dtype)
            down = _down(x, matrices, children)
            grad_children.add_((down * weights.to(wide)).sum(dim=0))
            if grad_matrices is not None:
                grad_matrices.add_(x.mT @ (children * weights).flatten(2))
            return down

        grad_total, grad_logits = grad_total.contiguous(), None
        for before, b in zip(reversed(totals), reversed(logits), strict=True):
            c = b.softmax(dim=0)
            if detach:
                add(c, grad_total)
                break
            grad_c = _summed(add(c, grad_total) * children)  # of s_j = Σ_i c_ij û_ij
            change = c * (grad_c - (c * grad_c).sum(dim=0))
            grad_logits = change if grad_logits is None or not accumulate else change + grad_logits
            add(grad_logits, squash(before, squash_constant))  # of û_ij · v_j
            grad_total = through_squash(before, _weighted(children, transposed, grad_logits), squash_constant)
        else:
            add(grad_total.new_full((*grad_total.shape[:2], children.shape[-1]), 1 / len(matrices)), grad_total)
        of_matrices = None if grad_matrices is None else grad_matrices.to(matrices.dtype)
        return grad_children.to(children.dtype), of_matrices, None, None, None, None


def _weighted(children: Tensor, matrices: Tensor, coefficients: Tensor | None) -> Tensor:
    """s_j = Σ_i c_ij û_ij, [J, B, D], with c of [J, B, I], or 1/J, and matrices of [J, C·I, D]."""
    if coefficients is None:
        return (children.flatten(1)[None] @ matrices).to(_wide(children)) / len(matrices)
    scaled = children * coefficients[:, :, None].to(children.dtype)
    return (scaled.flatten(2) @ matrices).to(_wide(children))


def _down(x: Tensor, matrices: Tensor, children: Tensor) -> Tensor:
    """W_ijᵀ x_j, [J, B, C, I], with x of [J, B, D]."""
    product = x.to(matrices.dtype) @ matrices
    return product.view(*product.shape[:-1], *children.shape[1:])


def through_squash(s: Tensor, grad_squashed: Tensor, constant: float) -> Tensor:
    """The gradient by s, from that by squash(s) = ‖s‖ s / (k + ‖s‖²); 0 at s = 0."""
    length = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    below = constant + length.square()
    along = (s * grad_squashed).sum(dim=-1, keepdim=True) * (constant - length.square()) / below.square()
    return grad_squashed * length / below + s * torch.where(length > 0, along / length, 0)


def _summed(products: Tensor) -> Tensor:
    return products.sum(dim=-2, dtype=_wide(products))


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)

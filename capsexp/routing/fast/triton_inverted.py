"""`forward` and `backward` of `capsexp.routing.fast.inverted` as Triton kernels, for CUDA; the formulas are there.

Votes exist in registers only, see `triton_shared`. The backward kernel stores r_ij and ∂a_ij, which are 1/D of the
votes' size; from them a third kernel sums the matrices' gradients.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,import-untyped,import-not-found"
import triton
import triton.language as tl
from torch import Tensor

from capsexp.routing.fast import triton_shared as shared


@triton.jit
def _forward(
    children, weight, parents, totals,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """totals[split] [P, J, Z, X], from parents that are divided by √D already."""
    dtype: tl.constexpr = parents.dtype.element_ty
    split, place, j, z, x, inside, at, mask = shared.block(places, J, Z, X, BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X)
    queries = tl.load(parents + at, mask=mask, other=0)
    pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = shared.votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, dtype)
        r = shared.softmax(tl.sum(tl.sum(votes * queries, axis=3), axis=2), j, J)
        total += r[:, :, None, None] * votes
    tl.store(totals + split * places * J * Z * X + at, total, mask=mask)


@triton.jit
def _backward(
    gradient, children, weight, parents, grad_patches, grad_parents, coefficients, agreements,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """r and ∂a, [P, K · I, J]; the gradients by parents, [split, P, J, Z, X], and by the children of each place,
    [P, K · I, Y, X].
    """
    dtype: tl.constexpr = parents.dtype.element_ty
    split, place, j, z, x, inside, at, mask = shared.block(places, J, Z, X, BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X)
    queries = tl.load(parents + at, mask=mask, other=0)
    gradients = tl.load(gradient + at, mask=mask, other=0)
    pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = shared.votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, dtype)
        r = shared.softmax(tl.sum(tl.sum(votes * queries, axis=3), axis=2), j, J)
        weighted = r * tl.sum(tl.sum(votes * gradients, axis=3), axis=2)
        a = weighted - r * tl.sum(weighted, axis=1)[:, None]
        total += a[:, :, None, None] * votes
        pair = (place[:, None] * count + child) * J + j[None, :]
        tl.store(coefficients + pair, r, mask=inside[:, None] & (j < J)[None, :])
        tl.store(agreements + pair, a, mask=inside[:, None] & (j < J)[None, :])
        grad_votes = r[:, :, None, None] * gradients + a[:, :, None, None] * queries
        for y in range(Y):
            column = shared.matrix_column(weight, child, y, j, z, J, Z, Y, dtype)
            row = tl.sum(tl.sum(column[None, :, :, None] * grad_votes, axis=2), axis=1)
            patch = ((place[:, None] * count + child) * Y + y) * X + x[None, :]
            tl.store(grad_patches + patch, row, mask=inside[:, None] & (x < X)[None, :])
    tl.store(grad_parents + split * places * J * Z * X + at, total, mask=mask)


@triton.jit
def _backward_matrices(
    gradient, children, weight, parents, coefficients, agreements, grad_matrices,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_Y: tl.constexpr,
):  # fmt: skip
    """Σ_n ∂v_ij p_iᵀ over some places, [split, K · I, J, Z, Y]."""
    dtype: tl.constexpr = parents.dtype.element_ty
    child, split = tl.program_id(0).to(tl.int64) * BLOCK_I + tl.arange(0, BLOCK_I), tl.program_id(2).to(tl.int64)
    j, z, y = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J), tl.arange(0, BLOCK_Z), tl.arange(0, BLOCK_Y)
    mask, inside = (j < J)[:, None] & (z < Z)[None, :], (child < count)[:, None]
    total = tl.zeros([BLOCK_I, BLOCK_J, BLOCK_Z, BLOCK_Y], dtype=dtype)
    for place in range(split * part, tl.minimum(split * part + part, places)):
        pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
        number = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)[:, None]
        pair = (place * count + child[:, None]) * J + j[None, :]
        r = tl.load(coefficients + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        a = tl.load(agreements + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        for x in range(X):
            at = ((place * J + j[:, None]) * Z + z[None, :]) * X + x
            gradients = tl.load(gradient + at, mask=mask, other=0)[None, :, :]
            queries = tl.load(parents + at, mask=mask, other=0)[None, :, :]
            column = tl.load(children + (number * Y + y[None, :]) * X + x, mask=inside & (y < Y)[None, :], other=0)
            column = column.to(weight.dtype.element_ty).to(dtype)
            total += (r * gradients + a * queries)[:, :, :, None] * column[:, None, None, :]
    at, mask = shared.matrix_offsets(split * count + child, child < count, j, z, y, J, Z, Y)
    tl.store(grad_matrices + at, total, mask=mask)


def forward(children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int) -> Tensor:
    """[B, H, W, I, C], [K · I, J, Z, Y], [B, H', W', J, D] -> s, [B, H', W', J, D]."""
    first = shared.launch(children, weight, kernel, stride, shared.ELEMENTS)
    totals = parents.new_empty(first.splits, *parents.shape)
    queries, matrices = (parents / parents.shape[-1] ** 0.5).contiguous(), shared.transposed(weight)
    _forward[first.grid](children.contiguous(), matrices, queries, totals, *first.sizes, **first.constants)
    return totals.sum(dim=0)


def backward(
    gradient: Tensor, children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by children, weight and parents, from that by s."""
    first = shared.launch(children, weight, kernel, stride, shared.ELEMENTS)
    root, places, count = parents.shape[-1] ** 0.5, first.sizes[0], len(weight)
    gradients, poses, queries = gradient.contiguous(), children.contiguous(), (parents / root).contiguous()
    grad_patches = parents.new_empty(places, count, children.shape[-1])
    grad_parents = parents.new_empty(first.splits, *parents.shape)
    r, a = parents.new_empty(2, places, count, weight.shape[1])
    matrices = shared.transposed(weight)
    _backward[first.grid](
        gradients, poses, matrices, queries, grad_patches, grad_parents, r, a, *first.sizes, **first.constants
    )  # fmt: skip
    second = shared.launch_matrices(first, weight)
    grad_matrices = parents.new_empty(second.splits, *weight.shape)
    _backward_matrices[second.grid](
        gradients, poses, matrices, queries, r, a, grad_matrices, *second.sizes, **second.constants
    )  # fmt: skip
    grad_children = shared.folded(grad_patches, children, kernel, stride)
    return grad_children, grad_matrices.sum(dim=0).to(weight.dtype), grad_parents.sum(dim=0) / root

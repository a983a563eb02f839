"""An iteration of `capsexp.routing.fast.em` as Triton kernels, for CUDA; the formulas are there.

Votes exist in registers only, see `triton_shared`. Mean and variance are summed in one loop over the children (West
1979: the deviations from the mean so far), which loses no digits where the mean is far greater than the deviation. The
backward kernel stores w_ij and l_ij, which are 1/D of the votes' size; from them, and from votes that it computes
again, a third kernel sums the matrices' gradients.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,import-untyped,import-not-found"
import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from capsexp.nn.capsules import output_size
from capsexp.routing.em import WEIGHT_FLOOR
from capsexp.routing.fast import triton_shared as shared


@triton.jit
def _assigned(votes, mean, precision, offset, j, J: tl.constexpr):
    """R of one child, [P, J]."""
    distance = votes - mean
    distances = tl.sum(tl.sum(distance * distance * precision, axis=3), axis=2)
    return shared.softmax(offset - distances / 2, j, J)


@triton.jit
def _forward(
    children, weight, activations, old_means, precisions, offsets, totals, means, squares,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_X: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """Of a split's children T_j [split, P, J], μ_jd and Σ_i w_ij (v_ijd − μ_jd)², both [split, P, J, D]."""
    dtype: tl.constexpr = totals.dtype.element_ty
    split, place, j, z, x, inside, at, mask = shared.block(places, J, Z, X, BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X)
    pair, exists = place[:, None] * J + j[None, :], inside[:, None] & (j < J)[None, :]
    if ASSIGNED:
        old_mean = tl.load(old_means + at, mask=mask, other=0)
        precision = tl.load(precisions + at, mask=mask, other=0)
        offset = tl.load(offsets + pair, mask=exists, other=0)
    pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([BLOCK_P, BLOCK_J], dtype=dtype)
    mean = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
    square = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = shared.votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, dtype)
        r = tl.full([BLOCK_P, BLOCK_J], 1 / J, dtype=dtype)
        if ASSIGNED:
            r = _assigned(votes, old_mean, precision, offset, j, J)
        w = r * tl.load(activations + numbers, mask=inside, other=0)[:, None]
        total += w
        share = w / tl.where(total > 0, total, 1)
        deviation = votes - mean
        mean += share[:, :, None, None] * deviation
        square += w[:, :, None, None] * deviation * (votes - mean)
    tl.store(totals + split * places * J + pair, total, mask=exists)
    tl.store(means + split * places * J * Z * X + at, mean, mask=mask)
    tl.store(squares + split * places * J * Z * X + at, square, mask=mask)


@triton.jit
def _backward(
    children, weight, activations, old_means, precisions, offsets, means, constants, linears, quadratics,
    grad_patches, grad_activations, weights, logits, grad_old_means, grad_precisions, grad_offsets,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_X: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """w and l, [P, K · I, J]; the gradients by the children of each place and their activations, [P, K · I, Y, X] and
    [P, K · I]; Σ_i l (v − μ') and Σ_i l (v − μ')², [split, P, J, D], and Σ_i l, [split, P, J], of a split's children.
    """
    dtype: tl.constexpr = means.dtype.element_ty
    split, place, j, z, x, inside, at, mask = shared.block(places, J, Z, X, BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X)
    pair, exists = place[:, None] * J + j[None, :], inside[:, None] & (j < J)[None, :]
    if ASSIGNED:
        old_mean = tl.load(old_means + at, mask=mask, other=0)
        precision = tl.load(precisions + at, mask=mask, other=0)
        offset = tl.load(offsets + pair, mask=exists, other=0)
        grad_old_mean = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
        grad_precision = tl.zeros([BLOCK_P, BLOCK_J, BLOCK_Z, BLOCK_X], dtype=dtype)
        grad_offset = tl.zeros([BLOCK_P, BLOCK_J], dtype=dtype)
    mean = tl.load(means + at, mask=mask, other=0)
    constant = tl.load(constants + pair, mask=exists, other=0)
    linear = tl.load(linears + at, mask=mask, other=0)
    quadratic = tl.load(quadratics + at, mask=mask, other=0)
    pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = shared.votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, dtype)
        r = tl.full([BLOCK_P, BLOCK_J], 1 / J, dtype=dtype)
        if ASSIGNED:
            r = _assigned(votes, old_mean, precision, offset, j, J)
        w = r * tl.load(activations + numbers, mask=inside, other=0)[:, None]
        deviation = votes - mean
        slope = linear + deviation * quadratic
        grad_w = constant + tl.sum(tl.sum(deviation * slope, axis=3), axis=2)
        grad_activation = tl.sum(r * grad_w, axis=1)
        grad_votes = w[:, :, None, None] * (slope + deviation * quadratic)
        stored = (place[:, None] * count + child) * J + j[None, :]
        tl.store(weights + stored, w, mask=exists)
        tl.store(grad_activations + place * count + child, grad_activation, mask=inside)
        if ASSIGNED:
            logit = w * (grad_w - grad_activation[:, None])
            distance = votes - old_mean
            pulled = logit[:, :, None, None] * distance
            grad_offset += logit
            grad_old_mean += pulled
            grad_precision += pulled * distance
            grad_votes -= pulled * precision
            tl.store(logits + stored, logit, mask=exists)
        for y in range(Y):
            column = shared.matrix_column(weight, child, y, j, z, J, Z, Y, dtype)
            row = tl.sum(tl.sum(column[None, :, :, None] * grad_votes, axis=2), axis=1)
            patch = ((place[:, None] * count + child) * Y + y) * X + x[None, :]
            tl.store(grad_patches + patch, row, mask=inside[:, None] & (x < X)[None, :])
    if ASSIGNED:
        tl.store(grad_old_means + split * places * J * Z * X + at, grad_old_mean, mask=mask)
        tl.store(grad_precisions + split * places * J * Z * X + at, grad_precision, mask=mask)
        tl.store(grad_offsets + split * places * J + pair, grad_offset, mask=exists)


@triton.jit
def _backward_matrices(
    children, weight, old_means, precisions, means, linears, quadratics, weights, logits, grad_matrices,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_Y: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """Σ_n ∂v_ij p_iᵀ over some places, [split, K · I, J, Z, Y]."""
    dtype: tl.constexpr = means.dtype.element_ty
    child, split = tl.program_id(0).to(tl.int64) * BLOCK_I + tl.arange(0, BLOCK_I), tl.program_id(2).to(tl.int64)
    j, z, y = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J), tl.arange(0, BLOCK_Z), tl.arange(0, BLOCK_Y)
    mask, inside = (j < J)[:, None] & (z < Z)[None, :], (child < count)[:, None]
    entry, exists = shared.matrix_offsets(child, child < count, j, z, y, J, Z, Y)
    matrix = tl.load(weight + entry, mask=exists, other=0).to(dtype)
    total = tl.zeros([BLOCK_I, BLOCK_J, BLOCK_Z, BLOCK_Y], dtype=dtype)
    for place in range(split * part, tl.minimum(split * part + part, places)):
        pixel = shared.first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
        number = shared.child_number(pixel, child, WIDTH, TYPES, KERNEL)[:, None]
        pair = (place * count + child[:, None]) * J + j[None, :]
        w = tl.load(weights + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        if ASSIGNED:
            logit = tl.load(logits + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        for x in range(X):
            column = tl.load(children + (number * Y + y[None, :]) * X + x, mask=inside & (y < Y)[None, :], other=0)
            column = column.to(weight.dtype.element_ty).to(dtype)[:, None, None, :]
            votes = tl.sum(matrix * column, axis=3)
            at = ((place * J + j[:, None]) * Z + z[None, :]) * X + x
            linear = tl.load(linears + at, mask=mask, other=0)[None, :, :]
            quadratic = tl.load(quadratics + at, mask=mask, other=0)[None, :, :]
            deviation = votes - tl.load(means + at, mask=mask, other=0)[None, :, :]
            grad_votes = w * (linear + 2 * deviation * quadratic)
            if ASSIGNED:
                precision = tl.load(precisions + at, mask=mask, other=0)[None, :, :]
                distance = votes - tl.load(old_means + at, mask=mask, other=0)[None, :, :]
                grad_votes -= logit * precision * distance
            total += grad_votes[:, :, :, None] * column
    tl.store(grad_matrices + split * count * J * Z * Y + entry, total, mask=exists)


def applies(children: Tensor, weight: Tensor) -> bool:
    """Whether a place's parents fit a program's registers: [B, H, W, I, C], [K · I, J, Z, Y]."""
    _, parents, rows, columns = weight.shape
    sizes = map(triton.next_power_of_2, (parents, rows, children.shape[-1] // columns))
    return math.prod(sizes) <= 2 * shared.ELEMENTS  # at 8192, in a loop over children, 376 bytes are spilled


def forward(
    children: Tensor, weight: Tensor, activations: Tensor, assignment: Sequence[Tensor], kernel: int, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    """T [B, H', W', J], μ and σ² [B, H', W', J, D]."""
    run = shared.launch(children, weight, kernel, stride, shared.ELEMENTS // 2)
    given = [tensor.contiguous() for tensor in assignment] or [children] * 3  # which isn't read
    _, parents, rows, columns = weight.shape
    shape = (run.splits, len(children), *output_size(children.shape[1:3], kernel, stride), parents)
    totals = children.new_empty(shape)
    means, squares = children.new_empty(2, *shape, rows * (children.shape[-1] // columns))
    _forward[run.grid](
        children.contiguous(), shared.transposed(weight), activations.contiguous(), *given, totals, means, squares,
        *run.sizes, **run.constants, ASSIGNED=bool(assignment),
    )  # fmt: skip
    total = totals.sum(dim=0)
    mean = (means * (totals / torch.where(total > 0, total, 1))[..., None]).sum(dim=0)
    square = (squares + totals[..., None] * (means - mean).square()).sum(dim=0)
    scaled = (total / (total + WEIGHT_FLOOR))[..., None]
    deviation = mean * (WEIGHT_FLOOR / (total + WEIGHT_FLOOR))[..., None]
    return total, scaled * mean, square / (total + WEIGHT_FLOOR)[..., None] + scaled * deviation.square()


def backward(
    children: Tensor, weight: Tensor, activations: Tensor, assignment: Sequence[Tensor],
    moments: Sequence[Tensor], kernel: int, stride: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients by children, weight, activations and, where there is one, assignment; `moments` as of `loops`."""
    run = shared.launch(children, weight, kernel, stride, shared.ELEMENTS // 2)
    given = [tensor.contiguous() for tensor in assignment] or [children] * 3  # which isn't read
    places, count, parents = run.sizes[0], *weight.shape[:2]
    poses, matrices = children.contiguous(), shared.transposed(weight)
    mean, constant, linear, quadratic = (moment.contiguous() for moment in moments)
    grad_patches, grad_activations = (children.new_empty(places, count, *rest) for rest in (children.shape[4:], ()))
    w, logits = children.new_empty(2, places, count, parents)
    sums = [children.new_empty(run.splits, *part.shape) if assignment else poses for part in (mean, mean, constant)]
    _backward[run.grid](
        poses, matrices, activations.contiguous(), *given, mean, constant, linear, quadratic,
        grad_patches, grad_activations, w, logits, *sums, *run.sizes, **run.constants, ASSIGNED=bool(assignment),
    )  # fmt: skip
    second = shared.launch_matrices(run, weight)
    grad_matrices = children.new_empty(second.splits, *weight.shape)
    old_mean, precision, _ = given
    _backward_matrices[second.grid](
        poses, weight.contiguous(), old_mean, precision, mean, linear, quadratic, w, logits, grad_matrices,
        *second.sizes, **second.constants, ASSIGNED=bool(assignment),
    )  # fmt: skip
    grad_inputs = shared.folded(grad_patches, children, kernel, stride), grad_matrices.sum(dim=0).to(weight.dtype)
    grad_activations = shared.folded(grad_activations, activations, kernel, stride)
    if not assignment:
        return *grad_inputs, grad_activations
    pulled, squares, grad_offset = (part.sum(dim=0) for part in sums)
    return *grad_inputs, grad_activations, pulled * precision, squares / -2, grad_offset

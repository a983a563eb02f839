"""An iteration of `capsexp.routing.fast.em` as Triton kernels, for CUDA; the formulas are there.

Votes exist in registers only, see `triton_votes`. Mean and variance are summed in one loop over the children (West
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
from capsexp.routing.fast import triton_votes
from capsexp.routing.fast.triton_votes import (
    child_number,
    first_pixel,
    folded,
    launch,
    launch_matrices,
    matrix_column,
    matrix_offsets,
    pose_offsets,
    softmax,
    transposed,
    votes_of,
)


@triton.jit
def _assigned(votes, mean, precision, offset, j, J: tl.constexpr):
    """R of one child, [P, J]."""
    distance = votes - mean
    distances = tl.sum(tl.sum(distance * distance * precision, axis=3), axis=2)
    return softmax(offset - distances / 2, j, J)


@triton.jit
def _forward(
    children, weight, activations, old_means, precisions, offsets, totals, means, squares,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    P_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, X_: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """Of a split's children T_j [split, P, J], μ_jd and Σ_i w_ij (v_ijd − μ_jd)², both [split, P, J, D]."""
    kind: tl.constexpr = totals.dtype.element_ty
    split = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * P_ + tl.arange(0, P_)
    j, z, x = tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, X_)
    inside = place < places
    at, mask = pose_offsets(place, inside, j, z, x, J, Z, X)
    pair, exists = place[:, None] * J + j[None, :], inside[:, None] & (j < J)[None, :]
    if ASSIGNED:
        old_mean = tl.load(old_means + at, mask=mask, other=0)
        precision = tl.load(precisions + at, mask=mask, other=0)
        offset = tl.load(offsets + pair, mask=exists, other=0)
    pixel = first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([P_, J_], dtype=kind)
    mean = tl.zeros([P_, J_, Z_, X_], dtype=kind)
    square = tl.zeros([P_, J_, Z_, X_], dtype=kind)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, kind, P_, J_, Z_, X_)
        r = _assigned(votes, old_mean, precision, offset, j, J) if ASSIGNED else tl.full([P_, J_], 1 / J, dtype=kind)
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
    to_patches, to_activations, weights, logits, to_old_means, to_precisions, to_offsets,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    P_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, X_: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """w and l, [P, K · I, J]; the gradients by the children of each place and their activations, [P, K · I, Y, X] and
    [P, K · I]; Σ_i l (v − μ') and Σ_i l (v − μ')², [split, P, J, D], and Σ_i l, [split, P, J], of a split's children.
    """
    kind: tl.constexpr = means.dtype.element_ty
    split = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * P_ + tl.arange(0, P_)
    j, z, x = tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, X_)
    inside = place < places
    at, mask = pose_offsets(place, inside, j, z, x, J, Z, X)
    pair, exists = place[:, None] * J + j[None, :], inside[:, None] & (j < J)[None, :]
    if ASSIGNED:
        old_mean = tl.load(old_means + at, mask=mask, other=0)
        precision = tl.load(precisions + at, mask=mask, other=0)
        offset = tl.load(offsets + pair, mask=exists, other=0)
        to_old_mean = tl.zeros([P_, J_, Z_, X_], dtype=kind)
        to_precision = tl.zeros([P_, J_, Z_, X_], dtype=kind)
        to_offset = tl.zeros([P_, J_], dtype=kind)
    mean = tl.load(means + at, mask=mask, other=0)
    constant = tl.load(constants + pair, mask=exists, other=0)
    linear = tl.load(linears + at, mask=mask, other=0)
    quadratic = tl.load(quadratics + at, mask=mask, other=0)
    pixel = first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = child_number(pixel, child, WIDTH, TYPES, KERNEL)
        votes = votes_of(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, kind, P_, J_, Z_, X_)
        r = _assigned(votes, old_mean, precision, offset, j, J) if ASSIGNED else tl.full([P_, J_], 1 / J, dtype=kind)
        w = r * tl.load(activations + numbers, mask=inside, other=0)[:, None]
        deviation = votes - mean
        slope = linear + deviation * quadratic
        to_w = constant + tl.sum(tl.sum(deviation * slope, axis=3), axis=2)
        to_activation = tl.sum(r * to_w, axis=1)
        to_votes = w[:, :, None, None] * (slope + deviation * quadratic)
        stored = (place[:, None] * count + child) * J + j[None, :]
        tl.store(weights + stored, w, mask=exists)
        tl.store(to_activations + place * count + child, to_activation, mask=inside)
        if ASSIGNED:
            logit = w * (to_w - to_activation[:, None])
            distance = votes - old_mean
            pulled = logit[:, :, None, None] * distance
            to_offset += logit
            to_old_mean += pulled
            to_precision += pulled * distance
            to_votes -= pulled * precision
            tl.store(logits + stored, logit, mask=exists)
        for y in range(Y):
            column = matrix_column(weight, child, y, j, z, J, Z, Y, kind)
            row = tl.sum(tl.sum(column[None, :, :, None] * to_votes, axis=2), axis=1)
            patch = ((place[:, None] * count + child) * Y + y) * X + x[None, :]
            tl.store(to_patches + patch, row, mask=inside[:, None] & (x < X)[None, :])
    if ASSIGNED:
        tl.store(to_old_means + split * places * J * Z * X + at, to_old_mean, mask=mask)
        tl.store(to_precisions + split * places * J * Z * X + at, to_precision, mask=mask)
        tl.store(to_offsets + split * places * J + pair, to_offset, mask=exists)


@triton.jit
def _backward_matrices(
    children, weight, old_means, precisions, means, linears, quadratics, weights, logits, to_matrices,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    I_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, Y_: tl.constexpr, ASSIGNED: tl.constexpr,
):  # fmt: skip
    """Σ_n ∂v_ij p_iᵀ over some places, [split, K · I, J, Z, Y]."""
    kind: tl.constexpr = means.dtype.element_ty
    child, split = tl.program_id(0).to(tl.int64) * I_ + tl.arange(0, I_), tl.program_id(2).to(tl.int64)
    j, z, y = tl.program_id(1) * J_ + tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, Y_)
    mask, inside = (j < J)[:, None] & (z < Z)[None, :], (child < count)[:, None]
    entry, exists = matrix_offsets(child, child < count, j, z, y, J, Z, Y)
    matrix = tl.load(weight + entry, mask=exists, other=0).to(kind)
    total = tl.zeros([I_, J_, Z_, Y_], dtype=kind)
    for place in range(split * part, tl.minimum(split * part + part, places)):
        pixel = first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
        number = child_number(pixel, child, WIDTH, TYPES, KERNEL)[:, None]
        pair = (place * count + child[:, None]) * J + j[None, :]
        w = tl.load(weights + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        if ASSIGNED:
            logit = tl.load(logits + pair, mask=inside & (j < J)[None, :], other=0)[:, :, None]
        for x in range(X):
            column = tl.load(children + (number * Y + y[None, :]) * X + x, mask=inside & (y < Y)[None, :], other=0)
            column = column.to(weight.dtype.element_ty).to(kind)[:, None, None, :]
            votes = tl.sum(matrix * column, axis=3)
            at = ((place * J + j[:, None]) * Z + z[None, :]) * X + x
            linear = tl.load(linears + at, mask=mask, other=0)[None, :, :]
            quadratic = tl.load(quadratics + at, mask=mask, other=0)[None, :, :]
            deviation = votes - tl.load(means + at, mask=mask, other=0)[None, :, :]
            to_votes = w * (linear + 2 * deviation * quadratic)
            if ASSIGNED:
                precision = tl.load(precisions + at, mask=mask, other=0)[None, :, :]
                distance = votes - tl.load(old_means + at, mask=mask, other=0)[None, :, :]
                to_votes -= logit * precision * distance
            total += to_votes[:, :, :, None] * column
    tl.store(to_matrices + split * count * J * Z * Y + entry, total, mask=exists)


def applies(children: Tensor, weight: Tensor) -> bool:
    """Whether a place's parents fit a program's registers: [B, H, W, I, C], [K · I, J, Z, Y]."""
    _, parents, rows, columns = weight.shape
    sizes = map(triton.next_power_of_2, (parents, rows, children.shape[-1] // columns))
    return math.prod(sizes) <= 4 * triton_votes.ELEMENTS  # at 8192, in a linear layer, 252 of 255 registers


def forward(
    children: Tensor, weight: Tensor, activations: Tensor, assignment: Sequence[Tensor | None], kernel: int, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    """T [B, H', W', J], μ and σ² [B, H', W', J, D]."""
    run = launch(children, weight, kernel, stride, triton_votes.ELEMENTS // 2)
    given, assigned = _given(children, assignment)
    _, parents, rows, columns = weight.shape
    shape = (run.splits, len(children), *output_size(children.shape[1:3], kernel, stride), parents)
    totals = children.new_empty(shape)
    means, squares = children.new_empty(2, *shape, rows * (children.shape[-1] // columns))
    _forward[run.grid](
        children.contiguous(), transposed(weight), activations.contiguous(), *given, totals, means, squares,
        *run.sizes, **run.constants, ASSIGNED=assigned,
    )  # fmt: skip
    total = totals.sum(dim=0)
    mean = (means * (totals / torch.where(total > 0, total, 1))[..., None]).sum(dim=0)
    square = (squares + totals[..., None] * (means - mean).square()).sum(dim=0)
    scaled = (total / (total + WEIGHT_FLOOR))[..., None]
    deviation = mean * (WEIGHT_FLOOR / (total + WEIGHT_FLOOR))[..., None]
    return total, scaled * mean, square / (total + WEIGHT_FLOOR)[..., None] + scaled * deviation.square()


def backward(
    children: Tensor, weight: Tensor, activations: Tensor, assignment: Sequence[Tensor | None],
    moments: Sequence[Tensor], kernel: int, stride: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients by children, weight, activations and assignment.

    Args:
        children, weight, activations, assignment, kernel, stride: as in `forward`.
        moments: μ, and the constant, linear and quadratic coefficients of ∂w, see `em`.
    """
    run = launch(children, weight, kernel, stride, triton_votes.ELEMENTS // 2)
    given, assigned = _given(children, assignment)
    places, count, parents = run.sizes[0], *weight.shape[:2]
    poses, matrices = children.contiguous(), transposed(weight)
    mean, constant, linear, quadratic = (moment.contiguous() for moment in moments)
    to_patches, to_activations = (children.new_empty(places, count, *rest) for rest in (children.shape[4:], ()))
    w, logits = children.new_empty(2, places, count, parents)
    sums = [children.new_empty(run.splits, *tensor.shape) if assigned else poses for tensor in (mean, mean, constant)]
    _backward[run.grid](
        poses, matrices, activations.contiguous(), *given, mean, constant, linear, quadratic,
        to_patches, to_activations, w, logits, *sums, *run.sizes, **run.constants, ASSIGNED=assigned,
    )  # fmt: skip
    second = launch_matrices(run, weight)
    to_matrices = children.new_empty(second.splits, *weight.shape)
    old_mean, precision, _ = given
    _backward_matrices[second.grid](
        poses, weight.contiguous(), old_mean, precision, mean, linear, quadratic, w, logits, to_matrices,
        *second.sizes, **second.constants, ASSIGNED=assigned,
    )  # fmt: skip
    by_inputs = folded(to_patches, children, kernel, stride), to_matrices.sum(dim=0).to(weight.dtype)
    by_activations = folded(to_activations, activations, kernel, stride)
    if not assigned:
        return *by_inputs, by_activations, None, None, None
    pulled, squares, by_offset = (part.sum(dim=0) for part in sums)
    return *by_inputs, by_activations, pulled * precision, squares / -2, by_offset


def _given(children: Tensor, assignment: Sequence[Tensor | None]) -> tuple[list[Tensor], bool]:
    """The kernels' arguments for an assignment, and whether there is one; else any tensor, which isn't read."""
    given = [tensor.contiguous() for tensor in assignment if tensor is not None]
    return given or [children] * 3, bool(given)

"""`forward` and `backward` of `capsexp.routing.fused_inverted` as Triton kernels, for CUDA; the formulas are there.

A program of the first two kernels computes all J parents at some places (positions of the convolution, in all images),
in a loop over the children; votes exist in registers only. The backward kernel stores r_ij and ∂a_ij, which are 1/D of
the votes' size; from them a third kernel sums the matrices' gradients over the places, one child and some parents a
program. Where a kernel would have too few programs to fill a GPU, the children or the places are split and the partial
sums added afterwards: there are no atomic additions, so that results are reproducible. The factors of a product have
the type of the weight, everything else that of the parents. Sizes that are no powers of two are masked.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,import-untyped,import-not-found"
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Programs that fill a large GPU several times; elements of a tensor of which a few fit a program's registers.
PROGRAMS, ELEMENTS = 1024, 2048


@triton.jit
def _first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE):
    """The index of the pixel under the kernel's top left corner on the children's grid."""
    image, rest = place // (OUT_HEIGHT * OUT_WIDTH), place % (OUT_HEIGHT * OUT_WIDTH)
    return (image * HEIGHT + rest // OUT_WIDTH * STRIDE) * WIDTH + rest % OUT_WIDTH * STRIDE


@triton.jit
def _child(pixel, child, WIDTH, TYPES, KERNEL):
    """The index of a child on the grid, from the first pixel and its index among the K · I."""
    k = child // TYPES
    return (pixel + k // KERNEL * WIDTH + k % KERNEL) * TYPES + child % TYPES


@triton.jit
def _poses(place, inside, j, z, x, J: tl.constexpr, Z: tl.constexpr, X: tl.constexpr):
    """The offsets in [places, J, Z, X] of the poses of some places, and the mask of those that exist."""
    place, inside = place[:, None, None, None], inside[:, None, None, None]
    j, z, x = j[None, :, None, None], z[None, None, :, None], x[None, None, None, :]
    return ((place * J + j) * Z + z) * X + x, inside & (j < J) & (z < Z) & (x < X)


@triton.jit
def _matrix_column(weight, child, y, j, z, J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, kind: tl.constexpr):
    """W_ij[z, y] for one y, [J, Z], from [K · I, Y, J, Z]."""
    at = ((child * Y + y) * J + j[:, None]) * Z + z[None, :]
    return tl.load(weight + at, mask=(j < J)[:, None] & (z < Z)[None, :], other=0).to(kind)


@triton.jit
def _votes(
    children, weight, numbers, inside, child, j, z, x,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    kind: tl.constexpr,
    P_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, X_: tl.constexpr,
):  # fmt: skip
    """The votes of one child at some places for all parents, [P, J, Z, X]."""
    votes = tl.zeros([P_, J_, Z_, X_], dtype=kind)
    for y in range(Y):
        at = numbers[:, None] * (Y * X) + y * X + x[None, :]
        row = tl.load(children + at, mask=inside[:, None] & (x < X)[None, :], other=0)
        row = row.to(weight.dtype.element_ty).to(kind)
        column = _matrix_column(weight, child, y, j, z, J, Z, Y, kind)
        votes += column[None, :, :, None] * row[:, None, None, :]
    return votes


@triton.jit
def _softmax(logits, j, J: tl.constexpr):
    """Over the parents, [P, J]."""
    logits = tl.where((j < J)[None, :], logits, float("-inf"))
    powers = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    return powers / tl.sum(powers, axis=1)[:, None]


@triton.jit
def _forward(
    children, weight, parents, totals,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    P_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, X_: tl.constexpr,
):  # fmt: skip
    """totals[split] [P, J, Z, X], from parents that are divided by √D already."""
    kind: tl.constexpr = parents.dtype.element_ty
    split = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * P_ + tl.arange(0, P_)
    j, z, x = tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, X_)
    inside = place < places
    at, mask = _poses(place, inside, j, z, x, J, Z, X)
    queries = tl.load(parents + at, mask=mask, other=0)
    pixel = _first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([P_, J_, Z_, X_], dtype=kind)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = _child(pixel, child, WIDTH, TYPES, KERNEL)
        votes = _votes(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, kind, P_, J_, Z_, X_)
        r = _softmax(tl.sum(tl.sum(votes * queries, axis=3), axis=2), j, J)
        total += r[:, :, None, None] * votes
    tl.store(totals + split * places * J * Z * X + at, total, mask=mask)


@triton.jit
def _backward(
    gradient, children, weight, parents, to_patches, to_parents, coefficients, agreements,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    P_: tl.constexpr, J_: tl.constexpr, Z_: tl.constexpr, X_: tl.constexpr,
):  # fmt: skip
    """r and ∂a, [P, K · I, J]; the gradients by parents, [split, P, J, Z, X], and by the children of each place,
    [P, K · I, Y, X].
    """
    kind: tl.constexpr = parents.dtype.element_ty
    split = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * P_ + tl.arange(0, P_)
    j, z, x = tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, X_)
    inside = place < places
    at, mask = _poses(place, inside, j, z, x, J, Z, X)
    queries = tl.load(parents + at, mask=mask, other=0)
    gradients = tl.load(gradient + at, mask=mask, other=0)
    pixel = _first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
    total = tl.zeros([P_, J_, Z_, X_], dtype=kind)
    for child in range(split * part, tl.minimum(split * part + part, count)):
        numbers = _child(pixel, child, WIDTH, TYPES, KERNEL)
        votes = _votes(children, weight, numbers, inside, child, j, z, x, J, Z, Y, X, kind, P_, J_, Z_, X_)
        r = _softmax(tl.sum(tl.sum(votes * queries, axis=3), axis=2), j, J)
        weighted = r * tl.sum(tl.sum(votes * gradients, axis=3), axis=2)
        a = weighted - r * tl.sum(weighted, axis=1)[:, None]
        total += a[:, :, None, None] * votes
        pair = (place[:, None] * count + child) * J + j[None, :]
        tl.store(coefficients + pair, r, mask=inside[:, None] & (j < J)[None, :])
        tl.store(agreements + pair, a, mask=inside[:, None] & (j < J)[None, :])
        to_votes = r[:, :, None, None] * gradients + a[:, :, None, None] * queries
        for y in range(Y):
            column = _matrix_column(weight, child, y, j, z, J, Z, Y, kind)
            row = tl.sum(tl.sum(column[None, :, :, None] * to_votes, axis=2), axis=1)
            patch = ((place[:, None] * count + child) * Y + y) * X + x[None, :]
            tl.store(to_patches + patch, row, mask=inside[:, None] & (x < X)[None, :])
    tl.store(to_parents + split * places * J * Z * X + at, total, mask=mask)


@triton.jit
def _backward_matrices(
    gradient, children, weight, parents, coefficients, agreements, to_matrices,
    places, count, part, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, TYPES, KERNEL, STRIDE,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr,
    J_: tl.constexpr, Z_: tl.constexpr, Y_: tl.constexpr,
):  # fmt: skip
    """Σ_n ∂v_ij p_iᵀ over some places, [split, K · I, J, Z, Y]."""
    kind: tl.constexpr = parents.dtype.element_ty
    child, split = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    j, z, y = tl.program_id(1) * J_ + tl.arange(0, J_), tl.arange(0, Z_), tl.arange(0, Y_)
    mask = (j < J)[:, None] & (z < Z)[None, :]
    total = tl.zeros([J_, Z_, Y_], dtype=kind)
    for place in range(split * part, tl.minimum(split * part + part, places)):
        pixel = _first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE)
        number = _child(pixel, child, WIDTH, TYPES, KERNEL)
        pair = (place * count + child) * J + j
        r = tl.load(coefficients + pair, mask=j < J, other=0)
        a = tl.load(agreements + pair, mask=j < J, other=0)
        for x in range(X):
            at = ((place * J + j[:, None]) * Z + z[None, :]) * X + x
            gradients = tl.load(gradient + at, mask=mask, other=0)
            queries = tl.load(parents + at, mask=mask, other=0)
            column = tl.load(children + (number * Y + y) * X + x, mask=y < Y, other=0)
            column = column.to(weight.dtype.element_ty).to(kind)
            to_votes = r[:, None] * gradients + a[:, None] * queries
            total += to_votes[:, :, None] * column[None, None, :]
    at = (((split * count + child) * J + j[:, None, None]) * Z + z[None, :, None]) * Y + y[None, None, :]
    tl.store(to_matrices + at, total, mask=mask[:, :, None] & (y < Y)[None, None, :])


def forward(children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int) -> Tensor:
    """[B, H, W, I, C], [K · I, J, Z, Y], [B, H', W', J, D] -> s, [B, H', W', J, D]."""
    launch = _launch(children, weight, parents, kernel, stride)
    totals = parents.new_empty(launch.splits, *parents.shape)
    queries, matrices = (parents / parents.shape[-1] ** 0.5).contiguous(), _transposed(weight)
    _forward[launch.grid](children.contiguous(), matrices, queries, totals, *launch.sizes, **launch.constants)
    return totals.sum(dim=0)


def backward(
    gradient: Tensor, children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by children, weight and parents, from that by s."""
    launch = _launch(children, weight, parents, kernel, stride)
    root, places, count = parents.shape[-1] ** 0.5, launch.sizes[0], len(weight)
    gradients, poses, queries = gradient.contiguous(), children.contiguous(), (parents / root).contiguous()
    to_patches = parents.new_empty(places, count, children.shape[-1])
    to_parents = parents.new_empty(launch.splits, *parents.shape)
    r, a = parents.new_empty(2, places, count, weight.shape[1])
    matrices = _transposed(weight)
    _backward[launch.grid](
        gradients, poses, matrices, queries, to_patches, to_parents, r, a, *launch.sizes, **launch.constants
    )  # fmt: skip
    second = _launch_matrices(launch, weight)
    to_matrices = parents.new_empty(second.splits, *weight.shape)
    _backward_matrices[second.grid](
        gradients, poses, matrices, queries, r, a, to_matrices, *second.sizes, **second.constants
    )  # fmt: skip
    to_children = _folded(to_patches, children, parents, kernel, stride)
    return to_children, to_matrices.sum(dim=0).to(weight.dtype), to_parents.sum(dim=0) / root


class Launch(NamedTuple):
    """A kernel's grid and arguments."""

    grid: tuple[int, ...]
    splits: int
    sizes: tuple[int, ...]  # places, children, how many of them a program handles, and the geometry
    constants: dict[str, Any]


def _launch(children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int) -> Launch:
    _, height, width, types, pose = children.shape
    images, out_height, out_width, _, _ = parents.shape
    count, j, z, y = weight.shape
    x = pose // y
    j_, z_, x_ = map(triton.next_power_of_2, (j, z, x))
    at_once = max(1, ELEMENTS // (j_ * z_ * x_))
    places = images * out_height * out_width
    blocks = triton.cdiv(places, at_once)
    part = triton.cdiv(count, min(count, triton.cdiv(PROGRAMS, blocks)))
    splits = triton.cdiv(count, part)
    sizes = (places, count, part, height, width, out_height, out_width, types, kernel, stride)
    padded = {"P_": at_once, "J_": j_, "Z_": z_, "X_": x_}
    warps = 4 if at_once * j_ * z_ * x_ <= ELEMENTS else 8
    return Launch((blocks, splits), splits, sizes, {"J": j, "Z": z, "Y": y, "X": x, **padded, "num_warps": warps})


def _launch_matrices(first: Launch, weight: Tensor) -> Launch:
    """That of the third kernel, from the others': a program handles one child and a split of the places."""
    count, j, z, y = weight.shape
    z_, y_ = triton.next_power_of_2(z), triton.next_power_of_2(y)
    j_ = min(triton.next_power_of_2(j), max(1, ELEMENTS // (z_ * y_)))
    blocks, places = triton.cdiv(j, j_), first.sizes[0]
    part = triton.cdiv(places, min(places, triton.cdiv(4 * PROGRAMS, count * blocks)))
    splits = triton.cdiv(places, part)
    constants = {name: first.constants[name] for name in "JZYX"}
    padded = {"J_": j_, "Z_": z_, "Y_": y_, "num_warps": 4}
    sizes = (places, count, part, *first.sizes[3:])
    return Launch((count, blocks, splits), splits, sizes, {**constants, **padded})


def _transposed(weight: Tensor) -> Tensor:
    """[K · I, J, Z, Y] -> [K · I, Y, J, Z]: elements that are read together are contiguous."""
    return weight.permute(0, 3, 1, 2).contiguous()


def _folded(patches: Tensor, children: Tensor, parents: Tensor, kernel: int, stride: int) -> Tensor:
    """Sums each child's gradients over the places whose kernel covers it: [P, K · I, C] -> [B, H, W, I, C]."""
    images, height, width = parents.shape[:3]
    patches = patches.view(images, height, width, kernel**2, *children.shape[3:])
    folded = torch.zeros(children.shape, dtype=children.dtype, device=children.device)
    for k in range(kernel**2):
        row, column = divmod(k, kernel)
        rows, columns = slice(row, row + stride * height, stride), slice(column, column + stride * width, stride)
        folded[:, rows, columns][:, :height, :width] += patches[:, :, :, k]
    return folded

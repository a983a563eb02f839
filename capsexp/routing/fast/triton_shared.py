"""Triton functions and launch sizes that inverted and EM routing share: votes v_ij = W_ij p_i in registers, for CUDA.

A program of a routing's first kernels computes all J parents at some places (positions of the convolution, in all
images), in a loop over the children; each matrix is loaded once for all of its places. Another kernel sums the
matrices' gradients over the places, some children and parents a program. Where a kernel would have too few programs to
fill a GPU, the children or the places are split and the partial sums added afterwards: there are no atomic additions,
so that results are reproducible. The factors of a product have the type of the weight, everything else is in float32 or
float64. Sizes that are no powers of two are masked.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,import-untyped,import-not-found"
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from capsexp.nn.capsules import output_size

#: Programs that fill a large GPU several times; elements of a tensor of which a few fit a program's registers.
PROGRAMS, ELEMENTS = 1024, 2048


@triton.jit
def first_pixel(place, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, STRIDE):
    """The index of the pixel under the kernel's top left corner on the children's grid."""
    image, rest = place // (OUT_HEIGHT * OUT_WIDTH), place % (OUT_HEIGHT * OUT_WIDTH)
    return (image * HEIGHT + rest // OUT_WIDTH * STRIDE) * WIDTH + rest % OUT_WIDTH * STRIDE


@triton.jit
def child_number(pixel, child, WIDTH, TYPES, KERNEL):
    """The index of a child on the grid, from the first pixel and its index among the K · I."""
    k = child // TYPES
    return (pixel + k // KERNEL * WIDTH + k % KERNEL) * TYPES + child % TYPES


@triton.jit
def block(
    places, J: tl.constexpr, Z: tl.constexpr, X: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_Z: tl.constexpr, BLOCK_X: tl.constexpr,
):  # fmt: skip
    """A program's split and places; j, z and x; which places exist; the offsets and mask of their poses."""
    split = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BLOCK_P + tl.arange(0, BLOCK_P)
    j, z, x = tl.arange(0, BLOCK_J), tl.arange(0, BLOCK_Z), tl.arange(0, BLOCK_X)
    inside = place < places
    j_, z_, x_ = j[None, :, None, None], z[None, None, :, None], x[None, None, None, :]
    at = ((place[:, None, None, None] * J + j_) * Z + z_) * X + x_
    mask = inside[:, None, None, None] & (j_ < J) & (z_ < Z) & (x_ < X)
    return split, place, j, z, x, inside, at, mask


@triton.jit
def matrix_column(weight, child, y, j, z, J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, dtype: tl.constexpr):
    """W_ij[z, y] for one y, [J, Z], from [K · I, Y, J, Z]."""
    at = ((child * Y + y) * J + j[:, None]) * Z + z[None, :]
    return tl.load(weight + at, mask=(j < J)[:, None] & (z < Z)[None, :], other=0).to(dtype)


@triton.jit
def matrix_offsets(child, inside, j, z, y, J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr):
    """The offsets in [K · I, J, Z, Y] of the matrices of some children, and the mask of those that exist."""
    child, inside = child[:, None, None, None], inside[:, None, None, None]
    j, z, y = j[None, :, None, None], z[None, None, :, None], y[None, None, None, :]
    return ((child * J + j) * Z + z) * Y + y, inside & (j < J) & (z < Z) & (y < Y)


@triton.jit
def votes_of(
    children, weight, numbers, inside, child, j, z, x,
    J: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr, X: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """The votes of one child at some places for all parents, [P, J, Z, X]."""
    # No tl.dot: it would pad the sum over Y = 4 to 16 (bfloat16), or compute in TF32, and exchange its result between
    # threads for the sums over Z and X, which takes longer than the products that it saves.
    votes = tl.zeros([numbers.shape[0], j.shape[0], z.shape[0], x.shape[0]], dtype=dtype)
    for y in range(Y):
        at = numbers[:, None] * (Y * X) + y * X + x[None, :]
        row = tl.load(children + at, mask=inside[:, None] & (x < X)[None, :], other=0)
        row = row.to(weight.dtype.element_ty).to(dtype)
        column = matrix_column(weight, child, y, j, z, J, Z, Y, dtype)
        votes += column[None, :, :, None] * row[:, None, None, :]
    return votes


@triton.jit
def softmax(logits, j, J: tl.constexpr):
    """Over the parents, [P, J]."""
    logits = tl.where((j < J)[None, :], logits, float("-inf"))
    powers = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    return powers / tl.sum(powers, axis=1)[:, None]


#: a · b + c as one instruction: Triton's default until 3.9.
FUSED = {"enable_fp_fusion": True}


class Launch(NamedTuple):
    """A kernel's grid and arguments."""

    grid: tuple[int, ...]
    splits: int
    sizes: tuple[int, ...]  # places, children, how many of them a program handles, and the geometry
    constants: dict[str, Any]


def launch(children: Tensor, weight: Tensor, kernel: int, stride: int, elements: int) -> Launch:
    """That of a kernel over places and children: [B, H, W, I, C], [K · I, J, Z, Y].

    Args:
        children, weight, kernel, stride: of the layer.
        elements: of a tensor, in a program of 4 warps; one with larger tensors has 8.
    """
    images, height, width, types, pose = children.shape
    out_height, out_width = output_size(children.shape[1:3], kernel, stride)
    count, j, z, y = weight.shape
    x = pose // y
    j_, z_, x_ = map(triton.next_power_of_2, (j, z, x))
    at_once = max(1, elements // (j_ * z_ * x_))
    places = images * out_height * out_width
    blocks = triton.cdiv(places, at_once)
    part = triton.cdiv(count, min(count, triton.cdiv(PROGRAMS, blocks)))
    splits = triton.cdiv(count, part)
    sizes = (places, count, part, height, width, out_height, out_width, types, kernel, stride)
    padded = {"BLOCK_P": at_once, "BLOCK_J": j_, "BLOCK_Z": z_, "BLOCK_X": x_}
    warps = 4 if at_once * j_ * z_ * x_ <= elements else 8
    return Launch(
        (blocks, splits), splits, sizes, {"J": j, "Z": z, "Y": y, "X": x, **padded, "num_warps": warps, **FUSED}
    )


def launch_matrices(first: Launch, weight: Tensor) -> Launch:
    """That of the third kernel, from the others': a program handles some children, some parents, a split of the places.

    Several children share what is loaded of a place.
    """
    count, j, z, y = weight.shape
    z_, y_ = triton.next_power_of_2(z), triton.next_power_of_2(y)
    j_ = min(triton.next_power_of_2(j), max(1, ELEMENTS // (z_ * y_)))
    i_ = min(triton.next_power_of_2(count), max(1, ELEMENTS // (j_ * z_ * y_)))
    blocks, places = (triton.cdiv(count, i_), triton.cdiv(j, j_)), first.sizes[0]
    part = triton.cdiv(places, min(places, triton.cdiv(4 * PROGRAMS, blocks[0] * blocks[1])))
    splits = triton.cdiv(places, part)
    constants = {name: first.constants[name] for name in "JZYX"}
    padded = {"BLOCK_I": i_, "BLOCK_J": j_, "BLOCK_Z": z_, "BLOCK_Y": y_, "num_warps": 4, **FUSED}
    sizes = (places, count, part, *first.sizes[3:])
    return Launch((*blocks, splits), splits, sizes, {**constants, **padded})


def transposed(weight: Tensor) -> Tensor:
    """[K · I, J, Z, Y] -> [K · I, Y, J, Z]: elements that are read together are contiguous."""
    return weight.permute(0, 3, 1, 2).contiguous()


def folded(patches: Tensor, grid: Tensor, kernel: int, stride: int) -> Tensor:
    """Sums over the places whose kernel covers a child: [P, K · I, …] -> the shape of the grid, [B, H, W, I, …]."""
    height, width = output_size(grid.shape[1:3], kernel, stride)
    patches = patches.view(len(grid), height, width, kernel**2, *grid.shape[3:])
    folded = torch.zeros(grid.shape, dtype=grid.dtype, device=grid.device)
    for k in range(kernel**2):
        row, column = divmod(k, kernel)
        rows, columns = slice(row, row + stride * height, stride), slice(column, column + stride * width, stride)
        folded[:, rows, columns][:, :height, :width] += patches[:, :, :, k]
    return folded

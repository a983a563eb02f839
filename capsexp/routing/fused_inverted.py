"""One iteration of inverted dot-product routing (tsai, procedure 1) without materialised votes.

s_j = Σ_i r_ij v_ij,  r_i = softmax_j(p_j · v_ij / √D),  v_ij = W_ij p_i

The votes for one parent have K · I · D / C times as many elements as the pose of one child: hundreds of megabytes in
the papers' networks. As in attention that doesn't materialise its matrix, votes are computed for a tile of positions
and children, compared with the parents' previous poses p_j (the queries), weighted, summed and discarded. The backward
pass recomputes them from children, matrices and queries, the only tensors that are kept. With g_j = ∂L/∂s_j:

∂r_ij = g_j · v_ij,  ∂a_ij = r_ij (∂r_ij − Σ_l r_il ∂r_il),  a_ij = p_j · v_ij / √D
∂v_ij = r_ij g_j + ∂a_ij p_j / √D,  ∂p_j = Σ_i ∂a_ij v_ij / √D,  ∂W_ij = Σ ∂v_ij p_iᵀ,  ∂p_i = Σ W_ijᵀ ∂v_ij

One layout serves both structures: W_ij is Z × Y, a child Y × X, a vote Z × X, with X = 1 for vectors and X = Y = Z = √D
for matrices. A linear layer is a convolution with one position and a kernel of 1.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsexp.nn.capsules import factor
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import VoteInputs
from capsexp.routing.compiled import Loops, inverted_backward, inverted_forward

#: Max vote elements in a tile, the fastest on a CPU: in smaller tiles the start of the operations takes most of the
#: time, larger ones no longer stay in the cache between operations.
TILE = 2**20


def weighted_votes(inputs: VoteInputs, parents: Tensor) -> Tensor:
    """s, [..., J, D], from the parents' poses of the iteration before, [..., J, D].

    Under autocast the factors of a vote's products are in its type; all sums are in float32.
    """
    weight = factor(inputs.weight)
    with full_precision(parents):
        grid = at_least_float32(parents if parents.ndim == 5 else parents[:, None, None])
        poses = at_least_float32(inputs.poses)
        total: Tensor = Iteration.apply(poses, weight, grid, inputs.kernel, inputs.stride)  # type: ignore[no-untyped-call]
    return total.view(parents.shape)


class Iteration(torch.autograd.Function):
    """`forward` and `backward` as one operation of autograd: on CUDA the Triton kernels, if Triton is installed; on the
    CPU the loops of `compiled`, where they apply.
    """

    @staticmethod
    def forward(ctx: Any, children: Tensor, weight: Tensor, parents: Tensor, *window: int) -> Tensor:
        ctx.save_for_backward(children, weight, parents)
        ctx.window = window  # kernel and stride
        if parents.is_meta:
            return torch.empty_like(parents)
        if parents.is_cuda and find_spec("triton"):
            from capsexp.routing import triton_inverted

            return triton_inverted.forward(children, weight, parents, *window)
        if loops := Loops.of(children, weight, *window):
            return inverted_forward(loops, parents)
        return forward(children, weight, parents, *window)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        children, weight, parents = ctx.saved_tensors
        if gradient.is_cuda and find_spec("triton"):
            from capsexp.routing import triton_inverted

            found = triton_inverted.backward(gradient, children, weight, parents, *ctx.window)
        elif loops := Loops.of(children, weight, *ctx.window):
            found = inverted_backward(gradient, loops, weight, parents)
        else:
            found = backward(gradient, children, weight, parents, *ctx.window)
        return *found, None, None


def forward(children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int) -> Tensor:
    """[B, H, W, I, C], [K · I, J, Z, Y], [B, H', W', J, D] -> s, [B, H', W', J, D], in the type of the parents.

    The factors of the products are in the type of the weight.
    """
    tiling = Tiling(children, weight, parents, kernel, stride)
    queries, matrices = tiling.pack(parents) / tiling.root, tiling.transposed(weight)
    total, buffers = torch.zeros_like(queries), tiling.buffers(2)
    for tile in tiling.tiles():
        votes, scratch = tiling.cut(buffers, tile)
        tiling.vote(children, matrices, tile, out=votes)
        coefficients = _agreement(votes, queries[tile.places], scratch).softmax(dim=-1)
        total[tile.places] += votes.mul_(coefficients[:, :, None]).sum(dim=0)
    return tiling.unpack(total)


def backward(
    gradient: Tensor, children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by children, weight and parents, in their shapes and types, from that by s."""
    tiling = Tiling(children, weight, parents, kernel, stride)
    queries, gradients = tiling.pack(parents) / tiling.root, tiling.pack(gradient)
    matrices = tiling.transposed(weight)
    to_children, to_matrices, to_parents = (
        torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in (children, matrices, queries)
    )
    buffers = tiling.buffers(2)
    for tile in tiling.tiles():
        votes, scratch = tiling.cut(buffers, tile)
        p, g = queries[tile.places], gradients[tile.places]
        poses = tiling.vote(children, matrices, tile, out=votes)
        r = _agreement(votes, p, scratch).softmax(dim=-1)
        weighted = r * _agreement(votes, g, scratch)
        a = torch.addcmul(weighted, r, weighted.sum(dim=-1, keepdim=True), value=-1)
        to_parents[tile.places] += votes.mul_(a[:, :, None]).sum(dim=0)
        to_votes = torch.mul(g, r[:, :, None], out=scratch).addcmul_(p, a[:, :, None])
        tiling.unvote(to_votes, poses, matrices, tile, to_children, to_matrices)
    return to_children, tiling.untransposed(to_matrices, weight), tiling.unpack(to_parents) / tiling.root


class Tile(NamedTuple):
    """Some images at all positions of the kernel, one position within the kernel, some of the children there."""

    grid: tuple[slice, ...]  # of the children, [B, H, W, I]
    matrices: slice  # of K · I
    places: slice  # of B · H' · W', the kernel's positions in all images


class Tiling:
    """The tiles of an iteration, and its layouts: parents are innermost, so that softmax and sums over children or
    components are vectorised; votes are [I, places, X · Z, J].
    """

    def __init__(self, children: Tensor, weight: Tensor, parents: Tensor, kernel: int, stride: int) -> None:
        self.kernel, self.stride = kernel, stride
        self.images, self.height, self.width, self.parents, self.pose = parents.shape
        self.types = children.shape[3]
        self.rows, self.columns = weight.shape[2:]  # Z, Y
        self.inner = children.shape[4] // self.columns  # X
        self.root = self.pose**0.5
        self.like = parents
        self.product = weight.dtype
        each = self.height * self.width * self.parents * self.pose  # votes of one child in one image
        self.block = _even(self.images, TILE // (each * min(self.types, 8)))
        self.block_types = _even(self.types, TILE // (each * self.block))

    def tiles(self) -> Iterator[Tile]:
        """All tiles; those of the same places follow each other."""
        places = self.height * self.width
        for image in range(0, self.images, self.block):
            last = min(image + self.block, self.images)
            for k in range(self.kernel**2):
                rows, columns = (
                    slice(first, first + self.stride * (size - 1) + 1, self.stride)
                    for first, size in zip(divmod(k, self.kernel), (self.height, self.width), strict=True)
                )
                for i in range(0, self.types, self.block_types):
                    end = min(i + self.block_types, self.types)
                    yield Tile(
                        (slice(image, last), rows, columns, slice(i, end)),
                        slice(k * self.types + i, k * self.types + end),
                        slice(image * places, last * places),
                    )

    def vote(self, children: Tensor, matrices: Tensor, tile: Tile, out: Tensor) -> Tensor:
        """The tile's children, [I, places · X, Y]; their votes are written to `out`."""
        poses = self._squares(children, tile).permute(3, 0, 1, 2, 5, 4)
        poses = poses.to(self.product).to(self.like.dtype).reshape(len(out), -1, self.columns)
        torch.bmm(poses, matrices[tile.matrices], out=out.view(*poses.shape[:2], -1))
        return poses

    def unvote(
        self, gradient: Tensor, poses: Tensor, matrices: Tensor, tile: Tile, to_children: Tensor, to_matrices: Tensor
    ) -> None:
        """Adds the tile's part to the gradients by children and by matrices, from that by its votes."""
        gradient = gradient.view(*poses.shape[:2], -1)
        to_matrices[tile.matrices].baddbmm_(poses.mT, gradient)
        to_poses = torch.bmm(gradient, matrices[tile.matrices].mT)
        to_poses = to_poses.view(len(poses), -1, self.height, self.width, self.inner, self.columns)
        self._squares(to_children, tile).add_(to_poses.permute(1, 2, 3, 0, 5, 4))

    def _squares(self, children: Tensor, tile: Tile) -> Tensor:
        """A view of the tile's children, [B, H', W', I, Y, X]."""
        return children.view(*children.shape[:4], self.columns, self.inner)[tile.grid]

    def buffers(self, count: int) -> Tensor:
        """`count` buffers for the votes of the largest tile, reused: new memory would fault its pages in each tile."""
        votes = self.block_types * self.block * self.height * self.width * self.parents * self.pose
        return self.like.new_empty(count, votes)

    def cut(self, buffers: Tensor, tile: Tile) -> list[Tensor]:
        """Views of the buffers in the shape of this tile's votes."""
        types, places = tile.matrices.stop - tile.matrices.start, tile.places.stop - tile.places.start
        shape = (types, places, self.pose, self.parents)
        return [buffer[: types * places * self.pose * self.parents].view(shape) for buffer in buffers]

    def pack(self, poses: Tensor) -> Tensor:
        """[B, H', W', J, D] -> [places, X · Z, J]."""
        parts = poses.reshape(-1, self.parents, self.rows, self.inner)
        return parts.permute(0, 3, 2, 1).flatten(1, 2).contiguous()

    def unpack(self, poses: Tensor) -> Tensor:
        """[places, X · Z, J] -> [B, H', W', J, D]."""
        parts = poses.view(-1, self.inner, self.rows, self.parents).permute(0, 3, 2, 1)
        return parts.contiguous().view(self.like.shape)

    def transposed(self, weight: Tensor) -> Tensor:
        """[K · I, J, Z, Y] -> [K · I, Y, Z · J]."""
        return weight.to(self.like.dtype).permute(0, 3, 2, 1).flatten(2).contiguous()

    def untransposed(self, matrices: Tensor, weight: Tensor) -> Tensor:
        """[K · I, Y, Z · J] -> [K · I, J, Z, Y]."""
        return (
            matrices.view(*matrices.shape[:2], self.rows, self.parents)
            .permute(0, 3, 2, 1)
            .to(weight.dtype)
            .contiguous()
        )


def _agreement(votes: Tensor, poses: Tensor, scratch: Tensor) -> Tensor:
    """[I, places, D, J] and [places, D, J] -> their products over D, [I, places, J]."""
    return torch.mul(votes, poses, out=scratch).sum(dim=2)


def _even(total: int, largest: int) -> int:
    """The size of the parts when `total` is split into the fewest parts of at most `largest`, about equal."""
    parts = -(-total // max(1, min(largest, total)))
    return -(-total // parts)

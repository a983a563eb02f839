"""Capsule layers: primary capsules, transformation matrices, linear capsules."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from capsexp.nn.precision import at_least_float32
from capsexp.nn.routing import Capsules, Routing, VoteInputs, Votes
from capsexp.nn.squash import squash

#: Max vote elements per chunk of images on a CPU, where the routing is `chunked`. More no longer stay in its cache
#: between two passes over them.
MAX_CHUNK = 2**20

#: Max vote elements of a batch that are kept for the backward pass on a CPU, where the routing is `chunked`; above,
#: they are recomputed in it, and a step takes a third to a half longer.
MAX_KEPT = 2**26


class PrimaryCapsules(nn.Module):
    """A convolution whose output channels, taken `pose` at a time, are capsules (Sabour et al. 2017, section 4).

    Args:
        channels: of the feature map.
        types: of capsules; there is one of each type at every position.
        pose: C, the pose size.
        kernel, stride: of the convolution, without padding.
        squash_constant: k of the squash function.
        attention: applied to the convolution's output.
    """

    def __init__(
        self,
        channels: int,
        types: int,
        pose: int,
        kernel: int,
        stride: int,
        squash_constant: float = 1.0,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, types * pose, kernel, stride)
        self.attention = attention or nn.Identity()
        self.pose = pose
        self.squash_constant = squash_constant

    def forward(self, features: Tensor) -> Capsules:
        """[B, channels, H, W] -> poses [B, I, C] in float32, with I = types · H' · W', ordered type, row, column.

        The components of a capsule are channels of one position. The activations [B, I] are the poses' lengths.
        """
        maps = self.attention(self.convolution(features))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, -1, self.pose, height, width).permute(0, 1, 3, 4, 2).reshape(batch, -1, self.pose)
        squashed = squash(at_least_float32(poses), self.squash_constant)
        return Capsules(squashed, torch.linalg.vector_norm(squashed, dim=-1))


class TransformationMatrices(nn.Module):
    """From child poses to votes: v_ij = W_ij p_i (Sabour et al. 2017, Eq. 2; tsai, Eq. 1).

    Args:
        children, parents: I and J; each pair has its own matrix.
        child_pose, parent_pose: C and D.
        structure: of a pose. With `vector`, W_ij is D × C. With `matrix`, a pose is √D × √D, row by row, W_ij too,
            and C = D.
        scale: standard deviation of the initial matrices. None is √(J / (fan · I)), where fan is the length of a row of
            W_ij, as in tsai's release; the paper doesn't give it.

    Raises ValueError for matrix poses that are not square, or with C ≠ D.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        structure: Literal["vector", "matrix"] = "vector",
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.matrix = structure == "matrix"
        self.vote_elements = parents * parent_pose  # of one child
        rows, columns = parent_pose, child_pose
        if self.matrix:
            rows = columns = math.isqrt(parent_pose)
            if rows**2 != parent_pose or child_pose != parent_pose:
                raise ValueError(f"matrix poses are squares of one size, not of {child_pose} and {parent_pose} numbers")
        deviation = math.sqrt(parents / (columns * children)) if scale is None else scale
        self.weight = nn.Parameter(deviation * torch.randn(children, parents, rows, columns))

    def forward(self, poses: Tensor) -> Tensor:
        """[..., I, C] -> [..., I, J, D]."""
        if not self.matrix:
            return torch.einsum("...ic,ijdc->...ijd", poses, self.weight)
        return torch.einsum("...iyx,ijzy->...ijzx", self._squares(poses), self.weight).flatten(-2)

    def vote_sum(self, poses: Tensor) -> Tensor:
        """Σ_i v_ij in one product, without the votes: [..., I, C] -> [..., J, D]."""
        if not self.matrix:
            return torch.einsum("...ic,ijdc->...jd", poses, self.weight)
        return torch.einsum("...iyx,ijzy->...jzx", self._squares(poses), self.weight).flatten(-2)

    def _squares(self, poses: Tensor) -> Tensor:
        side = self.weight.shape[-1]
        return poses.reshape(*poses.shape[:-1], side, side)


class CapsuleLayer(nn.Module):
    """Matrices, attention on the votes, routing. A subclass defines which children vote for which parents.

    Args:
        matrices: of each pair of a child and a parent.
        routing: from votes to parents.
        attention: applied to the votes, before routing.
    """

    fast: bool = True  # else votes are always stored, as the papers write the procedures; see `use_reference`

    def __init__(self, matrices: TransformationMatrices, routing: Routing, attention: nn.Module | None) -> None:
        super().__init__()
        self.matrices = matrices.requires_grad_(routing.trains_matrices)
        self.routing = routing
        self.attention = attention or nn.Identity()

    def votes(self, children: Capsules) -> Votes:
        """The votes of these children, after the attention, and the children's activations."""
        raise NotImplementedError

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """What the votes of these children are recomputed from, without attention."""
        raise NotImplementedError

    def vote_elements(self, poses: Tensor) -> int:
        """The number of vote elements of an image."""
        raise NotImplementedError

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children, after all iterations."""
        if self.fusible:
            parents = self.routing.forward_fused(self.vote_inputs(children))
            if parents is not None:
                return parents
        return self.in_chunks(self._route, children)

    def _route(self, poses: Tensor, activations: Tensor | None = None) -> Capsules:
        parents: Capsules = self.routing(*self.votes(Capsules(poses, activations)))
        return parents

    @property
    def fusible(self) -> bool:
        """Whether votes may be recomputed inside the routing: nothing else reads them."""
        return self.fast and isinstance(self.attention, nn.Identity)

    def in_chunks(self, route: Callable[..., Capsules], children: Capsules) -> Capsules:
        """`route(*children)`, for a few images at a time if the layer is fast and its routing `chunked`.

        Args:
            route: makes parents of children, each image by itself. It is called again in the backward pass where the
                batch has more votes than are kept.
            children: [B, ...].
        """
        if not (self.fast and self.routing.chunked):
            return route(*children)
        batch, elements = len(children.poses), self.vote_elements(children.poses)
        chunk, kept = vote_limits(children.poses.device)
        images = max(1, chunk // elements)
        if images >= batch:
            return route(*children)
        if batch * elements > kept:
            route = partial(checkpoint, route, use_reentrant=False, preserve_rng_state=False)
        chunks = zip(*(torch.split(tensor, images) for tensor in children if tensor is not None), strict=True)
        poses, activations = zip(*(route(*chunk) for chunk in chunks), strict=True)
        return Capsules(torch.cat(poses), None if activations[0] is None else torch.cat(activations))


class Iterations:
    """The iterations of one layer, one a call.

    Votes are stored for as long as the children are the same object: in the second iteration all layers' are, the
    primary capsules always.
    """

    def __init__(self, layer: CapsuleLayer) -> None:
        self.layer = layer
        self.children: Capsules | None = None
        self.votes: Votes

    def __call__(self, children: Capsules, parents: Tensor | None) -> Capsules:
        """The parents after an iteration that starts from their poses [..., J, D]; None in the first."""
        routing = self.layer.routing
        if self.layer.fusible:
            fused = routing.iteration_fused(self.layer.vote_inputs(children), parents)
            if fused is not None:
                return fused
        if children is not self.children:
            self.children, self.votes = children, self.layer.votes(children)
        return routing.iteration(*self.votes, parents)


class LinearCapsules(CapsuleLayer):
    """Every child, at any position, votes for every parent.

    Args:
        children: I; with matrices that are shared over positions, the number of children at one position.
        parents: J.
        child_pose, parent_pose: C and D.
        routing: from votes to parents.
        attention: applied to the votes, before routing.
        structure, scale: of the transformation matrices. The papers on dynamic routing don't give the scale; 0.1 is
            that of Sabour et al.'s release.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        routing: Routing,
        attention: nn.Module | None = None,
        structure: Literal["vector", "matrix"] = "vector",
        scale: float | None = 0.1,
    ) -> None:
        matrices = TransformationMatrices(children, parents, child_pose, parent_pose, structure, scale)
        super().__init__(matrices, routing, attention)
        self.group = children

    def votes(self, children: Capsules) -> Votes:
        """Poses [B, ..., I, C] -> votes [B, all children, J, D], activations [B, all children]."""
        votes = self.attention(self.matrices(self._grouped(children.poses)))
        return Votes(votes.flatten(1, 2), None if children.activations is None else children.activations.flatten(1))

    def vote_sum(self, poses: Tensor) -> Tensor:
        """[B, ..., I, C] -> [B, J, D]."""
        return self.matrices.vote_sum(self._grouped(poses)).sum(dim=1)

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """Poses [B, ..., I, C]; matrices that are shared over positions are repeated for each of them."""
        poses, activations = children
        grid = poses.reshape(len(poses), 1, 1, -1, poses.shape[-1])
        positions = grid.shape[3] // self.group
        weight: Tensor = self.matrices.weight
        if positions > 1:
            weight = weight.repeat(positions, 1, 1, 1)
        present = None if activations is None else activations.reshape(len(poses), 1, 1, -1)
        return VoteInputs(grid, weight, 1, 1, partial(self.vote_sum, poses), activations=present)

    def vote_elements(self, poses: Tensor) -> int:
        """Each child votes once."""
        return math.prod(poses.shape[1:-1]) * self.matrices.vote_elements

    def _grouped(self, poses: Tensor) -> Tensor:
        """[B, ..., I, C] -> [B, positions, I, C], where I is the number of children with matrices."""
        return poses.reshape(len(poses), -1, self.group, poses.shape[-1])


def vote_limits(device: torch.device) -> tuple[int, int]:
    """Max vote elements per chunk, and of a batch that are kept: on a GPU a sixteenth and a quarter of its memory."""
    if device.type != "cuda":
        return MAX_CHUNK, MAX_KEPT
    memory = torch.cuda.get_device_properties(device).total_memory
    return memory // 64, memory // 16


def use_reference(network: nn.Module) -> None:
    """Switches every layer of the network to the papers' procedures, which store all votes; tests compare with them."""
    for layer in network.modules():
        if isinstance(layer, CapsuleLayer):
            layer.fast = False


def factor(tensor: Tensor) -> Tensor:
    """The tensor in autocast's type, which the factors of products have; unchanged without autocast and in float64."""
    device = tensor.device.type
    if tensor.is_meta or not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))

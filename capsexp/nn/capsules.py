"""Capsule layers: matrices, attention on the votes, routing. They differ in which children vote for which parents."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from capsexp.nn.matrices import TransformationMatrices
from capsexp.nn.routing import Capsules, Routing


class CapsuleLayer(nn.Module):
    """From child capsules to parent capsules.

    Args:
        children, parents, child_pose, parent_pose: I, J, C and D; children of one parent, or parts of as many.
        routing: from votes to parents.
        attention: applied to the votes, before routing.
        structure, scale: see `TransformationMatrices`; a scale of None is the routing's own, where it has one.

    Raises ValueError for a routing that is made for other sizes.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        routing: Routing,
        attention: nn.Module | None,
        structure: Literal["vector", "matrix"],
        scale: float | None,
    ) -> None:
        super().__init__()
        sizes = {"children": children, "parents": parents, "child_pose": child_pose, "pose": parent_pose}
        for name, size in routing.made_for.items():
            if size != sizes[name] and (name != "children" or size % children):
                raise ValueError(f"{type(routing).__name__}: {name}={size}, in a layer of {name}={sizes[name]}")
        scale = routing.scale if scale is None else scale
        matrices = TransformationMatrices(children, parents, child_pose, parent_pose, structure, scale)
        self.matrices = matrices.requires_grad_(routing.trains_matrices)
        self.routing = routing
        self.attention = attention or nn.Identity()

    def flattened(self, children: Capsules) -> Capsules:
        """The children of each parent: poses [..., I, C], activations [..., I] or None."""
        raise NotImplementedError

    def votes(self, children: Capsules) -> Capsules:
        """The votes of these children, [..., I, J, D] after the attention, and the children's activations."""
        poses, activations = self.flattened(children)
        positions = torch.unflatten(poses, -2, (-1, len(self.matrices.weight)))  # that share the matrices
        return Capsules(self.attention(self.matrices(positions)).flatten(-4, -3), activations)

    def forward(self, children: Capsules) -> Capsules:
        """Poses [..., I, C], activations [..., I] or None -> those of the parents, after all iterations.

        A linear layer gives [B, J, D], a convolutional one [B, H', W', J, D], activations likewise.
        """
        return self.routing(*self.votes(children))


class LinearCapsules(CapsuleLayer):
    """Every child, at any position, votes for every parent.

    Args, besides those of `CapsuleLayer`:
        children: I; of shared matrices, the number of children at one position.
        scale: the papers on dynamic routing don't give it; 0.1 is that of Sabour et al.'s release.
        types_first: the children of a grid are numbered type, row, column, as the channels of a feature map are; else
            row, column, type.
        shared: the matrices are the same at every position; children without a grid are numbered position by position.
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
        types_first: bool = False,
        shared: bool = False,
    ) -> None:
        if types_first and shared:
            raise ValueError("types_first=True: not with shared=True, whose children are ordered by position")
        super().__init__(children, parents, child_pose, parent_pose, routing, attention, structure, scale)
        self.types_first, self.shared = types_first, shared

    def flattened(self, children: Capsules) -> Capsules:
        """[B, I, C] as they are, [B, H, W, I, C] -> [B, all children, C], in their order; activations likewise.

        Raises ValueError for other than I children, or of shared matrices than I at each position.
        """
        shape = checked(children).poses.shape[1:-1]
        count, matrices, text = math.prod(shape), len(self.matrices.weight), "×".join(map(str, shape))
        routed = self.routing.made_for.get("children", count)
        if routed != count:
            raise ValueError(f"routes {routed} children, not {text}: another size of images")
        if (shape[-1] % matrices if self.shared else count - matrices) != 0:
            has = f"has matrices for {matrices} children, not for {text}"
            raise ValueError(f"{has}: another size of images, or shared=True is missing")
        if len(shape) == 1:
            return children
        if self.types_first:
            children = children.each(lambda part: part.movedim(3, 1))
        return children.each(lambda part: part.flatten(1, 3))


class ConvCapsules(CapsuleLayer):
    """J parents at every position; their children are the I capsules at each of the K positions under the kernel.

    The matrices belong to pairs of kernel position and type, K · I children in all, and are shared over positions
    (tsai, section 2).

    Args, besides those of `CapsuleLayer`:
        children, parents: I and J, at one position.
        kernel, stride: of the positions, at each of which the children are routed separately.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        kernel: int,
        stride: int,
        routing: Routing,
        attention: nn.Module | None = None,
        structure: Literal["vector", "matrix"] = "matrix",
        scale: float | None = None,
    ) -> None:
        children = kernel**2 * children
        super().__init__(children, parents, child_pose, parent_pose, routing, attention, structure, scale)
        self.kernel, self.stride = kernel, stride

    def extra_repr(self) -> str:
        """Kernel and stride."""
        return f"kernel={self.kernel}, stride={self.stride}"

    def flattened(self, children: Capsules) -> Capsules:
        """Poses [B, H, W, I, C] -> [B, H', W', K · I, C]; activations likewise."""
        return checked(children).each(lambda grid: patches(grid, self.kernel, self.stride).flatten(3, 4))


def checked(children: Capsules) -> Capsules:
    """The children; raises TypeError for a tensor, which else would be taken apart into poses and activations."""
    if not isinstance(children, Capsules):
        raise TypeError(f"children must be Capsules(poses, activations or None), not {type(children).__name__}")
    return children


def output_size(size: Sequence[int], kernel: int, stride: int = 1, padding: int = 0) -> tuple[int, int]:
    """The height and width of a map after a convolution; raises ValueError where the kernel doesn't fit."""
    height, width = size
    after = [(side + 2 * padding - kernel) // stride + 1 for side in (height, width)]
    if min(after) < 1:
        raise ValueError(f"a kernel of {kernel}×{kernel} doesn't fit on {height}×{width} positions")
    return after[0], after[1]


def patches(grid: Tensor, kernel: int, stride: int) -> Tensor:
    """The patch under a kernel at each of its positions: [B, H, W, ...] -> [B, H', W', K, ...], K row by row.

    Position k of the patch at (h, w) is the input at (h · stride + k // kernel, w · stride + k % kernel), with its
    components in their order. (The first release of tsai's code mixed positions and components.)
    """
    windows = grid.unfold(1, kernel, stride).unfold(2, kernel, stride)  # the kernel's rows and columns come last
    return windows.movedim((-2, -1), (3, 4)).flatten(3, 4)

"""Capsules on a grid: primary capsules and convolutional capsules (tsai, section 2)."""

from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from capsexp.nn.capsules import CapsuleLayer, TransformationMatrices, factor
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing, VoteInputs, Votes
from capsexp.nn.squash import squash


def patches(grid: Tensor, kernel: int, stride: int) -> Tensor:
    """The patch under a kernel at each of its positions: [B, H, W, ...] -> [B, H', W', K, ...], K row by row.

    Position k of the patch at (h, w) is the input at (h · stride + k // kernel, w · stride + k % kernel), with its
    components in their order. (The first release of tsai's code mixed positions and components.)
    """
    windows = grid.unfold(1, kernel, stride).unfold(2, kernel, stride)  # the kernel's rows and columns come last
    return windows.movedim((-2, -1), (3, 4)).flatten(3, 4)


def places_of(grid: Tensor, kernel: int, stride: int) -> tuple[int, int]:
    """H' and W', the numbers of positions of a kernel on a grid [B, H, W, ...]."""
    height, width = ((side - kernel) // stride + 1 for side in grid.shape[1:3])
    return height, width


class ConvPrimaryCapsules(nn.Module):
    """A convolution whose output channels, taken `pose` at a time, are the capsules at that position.

    The routing's `presence` decides what is applied to the poses: squash, nothing, or LayerNorm over the C components
    with one affine pair (tsai, procedure 2, line 3). For a routing that uses activations, a second convolution of the
    same kernel with a logistic function gives one for each capsule (tsai, Table 6).

    Args:
        channels: of the feature map.
        types: I, the capsules at a position.
        pose: C.
        kernel, stride: of the convolution, without padding.
        bias: of the convolution that gives the poses; the one for the activations always has one.
        routing: of the layer above.
        attention: applied to the output of the poses' convolution.
    """

    def __init__(
        self,
        channels: int,
        types: int,
        pose: int,
        kernel: int,
        stride: int,
        bias: bool,
        routing: Routing,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, types * pose, kernel, stride, bias=bias)
        self.attention = attention or nn.Identity()
        self.activation = nn.Conv2d(channels, types, kernel, stride) if routing.uses_activations else None
        self.types, self.pose, self.squashed = types, pose, routing.presence == "length"
        self.norm = nn.LayerNorm(pose) if routing.presence == "pose" else nn.Identity()

    def forward(self, features: Tensor) -> Capsules:
        """[B, channels, H, W] -> poses [B, H', W', I, C], activations [B, H', W', I] or None, in float32."""
        maps = self.attention(self.convolution(features))
        poses = at_least_float32(maps.movedim(1, -1).unflatten(-1, (self.types, self.pose)))
        with full_precision(poses):
            poses = squash(poses) if self.squashed else self.norm(poses)
        if self.activation is None:
            return Capsules(poses)
        return Capsules(poses, at_least_float32(self.activation(features)).sigmoid().movedim(1, -1))


class ConvCapsules(CapsuleLayer):
    """J parents at every position; their children are the I capsules at each of the K positions under the kernel.

    The matrices belong to pairs of kernel position and type, K · I children in all, and are shared over positions.

    Args:
        children, parents: I and J, at one position.
        child_pose, parent_pose: C and D.
        kernel, stride: of the positions, without padding.
        routing: from votes to parents, at every position separately.
        attention: applied to the votes, before routing.
        structure, scale: of the transformation matrices.
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
        matrices = TransformationMatrices(kernel**2 * children, parents, child_pose, parent_pose, structure, scale)
        super().__init__(matrices, routing, attention)
        self.kernel, self.stride = kernel, stride

    def votes(self, children: Capsules) -> Votes:
        """Poses [B, H, W, I, C] -> votes [B, H', W', K · I, J, D], activations [B, H', W', K · I]."""
        poses, activations = children
        votes = self.attention(self.matrices(self._patches(poses)))
        return Votes(votes, None if activations is None else self._patches(activations))

    def vote_sum(self, poses: Tensor) -> Tensor:
        """[B, H, W, I, C] -> [B, H', W', J, D], a convolution; each column of matrix poses is an image of its batch."""
        weight = self.matrices.weight  # [K · I, J, Z, Y]; a child is Y × X, a vote Z × X
        parents, rows, columns = weight.shape[1:]
        inner = poses.shape[-1] // columns
        maps = factor(poses).view(*poses.shape[:4], columns, inner).movedim(-1, 1)
        maps = maps.flatten(4).flatten(0, 1).movedim(-1, 1)
        filters = weight.view(self.kernel, self.kernel, -1, parents, rows, columns).permute(3, 4, 2, 5, 0, 1)
        votes = functional.conv2d(maps, filters.flatten(2, 3).flatten(0, 1), stride=self.stride)
        return votes.view(-1, inner, parents, rows, *votes.shape[2:]).permute(0, 4, 5, 2, 3, 1).flatten(4)

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """Poses [B, H, W, I, C], activations [B, H, W, I]."""
        poses, activations = children
        total, window = partial(self.vote_sum, poses), (self.kernel, self.stride)
        return VoteInputs(poses, self.matrices.weight, *window, total, places_of(poses, *window), activations)

    def vote_elements(self, poses: Tensor) -> int:
        """Each child votes once at each position whose kernel covers it."""
        height, width = places_of(poses, self.kernel, self.stride)
        return height * width * len(self.matrices.weight) * self.matrices.vote_elements

    def _patches(self, grid: Tensor) -> Tensor:
        """[B, H, W, I, ...] -> [B, H', W', K · I, ...]."""
        return patches(grid, self.kernel, self.stride).flatten(3, 4)

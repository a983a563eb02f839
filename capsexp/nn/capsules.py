"""Layers of capsules: from feature maps to primary capsules, from child poses to votes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from capsexp.nn.precision import at_least_float32
from capsexp.nn.squash import squash

#: From votes [B, I, J, D] to parent poses [B, J, D].
Routing = Callable[[Tensor], Tensor]

#: Makes a routing procedure for a squash constant, which is the network's to say.
RoutingFactory = Callable[[float], Routing]


class PrimaryCapsules(nn.Module):
    """A convolution whose output channels, taken `pose` at a time, are capsules (Sabour et al. 2017, section 4).

    Args:
        channels: of the feature map.
        types: of capsules; there is one of each type at every position.
        pose: C, the pose size.
        kernel, stride: of the convolution, without padding.
        squash_constant: k of the squash function.
        attention: applied to the convolution's output, before it is cut into capsules.
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

    def forward(self, features: Tensor) -> Tensor:
        """[B, channels, H, W] -> [B, I, C] in float32, with I = types · H' · W', ordered type, row, column.

        The components of a capsule are channels of one and the same position.
        """
        maps = self.attention(self.convolution(features))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, -1, self.pose, height, width).permute(0, 1, 3, 4, 2).reshape(batch, -1, self.pose)
        return squash(at_least_float32(poses), self.squash_constant)


class LinearCapsules(nn.Module):
    """Every child votes for every parent through its own matrix: û_j|i = W_ij u_i (Sabour et al. 2017, Eq. 2).

    Args:
        children, parents: I and J.
        child_pose, parent_pose: C and D.
        routing: from votes to parent poses.
        attention: applied to the votes, before routing.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        routing: Routing,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        # The papers don't give the initialisation; 0.1 is what Sabour et al. have in their release.
        self.weight = nn.Parameter(0.1 * torch.randn(children, parents, parent_pose, child_pose))
        self.routing = routing
        self.attention = attention or nn.Identity()

    def votes(self, children: Tensor) -> Tensor:
        """[B, I, C] -> [B, I, J, D]."""
        return torch.einsum("bic,ijdc->bijd", children, self.weight)

    def forward(self, children: Tensor) -> Tensor:
        """[B, I, C] -> [B, J, D]."""
        poses: Tensor = self.routing(self.attention(self.votes(children)))
        return poses

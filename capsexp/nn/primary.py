"""Primary capsules: from a feature map to capsules on a grid."""

import torch
from torch import Tensor, nn

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Presence
from capsexp.nn.squash import squash


class PrimaryCapsules(nn.Module):
    """A convolution whose output channels, taken `pose` at a time, are capsules (Sabour et al. 2017, section 4).

    Args:
        channels: of the feature map.
        types: I, the capsules at a position.
        pose: C, the pose size.
        kernel, stride: of the convolution, without padding.
        squash_constant: k of the squash function.
        presence: what is applied to the poses, see `Routing`: squash, nothing, or LayerNorm over the C components
            with one affine pair (tsai, procedure 2, line 3).
        activations: a second convolution of the same kernel with a logistic function gives an activation for each
            capsule (tsai, Table 6). Without it the activations are the lengths of squashed poses, else None.
        bias: of the convolution that gives the poses; the one for the activations always has one.
        attention: applied to the output of the poses' convolution.
    """

    def __init__(
        self,
        channels: int,
        types: int,
        pose: int,
        kernel: int,
        stride: int = 1,
        squash_constant: float = 1.0,
        presence: Presence = "length",
        activations: bool = False,
        bias: bool = True,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, types * pose, kernel, stride, bias=bias)
        self.attention = attention or nn.Identity()
        self.activation = nn.Conv2d(channels, types, kernel, stride) if activations else None
        self.types, self.pose = types, pose
        self.squash_constant = squash_constant if presence == "length" else None
        self.norm = nn.LayerNorm(pose) if presence == "pose" else nn.Identity()

    def forward(self, features: Tensor) -> Capsules:
        """[B, channels, H, W] -> poses [B, H', W', I, C], activations [B, H', W', I] or None, in float32.

        The components of a capsule are channels of one position.
        """
        maps = self.attention(self.convolution(features))
        poses = at_least_float32(maps.movedim(1, -1).unflatten(-1, (self.types, self.pose)))
        with full_precision(poses):
            poses = self.norm(poses) if self.squash_constant is None else squash(poses, self.squash_constant)
        if self.activation is not None:
            return Capsules(poses, at_least_float32(self.activation(features)).sigmoid().movedim(1, -1))
        return Capsules(poses, None if self.squash_constant is None else torch.linalg.vector_norm(poses, dim=-1))

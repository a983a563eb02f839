"""The attention modules that the papers put into capsule networks. Each keeps its input's shape."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from capsexp import Count
from capsexp.errors import check_choice

#: See AxisAttention.
Axis = Literal["pose", "parents", "children", "votes", "capsules"]


@dataclass(frozen=True)
class AttentionOptions:
    """The attention modules of a network, which says where it puts them."""

    cbam: bool = False  # on a feature map
    conv: bool = False  # huang's Conv-Attention, on a feature map
    caps: bool = False  # huang's Caps-Attention, on votes
    cbam_reduction: int = 16
    cbam_momentum: float = 0.1
    cbam_kernel: Literal[3, 7] = 7
    first: Callable[[int], nn.Module] | None = None  # in CBAM's place: from a number of channels to a module


class ChannelAttention(nn.Module):
    """Channel attention of CBAM (Woo et al. 2018): M_c = σ(W1 W0 avg(F) + W1 W0 max(F)), W0 of C/r × C.

    jiao, Eqs. 3-4, with the bracket of Eq. 4 where Woo et al. have it. Without the maximum it is the excitation of
    Hu et al. 2018.
    """

    def __init__(self, channels: int, reduction: int = 16, maximum: bool = True) -> None:
        super().__init__()
        self.maximum = maximum
        hidden = max(1, channels // reduction)
        self.shared = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, channels))

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, 1, 1], between 0 and 1."""
        logits: Tensor = self.shared(features.mean(dim=(2, 3)))
        if self.maximum:
            logits = logits + self.shared(features.flatten(2).max(dim=2).values)  # its gradient is faster than amax's
        return torch.sigmoid(logits)[:, :, None, None]


class SpatialAttention(nn.Module):
    """Spatial attention of CBAM: M_s = σ(f⁷ˣ⁷[avg(F); max(F)]) over the channels (jiao, Eqs. 5-6; 7×7 is best there).

    With the batch normalisation that the authors of CBAM have in their release. Its momentum is 0.01 there; torch's
    0.1 moves the mean and variance that evaluation uses sooner to those of a short training.
    """

    def __init__(self, momentum: float = 0.1, kernel: Literal[3, 7] = 7) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 1, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(1, momentum=momentum)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, 1, H, W], between 0 and 1."""
        pooled = torch.cat((features.mean(dim=1, keepdim=True), features.max(dim=1, keepdim=True).values), dim=1)
        return torch.sigmoid(self.norm(self.convolution(pooled)))


class CBAM(nn.Module):
    """Convolutional block attention: F' = M_c(F) · F, F'' = M_s(F') · F' (jiao, section III).

    Args:
        channels: of the feature map.
        reduction: r; jiao doesn't give it, Woo et al. use 16.
        momentum: of the batch normalisation's running mean and variance.
        kernel: of the spatial attention.
    """

    def __init__(self, channels: int, reduction: int = 16, momentum: float = 0.1, kernel: Literal[3, 7] = 7) -> None:
        super().__init__()
        self.channel = ChannelAttention(channels, reduction)
        self.spatial = SpatialAttention(momentum, kernel)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]."""
        refined = self.channel(features) * features
        return self.spatial(refined) * refined


class SqueezeExcitation(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2018, Eqs. 2-4): F' = σ(W2 ReLU(W1 avg(F))) · F, W1 of C/r × C.

    Args:
        channels: of the feature map.
        reduction: r.
    """

    def __init__(self, channels: int, *, reduction: Count = 16) -> None:
        super().__init__()
        self.channel = ChannelAttention(channels, reduction, maximum=False)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]."""
        return self.channel(features) * features


class GatedAttention(nn.Module):
    """Base of huang's two modules: u + u · gate(x), gate(x) = tanh(W2 ReLU(W1 x + b1) + b2) (Eqs. 9-12 and 13-16).

    Args:
        size: of x.
        gates: rows of W1 and W2; None: as many as `size`.
    """

    def __init__(self, size: int, gates: int | None = None) -> None:
        super().__init__()
        gates = gates or size
        self.gate = nn.Sequential(nn.Linear(size, gates), nn.ReLU(), nn.Linear(gates, gates), nn.Tanh())


class ConvAttention(GatedAttention):
    """huang's Conv-Attention on a feature map of Q channels: x is its mean over space (Eq. 8), W1 and W2 are Q × Q.

    "Add u3 and u2" in the text is a slip: Eq. 11 adds u3 and the feature map.
    """

    def forward(self, features: Tensor) -> Tensor:
        """[B, Q, H, W] -> [B, Q, H, W]."""
        return features + features * self.gate(features.mean(dim=(2, 3)))[:, :, None, None]


class CapsAttention(GatedAttention):
    """huang's Caps-Attention on the votes before routing: x is the vote itself, W1 and W2 are D × D.

    The text applies it to a [10, 100, 16] tensor and doesn't name the axis. Over the whole tensor it would need 512
    million weights, so it acts along the pose.
    """

    def forward(self, votes: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return votes + votes * self.gate(votes)


class AxisAttention(nn.Module):
    """Caps-Attention (huang, Eqs. 13-16) with matrices of n × n, n the length of the chosen axis.

    Args:
        axis: `pose`, `parents`, `children`, or `votes`: the J · D components of one child's votes as one vector. The
            paper only says that it acts on a tensor [J, I, D], on "100[10,16] dimensional" capsules made a vector. With
            `capsules` all I · J · D numbers are that vector, W1 is I × (I · J · D), W2 is I × I, and each child's votes
            have one factor: as Conv-Attention's channels do. That is 1.6 million weights in huang's network.
        children, parents, pose: I, J and D.
    """

    def __init__(self, axis: Axis, children: int, parents: int, pose: int) -> None:
        super().__init__()
        check_choice("axis", axis, *get_args(Axis))
        size, self.dim = {
            "children": (children, 1),
            "parents": (parents, 2),
            "pose": (pose, 3),
            "votes": (parents * pose, 2),
            "capsules": (children * parents * pose, 1),
        }[axis]
        self.axis = axis
        self.attention = CapsAttention(size, children if axis == "capsules" else None)

    def forward(self, votes: Tensor) -> Tensor:
        """[B, …, J, D] -> the same shape; the dimensions between B and J are the children's, one or more."""
        flat = votes.flatten(1, -3)  # [B, I, J, D]
        if self.axis == "capsules":
            gates: Tensor = self.attention.gate(flat.flatten(1))
            return (flat + flat * gates[:, :, None, None]).view_as(votes)
        if self.axis == "votes":
            flat = flat.flatten(2)
        along: Tensor = self.attention(flat.movedim(self.dim, -1))
        return along.movedim(-1, self.dim).view_as(votes)

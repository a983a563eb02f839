"""The attention modules that the papers put into capsule networks. Each keeps its input's shape."""

import torch
from torch import Tensor, nn


class ChannelAttention(nn.Module):
    """Channel attention of CBAM (Woo et al. 2018): M_c = σ(W1 W0 avg(F) + W1 W0 max(F)), W0 of C/r × C.

    jiao, Eqs. 3-4, with the bracket of Eq. 4 where Woo et al. have it.
    """

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        hidden = max(1, channels // reduction)
        self.shared = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, channels))

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, 1, 1], between 0 and 1."""
        average = self.shared(features.mean(dim=(2, 3)))
        maximum = self.shared(features.amax(dim=(2, 3)))
        return torch.sigmoid(average + maximum)[:, :, None, None]


class SpatialAttention(nn.Module):
    """Spatial attention of CBAM: M_s = σ(f⁷ˣ⁷[avg(F); max(F)]) over the channels (jiao, Eqs. 5-6).

    With the batch normalisation that the authors of CBAM have in their release.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 1, kernel_size=7, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(1)

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, 1, H, W], between 0 and 1."""
        pooled = torch.cat((features.mean(dim=1, keepdim=True), features.amax(dim=1, keepdim=True)), dim=1)
        return torch.sigmoid(self.norm(self.convolution(pooled)))


class CBAM(nn.Module):
    """Convolutional block attention: F' = M_c(F) · F, F'' = M_s(F') · F' (jiao, section III).

    Args:
        channels: of the feature map.
        reduction: r; jiao doesn't give it, Woo et al. use 16.
    """

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__()
        self.channel = ChannelAttention(channels, reduction)
        self.spatial = SpatialAttention()

    def forward(self, features: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]."""
        refined = self.channel(features) * features
        return self.spatial(refined) * refined


class GatedAttention(nn.Module):
    """u + u · tanh(W2 ReLU(W1 x + b1) + b2): what huang's two modules share (Eqs. 9-12 and 13-16)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size), nn.Tanh())


class ConvAttention(GatedAttention):
    """huang's Conv-Attention, on a feature map of Q channels: x is its mean over space (Eq. 8), W1 and W2 are Q × Q.

    "Add u3 and u2" in the text is a slip: Eq. 11 adds u3 and the feature map.
    """

    def forward(self, features: Tensor) -> Tensor:
        """[B, Q, H, W] -> [B, Q, H, W]."""
        return features + features * self.gate(features.mean(dim=(2, 3)))[:, :, None, None]


class CapsAttention(GatedAttention):
    """huang's Caps-Attention, on the votes before routing: x is the vote itself, W1 and W2 are D × D.

    The text has it act on a [10, 100, 16] tensor without saying along which axis; over the whole tensor it
    would need 512 million weights, so it acts along the pose.
    """

    def forward(self, votes: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return votes + votes * self.gate(votes)

"""What the convolutional networks without capsules share."""

from torch import Tensor, nn

from capsexp.config.schema import Attention
from capsexp.models import cbam
from capsexp.nn.scores import Prediction


class ConvolutionalNetwork(nn.Module):
    """A network without capsules and routing: `layers` from images to logits."""

    layers: nn.Sequential

    def forward(self, images: Tensor) -> Prediction:
        """[B, channels, H, W] -> logits [B, J]."""
        return Prediction(self.layers(images), None)


def first_attention(attention: Attention, channels: int) -> nn.Module:
    """CBAM for the output of the first convolution, or the identity.

    Raises ValueError for the attention flags of capsule networks.
    """
    flags = [f"attention.{flag}=true" for flag in ("conv", "caps") if getattr(attention, flag)]
    if flags:
        raise ValueError(
            f"{' and '.join(flags)}: this network has no capsules; attention.cbam is the only one it takes"
        )
    return cbam(channels, attention)

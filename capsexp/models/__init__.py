"""Each published network, assembled from `nn` and `routing`: a page each.

A network is built as `Network(image_shape, classes, routing, attention, *, …)`. The arguments before the star come from
the rest of the configuration: (channels, height, width); J; what makes a layer's routing procedure, unused in networks
without capsules; and the flags of the attention modules. The keyword-only arguments are the keys under `model`. Its
forward pass takes images [B, channels, H, W] and returns a `Prediction`. Arguments that make no network, such as a
kernel that doesn't fit, raise ValueError with one line.
"""

from torch import nn

from capsexp.config.schema import Attention
from capsexp.nn.attention import CBAM


def scaled(channels: int, width: float) -> int:
    """The number of channels at a fraction `width` of the paper's, at least one."""
    return max(1, round(channels * width))


def convolved(size: int, kernel: int, stride: int = 1, padding: int = 0) -> int:
    """The side length in pixels after a convolution; raises ValueError when the kernel doesn't fit."""
    if size + 2 * padding < kernel:
        raise ValueError(f"a {kernel}×{kernel} kernel doesn't fit on {size}×{size} positions")
    return (size + 2 * padding - kernel) // stride + 1


def cbam(channels: int, attention: Attention) -> nn.Module:
    """CBAM for a feature map of so many channels; the identity where the flag is off."""
    return CBAM(channels, attention.cbam_reduction, attention.cbam_momentum) if attention.cbam else nn.Identity()


def initialise_as_keras(network: nn.Module) -> None:
    """Sets Keras' defaults in place: Glorot's uniform weights and zero biases in all convolutions and linear layers.

    torch's weights have a third of that variance where a layer has as many inputs as outputs, and its biases aren't
    zero: DA-CapsNet then learns more slowly at first.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

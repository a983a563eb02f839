"""tsai's two baseline CNNs (Tables 2, 3 and 12).

| CIFAR (Tables 2, 3)       | gives          | DiverseMultiMNIST (Table 12)  | gives          |
|---------------------------|----------------|-------------------------------|----------------|
| convolution 3×3, stride 2, padding 1, ReLU | 1024 × 16 × 16 | the same | 1024 × 18 × 18 |
| convolution 3×3, stride 2, padding 1, ReLU, batch norm | 1024 × 8 × 8 | the same, no padding | 1024 × 8 × 8 |
| average pooling 2×2       | 1024 × 4 × 4   |                               |                |
| convolution 3×3, stride 2, padding 1, ReLU, batch norm | 1024 × 2 × 2 | stride 1, no padding | 1024 × 6 × 6 |
| average pooling 2×2       | 1024           |                               |                |
|                           |                | linear a position, mean over the positions | 640 |
|                           |                | *or* fully connected          | 640            |
| linear                    | J              | linear                        | J              |

"ReLU + Batch Norm" is in this order in the tables, unlike in those of EM routing, and is built so. Between the two
linear layers of Table 12 there is no activation; its sigmoid is part of the loss, so the scores are logits. Table 12
prints three input channels; its parameter counts hold for one.
"""

import math
from typing import Literal

from torch import nn

from capsexp import Count, WidthFraction
from capsexp.errors import check_choice
from capsexp.models.parts import ConvolutionalNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions
from capsexp.nn.capsules import output_size


class TsaiCNN(ConvolutionalNetwork):
    """The baseline of Tables 2 and 3, for images of 21×21 pixels and more.

    Args, besides those of `ConvolutionalNetwork`:
        channels: of all three convolutions.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        channels: Count = 1024,
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        channels = at_width(channels, width)
        size = output_size(size, 3, stride=2, padding=1)
        for _ in range(2):
            size = output_size(output_size(size, 3, stride=2, padding=1), 2, stride=2)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride=2, padding=1),
            nn.ReLU(),
            cbam(channels, attention, capsules=False),
            *_normed(channels, stride=2, padding=1),
            nn.AvgPool2d(2),
            *_normed(channels, stride=2, padding=1),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(channels * math.prod(size), classes),
        )


class TsaiMultiCNN(ConvolutionalNetwork):
    """The baseline of Table 12, with as many layers and neurons as tsai's capsule networks for DiverseMultiMNIST.

    Args, besides those of `ConvolutionalNetwork`:
        channels: of all three convolutions.
        hidden: width of the layer before the last.
        head: that layer: `pooled`, one linear map for all positions and their mean, or `connected`, a fully
            connected layer (section 6: "pooling with learnable parameters").
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        channels: Count = 1024,
        hidden: Count = 640,
        head: Literal["pooled", "connected"] = "pooled",
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        check_choice("head", head, "pooled", "connected")
        channels, hidden = at_width(channels, width), at_width(hidden, width)
        size = output_size(output_size(output_size(size, 3, stride=2, padding=1), 3, stride=2), 3)
        # A linear map of every position, as a convolution of 1×1; its mean over the positions is Table 12's pooling.
        kernel = 1 if head == "pooled" else size
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride=2, padding=1),
            nn.ReLU(),
            cbam(channels, attention, capsules=False),
            *_normed(channels, stride=2, padding=0),
            *_normed(channels, stride=1, padding=0),
            nn.Conv2d(channels, hidden, kernel),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(hidden, classes),
        )


def _normed(channels: int, stride: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, channels, 3, stride, padding), nn.ReLU(), nn.BatchNorm2d(channels)]

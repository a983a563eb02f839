"""ResNet-18 for small images (He et al. 2016; tsai, Table 1).

| layer                               | on 3×32×32        | gives        |
|-------------------------------------|-------------------|--------------|
| convolution, batch norm, ReLU       | 64 kernels of 3×3 | 64 × 32 × 32 |
| two residual blocks                 | 64                | 64 × 32 × 32 |
| two residual blocks, the first of stride 2 | 128        | 128 × 16 × 16 |
| two residual blocks, the first of stride 2 | 256        | 256 × 8 × 8  |
| two residual blocks, the first of stride 2 | 512        | 512 × 4 × 4  |
| mean over the positions, linear     | J                 | J            |

tsai gives only the 11.17M parameters. They are those of He et al.'s four stages for ImageNet, with 3×3 kernels in place
of the 7×7 of stride 2, and without the max pooling. Initial weights are torch's defaults, as in the ResNet backbone of
the capsule networks in Table 1.
"""

from torch import nn

from capsexp import Count, WidthFraction
from capsexp.models.parts import ConvolutionalNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions
from capsexp.nn.backbones import ResidualBlock


class ResNet18(ConvolutionalNetwork):
    """Eighteen layers with weights, for images of any size.

    Args, besides those of `ConvolutionalNetwork`:
        channels: of the first stage; each of the next three has twice as many as the one before.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        channels: Count = 64,
    ) -> None:
        super().__init__()
        stages = [at_width(channels * 2**stage, width) for stage in range(4)]
        layers: list[nn.Module] = [
            nn.Conv2d(image_shape[0], stages[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(stages[0]),
            nn.ReLU(),
            cbam(stages[0], attention, capsules=False),
        ]
        before = stages[0]
        for stage, outputs in enumerate(stages):
            layers += [
                ResidualBlock(before, outputs, stride=2 if stage else 1),
                ResidualBlock(outputs, outputs, stride=1),
            ]
            before = outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
        self.layers = nn.Sequential(*layers)

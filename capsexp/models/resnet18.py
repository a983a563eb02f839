"""ResNet-18 for small images (He et al. 2016; tsai, Table 1).

| layer                               | on 3×32×32        | gives        |
|-------------------------------------|-------------------|--------------|
| convolution, batch norm, ReLU       | 64 kernels of 3×3 | 64 × 32 × 32 |
| two residual blocks                 | 64                | 64 × 32 × 32 |
| two residual blocks, the first of stride 2 | 128        | 128 × 16 × 16 |
| two residual blocks, the first of stride 2 | 256        | 256 × 8 × 8  |
| two residual blocks, the first of stride 2 | 512        | 512 × 4 × 4  |
| mean over the positions, linear     | J                 | J            |

tsai gives 11.17M parameters and nothing else: the four stages of He et al. for ImageNet, with 3×3 kernels in place
of the 7×7 of stride 2, and without the max pooling. Initialised as in He et al. 2015.
"""

from typing import Annotated

from torch import Tensor, nn

from capsexp.checks import Range
from capsexp.config import Attention
from capsexp.models import Prediction, scaled
from capsexp.models.cnn import first_attention
from capsexp.nn.capsules import RoutingFactory


class ResidualBlock(nn.Module):
    """y = ReLU(F(x) + x), F two convolutions of 3×3 with batch norm (He et al. 2016, Eqs. 1-2 and Fig. 5, left).

    Where the shape changes, x goes through a convolution of 1×1 with batch norm (their option B).
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, features: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride], rounded up."""
        out: Tensor = (self.residual(features) + self.shortcut(features)).relu()
        return out


class ResNet18(nn.Module):
    """Eighteen layers with weights, for images of any size.

    Args:
        image_shape: (channels, height, width).
        classes: J.
        routing: ignored, there are no capsules.
        attention: `cbam` after the first convolution's ReLU; no other.
        width: fraction of the channels.
        channels: of the first stage; each of the next three has twice those of the one before.

    Raises ValueError for an attention flag that there is no place for.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory,
        attention: Attention,
        *,
        width: Annotated[float, Range(above=0, high=1)] = 1.0,
        channels: Annotated[int, Range(1)] = 64,
    ) -> None:
        super().__init__()
        stages = [scaled(channels * 2**stage, width) for stage in range(4)]
        layers: list[nn.Module] = [
            nn.Conv2d(image_shape[0], stages[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(stages[0]),
            nn.ReLU(),
            first_attention(attention, stages[0]),
        ]
        before = stages[0]
        for stage, outputs in enumerate(stages):
            layers += [ResidualBlock(before, outputs, stride=2 if stage else 1), ResidualBlock(outputs, outputs, 1)]
            before = outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
        self.layers = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Prediction:
        """[B, channels, H, W] -> logits [B, J]."""
        return Prediction(self.layers(images), None)

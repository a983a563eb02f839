"""The residual backbone: from an image to the feature map below the primary capsules (tsai, A.1)."""

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """ReLU(x + F(x)), F two 3×3 convolutions with batch norm (He et al. 2016, Fig. 2 and section 4.2).

    Where the shape changes, x passes a 1×1 convolution with batch norm first.
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
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H', W'], H' = ⌈H / stride⌉."""
        added: Tensor = self.shortcut(features) + self.residual(features)
        return added.relu()


class ResNetBackbone(nn.Sequential):
    """A 3×3 convolution, three residual blocks, four more, the first of those of stride 2 (tsai, A.1).

    "Four with stride 2" in the text can't mean each of the four: it gives 16×16 for 32×32.

    Args:
        inputs: channels of the image.
        stem: channels of the convolution and the first three blocks; 64 in the paper.
        channels: of the other four and of the feature map.
    """

    def __init__(self, inputs: int, stem: int, channels: int) -> None:
        convolution = nn.Conv2d(inputs, stem, 3, padding=1, bias=False)
        first = [ResidualBlock(stem, stem, stride=1) for _ in range(3)]
        second = [ResidualBlock(stem if at == 0 else channels, channels, stride=2 if at == 0 else 1) for at in range(4)]
        super().__init__(convolution, nn.BatchNorm2d(stem), nn.ReLU(), *first, *second)

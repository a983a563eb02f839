"""The residual backbone: its layers and shape as in tsai's tables, and what a residual block adds."""

import torch
from torch import nn

from capsexp.nn.backbones import ResidualBlock, ResNetBackbone


def test_layers_and_shape() -> None:
    with torch.device("meta"):
        made = ResNetBackbone(3, 64, 128)
        assert made(torch.zeros(2, 3, 32, 32)).shape == (2, 128, 16, 16)
    assert [type(layer).__name__ for layer in made] == ["Conv2d", "BatchNorm2d", "ReLU", *["ResidualBlock"] * 7]


def test_a_block_whose_residual_is_zero_is_a_relu() -> None:
    block = ResidualBlock(4, 4, 1)
    nn.init.zeros_(block.residual[-1].weight)
    features = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(block(features), features.relu())

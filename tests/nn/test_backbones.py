"""Backbones: shapes as in tsai's tables, and what a residual block adds."""

import pytest
import torch
from torch import nn

from capsexp.nn.backbones import ResidualBlock, ResNetBackbone, SimpleBackbone

RESIDUAL = ["ResidualBlock"] * 7


@pytest.mark.parametrize(
    ("backbone", "shape", "layers"),
    [
        (lambda: SimpleBackbone(3, 256, 3, stride=2, padding=1), (256, 16, 16), ["Conv2d", "ReLU"]),
        (lambda: SimpleBackbone(3, 256, 4, 2, padding=1, norm=True), (256, 16, 16), ["Conv2d", "BatchNorm2d", "ReLU"]),
        (lambda: SimpleBackbone(3, 256, 9), (256, 24, 24), ["Conv2d", "ReLU"]),
        (lambda: ResNetBackbone(3, 64, 128), (128, 16, 16), ["Conv2d", "BatchNorm2d", "ReLU", *RESIDUAL]),
    ],
)
def test_layers_and_shapes(backbone, shape: tuple[int, int, int], layers: list[str]):
    with torch.device("meta"):
        made = backbone()
        assert made(torch.zeros(2, 3, 32, 32)).shape == (2, *shape)
    assert [type(layer).__name__ for layer in made] == layers


def test_a_block_whose_residual_is_zero_is_a_relu():
    block = ResidualBlock(4, 4, 1)
    nn.init.zeros_(block.residual[-1].weight)
    features = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(block(features), features.relu())

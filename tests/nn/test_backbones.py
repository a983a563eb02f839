"""Backbones: shapes as in tsai's tables, and what a residual block adds."""

import pytest
import torch
from torch import nn

from capsexp.nn.backbones import ResidualBlock, ResNetBackbone, SimpleBackbone


@pytest.mark.parametrize(
    ("backbone", "shape"),
    [
        (lambda: SimpleBackbone(3, 256, 3, stride=2, padding=1), (256, 16, 16)),
        (lambda: SimpleBackbone(3, 256, 4, stride=2, padding=1, norm=True), (256, 16, 16)),
        (lambda: SimpleBackbone(3, 256, 9), (256, 24, 24)),
        (lambda: ResNetBackbone(3, 64, 128), (128, 16, 16)),
    ],
)
def test_shapes(backbone, shape: tuple[int, int, int]):
    with torch.device("meta"):
        assert backbone()(torch.zeros(2, 3, 32, 32)).shape == (2, *shape)


def test_the_convolutions_of_the_resnet():
    convolutions = [m for m in ResNetBackbone(3, 8, 16).modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 1 + 7 * 2 + 1  # one shortcut changes the shape
    assert sum(c.stride == (2, 2) for c in convolutions) == 2  # a block's first convolution and its shortcut
    assert all(c.bias is None for c in convolutions)


def test_the_layers_of_the_backbones():
    for backbone, layers in (
        (SimpleBackbone(3, 4, 3), ["Conv2d", "ReLU"]),
        (SimpleBackbone(3, 4, 3, norm=True), ["Conv2d", "BatchNorm2d", "ReLU"]),
        (ResNetBackbone(3, 4, 5), ["Conv2d", "BatchNorm2d", "ReLU", *["ResidualBlock"] * 7]),
    ):
        assert [type(layer).__name__ for layer in backbone] == layers


def test_a_block_whose_residual_is_zero_is_a_relu():
    block = ResidualBlock(4, 4, 1)
    nn.init.zeros_(block.residual[-1].weight)
    features = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(block(features), features.relu())

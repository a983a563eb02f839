"""Efficient-CapsNet: parameters, layers, image sizes."""

import pytest
import torch
from support import composed_config

from capsexp.run.build import build, count_parameters


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        ("data=mnist", 161_824),
        ("data=mnist reconstruction.enabled=true", 161_824 + 1_411_344),
        ("data=mnist routing=dynamic", 161_824 - 16 * 10),  # no bias a child and parent
        ("data=mnist attention.conv=true", 161_824 + 2 * (128 * 128 + 128)),
        ("data=mnist attention.caps=true", 161_824 + 2 * (16 * 16 + 16)),
        ("data=mnist data.size=96", 161_824 + 128 * (43**2 - 9**2)),
    ],
)
def test_parameters(overrides: str, parameters: int) -> None:
    assert count_parameters(composed_config("model=efficient_capsnet", *overrides.split())) == parameters


def test_the_layers_have_the_papers_shapes() -> None:
    network = build(composed_config("model=efficient_capsnet")).network
    features = network.trunk(torch.rand(2, 1, 28, 28))
    assert features.shape == (2, 128, 9, 9)
    assert network.depthwise(features).shape == (2, 128, 1, 1)
    assert network.classes.matrices.weight.shape == (16, 10, 16, 8)
    assert network.classes.matrices.weight.std().item() == pytest.approx((2 / 1280) ** 0.5, rel=0.05)

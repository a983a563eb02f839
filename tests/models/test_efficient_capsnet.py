"""Efficient-CapsNet: its layers."""

import pytest
import torch
from support import composed_config

from capsexp.run.build import build


def test_the_layers_have_the_papers_shapes() -> None:
    network = build(composed_config("model=efficient_capsnet")).network
    features = network.trunk(torch.rand(2, 1, 28, 28))
    assert features.shape == (2, 128, 9, 9)
    assert network.depthwise(features).shape == (2, 128, 1, 1)
    assert network.classes.matrices.weight.shape == (16, 10, 16, 8)
    assert network.classes.matrices.weight.std().item() == pytest.approx((2 / 1280) ** 0.5, rel=0.05)

"""CapsNet and Efficient-CapsNet: the place of CBAM."""

import pytest
import torch
from support import composed_config

from capsexp.models import EfficientCapsNet
from capsexp.nn import AttentionOptions
from capsexp.run.build import build


@pytest.mark.parametrize(
    ("option", "module", "factor"), [("attention.cbam=true", "cbam", 1.0), ("model.feature_scale=0.3", "primary", 0.3)]
)
def test_what_reads_the_first_convolutions_relu(option: str, module: str, factor: float) -> None:
    network = build(composed_config(option, "budget=demo")).network
    images = torch.rand(2, 1, 28, 28)
    read: list[torch.Tensor] = []
    getattr(network, module).register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    network(images)
    torch.testing.assert_close(read[0], factor * network.convolution(images).relu())


def test_efficient_capsnets_layers_and_activations() -> None:
    network, layer = EfficientCapsNet((1, 28, 28), 10, attention=AttentionOptions(cbam=True)), "Conv2d ReLU BatchNorm2d"
    assert [type(each).__name__ for each in network.trunk] == f"{layer} CBAM {layer} {layer} {layer} Identity".split()
    poses, activations = network.forward_features(torch.rand(2, 1, 28, 28))
    torch.testing.assert_close(activations, poses.norm(dim=-1))

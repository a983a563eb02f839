"""The convolutional networks that the papers compare with: their layers."""

import pytest
import torch
from support import composed_config

from capsexp.run import build

#: The layers of the papers' tables, in their order; Identity is the place of CBAM.
LAYERS = {
    "model=huang_cnn": "Conv2d ReLU Identity MaxPool2d Conv2d ReLU MaxPool2d Flatten Linear ReLU Dropout Linear",
    "model=sabour_cnn": "Conv2d ReLU Identity Conv2d ReLU Conv2d ReLU Flatten Linear ReLU Linear ReLU Dropout Linear",
    "model=tsai_cnn": "Conv2d ReLU Identity" + 2 * " Conv2d ReLU BatchNorm2d AvgPool2d" + " Flatten Linear",
    "model=tsai_cnn_multimnist": "Conv2d ReLU Identity Conv2d ReLU BatchNorm2d Conv2d ReLU BatchNorm2d Conv2d "
    "AdaptiveAvgPool2d Flatten Linear",
    "model=resnet18": "Conv2d BatchNorm2d ReLU Identity" + 8 * " ResidualBlock" + " AdaptiveAvgPool2d Flatten Linear",
}


@pytest.mark.parametrize("model", LAYERS)
def test_the_layers_are_those_of_the_papers_tables_in_their_order(model: str):
    with torch.device("meta"):
        network = build.build(
            composed_config(model, "data=cifar10", "data.size=36", "trainer.routing=reference")
        ).network
    assert [type(layer).__name__ for layer in network.layers] == LAYERS[model].split()  # type: ignore[union-attr]

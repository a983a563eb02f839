"""The convolutional networks that the papers compare with: parameters, layers, flags."""

import pytest
import torch
from support import composed_config

from capsexp.config.schema import Attention
from capsexp.errors import InputError
from capsexp.run import build

MULTI = ["data=diverse_multimnist", "model=tsai_cnn_multimnist"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data=mnist", "model=sabour_cnn"], 35_445_522),
        (["data=cifar10", "model=huang_cnn"], 2_432 + 51_264 + 4_195_328 + 10_250),
        (["data=mnist", "model=huang_cnn"], 832 + 51_264 + (64 * 49 + 1) * 1024 + 10_250),
        (["data=cifar10", "model=huang_cnn", "model.padding=valid"], 2_432 + 51_264 + 1601 * 1024 + 10_250),
        (["data=cifar10", "model=huang_cnn", "data.classes=5"], 4_253_349 + 25 * 32),  # Hinton: "4.2M", of two channels
        (["data=cifar10", "model=tsai_cnn"], 18_919_434),
        (["data=cifar100", "model=tsai_cnn"], 19_011_684),
        (MULTI, 19_553_162),
        ([*MULTI, "model.head=connected"], 42_490_762),
        (["data=cifar10", "model=resnet18"], 11_173_962),
        (["data=cifar100", "model=resnet18"], 11_220_132),
    ],
)
def test_parameters(overrides: list[str], expected: int):
    assert build.count_parameters(composed_config(*overrides)) == expected


@pytest.mark.parametrize(
    ("model", "data", "optim", "preprocess"),
    [
        ("sabour_cnn", "mnist", "adam", (False, 0.0, 0)),
        ("huang_cnn", "smallnorb", "adam", (False, 0.1, 0)),
        ("tsai_cnn", "cifar10", "sgd", (True, 0.0, 4)),
        ("tsai_cnn_multimnist", "diverse_multimnist", "sgd", (False, 0.0, 0)),
        ("resnet18", "cifar100", "sgd", (True, 0.0, 4)),
    ],
)
def test_the_paper_choices_come_with_the_model(model: str, data: str, optim: str, preprocess: tuple[bool, float, int]):
    chosen = composed_config(f"model={model}", f"data={data}")
    assert chosen.optim.name == optim
    assert (chosen.preprocess.normalize, chosen.preprocess.shift, chosen.preprocess.crop_padding) == preprocess
    assert chosen.attention == Attention(cbam=False, conv=False, caps=False, cbam_reduction=16)
    assert chosen.model.arguments["width"] == 1.0
    assert composed_config(f"model={model}", f"data={data}", "budget.width=0.125").model.arguments["width"] == 0.125


@pytest.mark.parametrize("model", ["sabour_cnn", "huang_cnn", "tsai_cnn", "tsai_cnn_multimnist", "resnet18"])
def test_attention_of_capsules_is_refused(model: str):
    words = "attention.conv=true and attention.caps=true: this network has no capsules; it takes only attention.cbam"
    with pytest.raises(InputError, match=words):
        build.count_parameters(composed_config(f"model={model}", "data=mnist", "attention=dual"))


def test_the_least_size_of_tsai_cnn_is_21_pixels():
    assert build.build(composed_config("model=tsai_cnn", "data=mnist", "data.size=21")).parameters > 0


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

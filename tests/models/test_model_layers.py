"""The networks' layers: those of the papers' tables in their order, initialisation, the places of attention."""

import pytest
import torch
from support import composed_config
from torch import nn

from capsexp.models import DACapsNet, EfficientCapsNet, EMCapsNet, InvertedCapsNet
from capsexp.nn import AttentionOptions, AxisAttention, squash
from capsexp.run.build import build

NORMED = "Conv2d ReLU BatchNorm2d"

#: The layers of the papers' tables; Identity is the place of CBAM or of Conv-Attention.
LAYERS = {
    "huang_cnn": "Conv2d ReLU Identity MaxPool2d Conv2d ReLU MaxPool2d Flatten Linear ReLU Dropout Linear",
    "sabour_cnn": "Conv2d ReLU Identity Conv2d ReLU Conv2d ReLU Flatten Linear ReLU Linear ReLU Dropout Linear",
    "tsai_cnn": f"Conv2d ReLU Identity {NORMED} AvgPool2d {NORMED} AvgPool2d Flatten Linear",
    "tsai_cnn_multimnist": f"Conv2d ReLU Identity {NORMED} {NORMED} Conv2d AdaptiveAvgPool2d Flatten Linear",
    "resnet18": "Conv2d BatchNorm2d ReLU Identity" + 8 * " ResidualBlock" + " AdaptiveAvgPool2d Flatten Linear",
    "da_capsnet": "Conv2d ReLU AvgPool2d Conv2d ReLU Conv2d ReLU",
    "efficient_capsnet attention.cbam=true": f"{NORMED} CBAM {NORMED} {NORMED} {NORMED} Identity",
}


@pytest.mark.parametrize("words", LAYERS)
def test_the_layers_are_those_of_the_papers_tables_in_their_order(words: str) -> None:
    config = composed_config(*f"model={words} data=cifar10 data.size=36 trainer.routing=reference".split())
    with torch.device("meta"):
        network = build(config).network
    layers = network.trunk if hasattr(network, "trunk") else network.layers
    assert [type(layer).__name__ for layer in layers] == LAYERS[words].split()


@pytest.mark.parametrize(
    ("option", "module", "factor"), [("attention.cbam=true", "cbam", 1.0), ("model.feature_scale=0.3", "primary", 0.3)]
)
def test_what_reads_the_relu_of_capsnets_first_convolution(option: str, module: str, factor: float) -> None:
    network = build(composed_config(option, "budget=demo")).network
    images = torch.rand(2, 1, 28, 28)
    read: list[torch.Tensor] = []
    getattr(network, module).register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    network(images)
    torch.testing.assert_close(read[0], factor * network.convolution(images).relu())


def test_da_capsnet_begins_as_in_keras() -> None:
    last = DACapsNet((3, 32, 32), 10).trunk[-2]  # a convolution of 128 · 9 inputs and outputs a position
    assert (last.bias == 0).all()
    assert last.weight.abs().max().item() == pytest.approx((6 / (2 * 128 * 9)) ** 0.5, rel=1e-3)


def test_a_childs_activation_is_the_length_of_its_squashed_pose() -> None:
    poses, activations = DACapsNet((3, 32, 32), 10).forward_features(torch.rand(2, 3, 32, 32))
    torch.testing.assert_close(activations, squash(poses, 0.5).norm(dim=-1))
    poses, activations = EfficientCapsNet((3, 32, 32), 10).forward_features(torch.rand(2, 3, 32, 32))
    torch.testing.assert_close(activations, poses.norm(dim=-1))


@pytest.mark.parametrize("network", [EMCapsNet, InvertedCapsNet])
def test_caps_attention_is_on_the_votes_for_the_classes(network: type[nn.Module]) -> None:
    layers = network((1, 28, 28), 5, attention=AttentionOptions(caps=True), width=0.1).classes.layers
    assert [type(layer.attention).__name__ for layer in layers] == ["Identity", "Identity", "CapsAttention"]


@pytest.mark.parametrize("axis", ["pose", "parents", "children", "votes"])
def test_caps_attention_acts_along_its_axis_only(axis: str) -> None:
    attention = AxisAttention(axis, children=5, parents=4, pose=3)  # type: ignore[arg-type]
    votes = torch.randn(1, 5, 4, 3)
    moved = votes.clone()
    moved[0, 2, 1, 0] += 1
    changed = (attention(votes) != attention(moved))[0]
    line = {"pose": changed[2, 1], "parents": changed[2, :, 0], "children": changed[:, 1, 0], "votes": changed[2]}[axis]
    assert int(changed.sum()) == int(line.sum()) > 1


def test_caps_attention_of_capsules_gives_each_child_a_factor_from_all_votes() -> None:
    attention = AxisAttention("capsules", children=5, parents=4, pose=3)
    votes = torch.randn(2, 5, 4, 3)
    first, _, second, _ = attention.attention.gate
    gates = torch.tanh(second(first(votes.flatten(1)).relu()))
    assert gates.shape == (2, 5)
    torch.testing.assert_close(attention(votes), votes * (1 + gates)[:, :, None, None])

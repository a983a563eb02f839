"""huang's DA-CapsNet: layers, votes, attention."""

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.config.schema import Config
from capsexp.models.da_capsnet import DACapsNet
from capsexp.nn.attention import AxisAttention
from capsexp.run import build


def checked(*overrides: str) -> Config:
    return composed_config("model=da_capsnet", *overrides)


@pytest.mark.parametrize(("data", "channels"), [("cifar10", 3), ("mnist", 1)])
def test_a_hundred_children_vote_for_ten_parents(data: str, channels: int):
    network = build.build(
        checked(f"data={data}", "attention=none", "model.width=0.0625", "trainer.routing=reference")
    ).network
    assert isinstance(network, DACapsNet)
    routed: list[Tensor] = []
    network.classes.routing.register_forward_hook(lambda _module, inputs, _output: routed.append(inputs[0]))
    size = 32 if channels == 3 else 28
    scores, poses = network(torch.rand(2, channels, size, size))
    assert [tuple(votes.shape) for votes in routed] == [(2, 100, 10, 16)]
    assert scores.shape == (2, 10)
    assert poses is not None
    assert poses.shape == (2, 10, 16)
    torch.testing.assert_close(scores, poses.norm(dim=-1))
    assert bool((scores < 1).all())


def test_the_layers_below_the_votes_and_keras_initialisation():
    network = DACapsNet((3, 32, 32), 10)
    trunk = "Conv2d ReLU AvgPool2d Conv2d ReLU Conv2d ReLU"
    assert [type(layer).__name__ for layer in network.trunk] == trunk.split()
    last = network.trunk[-2]  # a convolution of 128 · 9 inputs and outputs a position
    assert (last.bias == 0).all()
    assert last.weight.abs().max().item() == pytest.approx((6 / (2 * 128 * 9)) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("axis", ["pose", "parents", "children", "votes"])
def test_caps_attention_acts_along_its_axis_only(axis: str):
    attention = AxisAttention(axis, children=5, parents=4, pose=3)  # type: ignore[arg-type]
    votes = torch.randn(1, 5, 4, 3)
    moved = votes.clone()
    moved[0, 2, 1, 0] += 1
    changed = (attention(votes) != attention(moved))[0]
    line = {"pose": changed[2, 1], "parents": changed[2, :, 0], "children": changed[:, 1, 0], "votes": changed[2]}[axis]
    assert int(changed.sum()) == int(line.sum()) > 1


def test_caps_attention_of_capsules_gives_each_child_a_factor_from_all_votes():
    attention = AxisAttention("capsules", children=5, parents=4, pose=3)
    votes = torch.randn(2, 5, 4, 3)
    first, _, second, _ = attention.attention.gate
    gates = torch.tanh(second(first(votes.flatten(1)).relu()))
    assert gates.shape == (2, 5)
    torch.testing.assert_close(attention(votes), votes * (1 + gates)[:, :, None, None])

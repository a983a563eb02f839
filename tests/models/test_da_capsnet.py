"""huang's DA-CapsNet: its layers, and attention along the axes of the votes."""

import pytest
import torch

from capsexp.models.da_capsnet import DACapsNet
from capsexp.nn.attention import AxisAttention
from capsexp.nn.squash import squash


def test_the_layers_below_the_votes_and_keras_initialisation():
    network = DACapsNet((3, 32, 32), 10)
    trunk = "Conv2d ReLU AvgPool2d Conv2d ReLU Conv2d ReLU"
    assert [type(layer).__name__ for layer in network.trunk] == trunk.split()
    last = network.trunk[-2]  # a convolution of 128 · 9 inputs and outputs a position
    assert (last.bias == 0).all()
    assert last.weight.abs().max().item() == pytest.approx((6 / (2 * 128 * 9)) ** 0.5, rel=1e-3)


def test_a_childs_activation_is_the_length_of_its_squashed_pose():
    poses, activations = DACapsNet((3, 32, 32), 10).forward_features(torch.rand(2, 3, 32, 32))
    torch.testing.assert_close(activations, squash(poses, 0.5).norm(dim=-1))


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

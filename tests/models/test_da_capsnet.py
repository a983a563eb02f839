"""huang's DA-CapsNet: layers, parameters, flags, votes."""

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.config.schema import Config
from capsexp.models.da_capsnet import DACapsNet
from capsexp.nn.attention import AxisAttention
from capsexp.run import build

TRUNK_CIFAR = 280_640  # 1,792 + 36,928 + 73,856 + 147,584 + 128 · 160
TRUNK_MNIST = 156_608  # 640 + 36,928 + 32,896 + 65,664 + 128 · 160
CONV = 2 * (128 * 128 + 128)
CAPS = 2 * (16 * 16 + 16)
CBAM = (64 * 4 + 4 + 4 * 64 + 64) + (2 * 49 + 2)  # r = 16; then 7×7 and its batch norm
EXTRA = (128 * 9 * 256 + 256) + 128 * 160  # and twice as many numbers a child capsule


def checked(*overrides: str) -> Config:
    return composed_config("model=da_capsnet", *overrides)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data=cifar10", "attention=none"], TRUNK_CIFAR),
        (["data=cifar10", "attention.conv=false"], TRUNK_CIFAR + CAPS),
        (["data=cifar10", "attention.caps=false"], TRUNK_CIFAR + CONV),
        (["data=cifar10"], TRUNK_CIFAR + CONV + CAPS),
        (["data=svhn", "attention.cbam=true"], TRUNK_CIFAR + CONV + CAPS + CBAM),
        (["data=coil20", "attention=cbam", "optim=huang_coil20"], TRUNK_CIFAR + CBAM),
        (["data=smallnorb", "attention=none"], TRUNK_CIFAR - 128 * 80),  # five classes
        (["data=fashion_mnist", "attention=none"], TRUNK_MNIST),
        (["data=mnist"], TRUNK_MNIST + CONV + CAPS),
        (["data=cifar10", "attention=none", "model.extra_convolution=true"], TRUNK_CIFAR + EXTRA),
        (
            ["data=cifar10", "model.extra_convolution=true"],
            TRUNK_CIFAR + EXTRA + 2 * (256 * 256 + 256) + CAPS,
        ),
        (["data=cifar10", "model.caps_axis=parents"], TRUNK_CIFAR + CONV + 2 * (10 * 10 + 10)),
        (["data=cifar10", "model.caps_axis=children"], TRUNK_CIFAR + CONV + 2 * (100 * 100 + 100)),
        (["data=cifar10", "model.caps_axis=votes"], TRUNK_CIFAR + CONV + 2 * (160 * 160 + 160)),
        (["data=cifar10", "model.caps_axis=capsules"], TRUNK_CIFAR + CONV + 1_610_200),
        (["data=mnist", "attention=none", "model.second_kernel=3"], TRUNK_MNIST + 5 * 128 * (64 + 128)),
    ],
)
def test_parameters(overrides: list[str], expected: int):
    assert build.count_parameters(checked(*overrides)) == expected


def test_the_paper_choices_come_with_the_model():
    chosen = checked("data=cifar10")
    assert (chosen.attention.cbam, chosen.attention.conv, chosen.attention.caps) == (False, True, True)
    assert (chosen.loss.name, chosen.routing.name, chosen.routing.arguments["iterations"]) == ("margin", "dynamic", 3)
    assert (chosen.preprocess.shift, chosen.preprocess.flip, chosen.preprocess.normalize) == (0.1, True, False)
    assert (chosen.optim.epochs, chosen.optim.batch_size, chosen.reconstruction.enabled) == (100, 128, False)
    assert chosen.model.arguments["squash_constant"] == 0.5
    assert checked("data=coil20", "optim=huang_coil20").optim.batch_size == 16


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


@pytest.mark.parametrize("size", [14, 20, 29, 36, 40])
def test_other_sizes_work(size: int):
    assert build.build(checked(f"data.size={size}")).parameters > 0

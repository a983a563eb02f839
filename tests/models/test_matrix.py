"""Every network on every data set, and every kind of routing in a network: shapes, steps."""

from copy import deepcopy
from functools import cache, partial
from itertools import cycle
from typing import Any

import pytest
import torch
from support import composed_config
from torch import nn

from capsexp.config import compose
from capsexp.config.schema import Config, check
from capsexp.config.searchpath import CONF
from capsexp.data import source
from capsexp.data.command import OWN
from capsexp.models import CapsNet, DACapsNet, DynamicCapsNet, EfficientCapsNet, EMCapsNet, InvertedCapsNet
from capsexp.nn import AttentionOptions, CrossEntropyLoss, MarginLoss, SpreadLoss
from capsexp.routing import NAMES
from capsexp.run.build import build, make_loss

MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
DATA = sorted(path.stem for path in (CONF / "data").glob("*.yaml") if path.stem not in OWN)
MULTILABEL = "diverse_multimnist"


@cache
def composed(*overrides: str) -> dict[str, Any]:
    """A composed configuration, as plain containers."""
    return compose.composed(list(overrides))


@cache
def data_of_every_shape() -> list[str]:
    """A data set of each size, number of channels and number of classes that there is."""
    nodes = {name: composed(f"data={name}")["data"] for name in DATA}
    return [*{(node["size"], node["channels"], node["classes"]): name for name, node in nodes.items()}.values()]


def narrow(model: str, data: str) -> Config:
    """A model of a twenty-fifth of its width, on a data set."""
    loss = ["loss=binary_cross_entropy"] if data == MULTILABEL else []
    node = composed(f"model={model}", "model.width=0.04", *loss) | {"data": composed(f"data={data}")["data"]}
    return check(deepcopy(node))


@pytest.mark.parametrize("model", MODELS)
def test_scores_and_poses_have_a_row_a_class_on_every_data_set(model: str) -> None:
    for data in data_of_every_shape():
        config = narrow(model, data)
        with torch.device("meta"):
            network = build(config).network
            scores, poses = network(torch.zeros(2, config.data.channels, config.data.size, config.data.size))
        assert scores.shape == (2, config.data.classes), data
        assert poses is None or poses.shape[:2] == (2, config.data.classes), data


OWN_ROUTING = {
    "capsnet": "dynamic",
    "dynamic_capsnet": "dynamic",
    "efficient_capsnet": "self_attention",
    "em_capsnet": "em",
    "inverted_capsnet": "inverted",
}

#: One of each kind of network, layer and attention; each model once on a data set, the capsule networks with the other
#: routings on MNIST.
STEPPED = [
    *(f"model={model} data={data}" for model, data in zip(MODELS, cycle(DATA), strict=False)),
    "model=sabour_cnn attention=cbam",
    "model=huang_cnn attention=cbam data=cifar10 model.padding=valid",
    "model=tsai_cnn attention=cbam data=cifar10",
    "model=tsai_cnn_multimnist attention=cbam data=diverse_multimnist model.head=connected",
    "model=resnet18 attention=se",
    "model=efficient_capsnet attention=se attention.caps=true",
    "model=capsnet routing=inverted routing.activations=true",
    "model=em_capsnet routing=inverted routing.norm=false",
    "model=da_capsnet attention=none",
    "model=da_capsnet attention.cbam=true routing=em",
    "model=da_capsnet model.caps_axis=parents model.extra_convolution=true",
    "model=da_capsnet model.caps_axis=children model.second_kernel=3 routing=inverted",
    "model=da_capsnet model.caps_axis=votes model.class_pose=8",
    "model=da_capsnet model.caps_axis=capsules routing=em",
    *(f"model={model} attention=dual attention.cbam=true" for model in ("capsnet", "dynamic_capsnet", "em_capsnet")),
    *(f"model={model} attention=dual attention.cbam=true" for model in ("efficient_capsnet", "inverted_capsnet")),
    *(
        f"model={model} routing={routing}"
        for model, own in OWN_ROUTING.items()
        for routing in ("dynamic", "em", "inverted", "self_attention")
        if routing != own
    ),
]


@pytest.mark.parametrize("options", STEPPED)
def test_two_steps_are_finite_and_reach_every_parameter(options: str) -> None:
    """The second under autocast to bfloat16."""
    loss_of_sets = ["loss=binary_cross_entropy"] if f"data={MULTILABEL}" in options else []
    config = composed_config("data=mnist_sample", "model.width=0.04", *loss_of_sets, *options.split())
    network = build(config).network
    loss = make_loss(config.loss, network)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    pixels = torch.rand(4, config.data.channels, config.data.size, config.data.size)
    labels = torch.randint(0, 2, (4, 10)) if loss_of_sets else torch.arange(4)
    for bf16 in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            scores, poses = network(pixels)
            result = loss(scores, labels)
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
    assert result.dtype == torch.float32
    assert poses is None or scores.dtype == poses.dtype == torch.float32
    assert result.isfinite()
    assert [name for name, one in network.named_parameters() if one.requires_grad and one.grad is None] == []
    assert all(parameter.isfinite().all() for parameter in network.parameters())


CAPSULE_NETWORKS = [CapsNet, DACapsNet, DynamicCapsNet, EMCapsNet, EfficientCapsNet, InvertedCapsNet]


@pytest.mark.slow  # half a minute each network; six times that where threads of torch's wait for busy cores
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("network", CAPSULE_NETWORKS)
def test_every_pair_of_network_and_routing_leaves_chance(network: type[nn.Module]) -> None:
    """After 100 steps of 32 digits, on 400 test digits, of which one in ten is right by chance."""
    images = source.load(composed_config("data=mnist_sample").data)
    train, test = (part[..., 4:24, 4:24].float() / 255 for part in (images.train_images, images.test_images[:400]))
    for name, routing in NAMES.items():
        torch.manual_seed(0)
        options = {"density": "mean"} if name == "em" else {}  # with the sum it takes longer than that
        made = network((1, 20, 20), 10, partial(routing, **options), AttentionOptions(), width=0.125)
        losses = {"length": MarginLoss(), "activation": SpreadLoss(steps=100), "pose": CrossEntropyLoss()}
        rate = 0.01 if (network, name) == (InvertedCapsNet, "dynamic") else 0.003  # squashes shorten through its layers
        optimizer = torch.optim.Adam(made.parameters(), rate)
        for _ in range(100):
            chosen = torch.randint(len(train), (32,))
            optimizer.zero_grad()
            losses[routing.presence](made(train[chosen]).scores, images.train_labels[chosen]).backward()
            optimizer.step()
        right = made.eval()(test).scores.argmax(1) == images.test_labels[:400]
        assert right.float().mean() > 0.17, name

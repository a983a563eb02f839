"""Every network on every data set, and every kind of routing in a network: shapes, steps, fast = reference."""

from copy import deepcopy
from functools import cache
from itertools import cycle
from typing import Any

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.config import compose
from capsexp.config.schema import Config, check
from capsexp.config.searchpath import CONF
from capsexp.run.build import build, make_loss

MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
DATA = sorted(path.stem for path in (CONF / "data").glob("*.yaml") if path.stem != "folder")  # which needs images
MULTILABEL = "diverse_multimnist"


@cache
def composed(*overrides: str) -> dict[str, Any]:
    """A composed configuration, as plain containers."""
    return compose.composed(list(overrides))


def narrow(model: str, data: str) -> Config:
    """A model of a twenty-fifth of its width, on a data set."""
    loss = ["loss=binary_cross_entropy"] if data == MULTILABEL else []
    node = composed(f"model={model}", "model.width=0.04", *loss) | {"data": composed(f"data={data}")["data"]}
    return check(deepcopy(node))


@pytest.mark.parametrize("model", MODELS)
def test_scores_and_poses_have_a_row_a_class_on_every_data_set(model: str) -> None:
    for data in DATA:
        config = narrow(model, data)
        with torch.device("meta"):
            network = build(config).network
            scores, poses = network(torch.zeros(2, config.data.channels, config.data.size, config.data.size))
        assert scores.shape == (2, config.data.classes), data
        assert poses is None or poses.shape[:2] == (2, config.data.classes), data


#: One of each kind of network, layer and attention; each model once on a data set, the capsule networks on MNIST.
STEPPED = [
    *(f"model={model} data={data}" for model, data in zip(MODELS, cycle(DATA), strict=False)),
    "model=sabour_cnn attention=cbam",
    "model=huang_cnn attention=cbam data=cifar10 model.padding=valid",
    "model=tsai_cnn attention=cbam data=cifar10",
    "model=tsai_cnn_multimnist attention=cbam data=diverse_multimnist model.head=connected",
    "model=resnet18 attention=cbam",
    "model=capsnet routing=inverted routing.activations=true",
    "model=em_capsnet routing=inverted routing.norm=false",
    "model=da_capsnet attention=none",
    "model=da_capsnet attention.cbam=true routing=em",
    "model=da_capsnet model.caps_axis=parents model.extra_convolution=true",
    "model=da_capsnet model.caps_axis=children model.second_kernel=3 routing=inverted",
    "model=da_capsnet model.caps_axis=votes model.class_pose=8",
    "model=da_capsnet model.caps_axis=capsules routing=em",
    *(
        f"model={model} routing={routing}"
        for model in ("capsnet", "dynamic_capsnet", "em_capsnet", "inverted_capsnet", "inverted_capsnet_cifar100")
        for routing in ("dynamic", "em", "inverted")
    ),
]


@pytest.mark.parametrize("options", STEPPED)
def test_two_steps_are_finite_and_reach_every_parameter(options: str) -> None:
    torch.manual_seed(0)
    loss_of_sets = ["loss=binary_cross_entropy"] if f"data={MULTILABEL}" in options else []
    config = composed_config("data=mnist_sample", "model.width=0.04", *loss_of_sets, *options.split())
    network = build(config).network
    loss = make_loss(config.loss, network)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    pixels = torch.rand(4, config.data.channels, config.data.size, config.data.size)
    labels = torch.randint(0, 2, (4, 10)) if loss_of_sets else torch.arange(4)
    for _ in range(2):
        scores = network(pixels).scores
        result = loss(scores, labels)
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
    assert scores.dtype == torch.float32
    assert result.isfinite()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is None] == []
    assert all(parameter.isfinite().all() for parameter in network.parameters())


ROUTED = [
    "model=capsnet",
    "model=capsnet attention=dual routing.iterations=2",
    "model=capsnet model.squash_constant=0.5 routing.iterations=4",
    "model=capsnet routing.gradient=last",
    "model=capsnet routing.gradient=none",
    "model=capsnet routing.logits=replace",
    "model=capsnet routing=em",
    "model=capsnet routing=inverted",
    "model=capsnet routing=inverted routing.order=sequential",
    "model=da_capsnet attention=none model.class_pose=32 model.channels=160",
    "model=dynamic_capsnet model.backbone=resnet",
    "model=em_capsnet routing.iterations=3",
    "model=em_capsnet routing.iterations=3 routing.density=mean",
    "model=em_capsnet routing=dynamic",
    "model=em_capsnet routing=inverted routing.iterations=3",
    "model=inverted_capsnet_cifar100 routing.iterations=4 attention=dual",
    "model=inverted_capsnet routing.order=sequential",
    "model=inverted_capsnet routing.activations=true",
    "model=inverted_capsnet model.structure=vector model.pose=8",
    "model=inverted_capsnet routing=dynamic model.structure=vector",
]


@pytest.mark.parametrize("options", ROUTED)
def test_fast_equals_reference_in_value_and_gradient(options: str) -> None:
    results: list[list[Tensor]] = []
    for way in ("fast", "reference"):
        config = composed_config("data=mnist_sample", "budget.width=0.1", *options.split(), f"trainer.routing={way}")
        torch.manual_seed(0)
        network = build(config).network.double()
        scores, poses = network(torch.rand(3, 1, 28, 28, dtype=torch.float64))
        (scores.square().sum() + poses.sin().sum()).backward()
        results.append([scores, poses, *(p.grad for p in network.parameters() if p.grad is not None)])
    for fast, reference in zip(*results, strict=True):
        # Absolutely for gradients that are exactly 0, such as that of a bias before a batch norm.
        tolerance = 1e-9 * reference.detach().abs().max().item() + 1e-12
        torch.testing.assert_close(fast, reference, rtol=0, atol=tolerance)

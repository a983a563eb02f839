"""What is observed is true to the forward pass: the class capsules can be recomputed from it."""

import math
from functools import cache, partial
from itertools import product

import pytest
import torch
from support import composed_config
from torch import Tensor, nn

from capsexp.config.schema import Config
from capsexp.nn.attention import CBAM, CapsAttention
from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, output_size
from capsexp.nn.routing import Capsules
from capsexp.nn.squash import exponential_squash, squash
from capsexp.routing import SelfAttentionRouting, fast
from capsexp.routing.dynamic import DynamicRouting
from capsexp.routing.em import fitted
from capsexp.routing.fast.layers import FastLayer
from capsexp.routing.observe import ObservedLayer, entropy, observe
from capsexp.run.build import build

#: Every procedure; linear and convolutional layers; vectors and matrices; a hidden layer without positions. A command
#: line, and the iterations of each layer, from the lowest.
NETWORKS = {
    "capsnet": ("model=capsnet data=mnist_sample attention=cbam", [3]),
    "capsnet, em": ("model=capsnet data=mnist_sample routing=em attention=dual", [2]),
    "da_capsnet": ("model=da_capsnet data=cifar10 attention=dual", [3]),
    "em_capsnet": ("model=em_capsnet data=cifar10 routing.iterations=3", [3, 3, 3]),
    "inverted_capsnet": ("model=inverted_capsnet data=cifar10 routing.iterations=3", [1, 2, 3]),
    "inverted_capsnet, sequential": ("model=inverted_capsnet data=cifar10 routing.order=sequential", [2, 2, 2]),
    "inverted_capsnet, activations": ("model=inverted_capsnet data=cifar10 routing.activations=true", [1, 1, 2]),
    "inverted_capsnet, cifar100": ("model=inverted_capsnet_cifar100 data=cifar100", [1, 1, 1, 2]),
    "capsnet*": ("model=inverted_capsnet data=cifar10 routing=dynamic model.structure=vector", [3, 3, 3]),
}


@cache
def configured(words: str) -> Config:
    """A small network's configuration."""
    return composed_config(*words.split(), "model.width=0.1")


def made(words: str) -> tuple[nn.Module, Tensor]:
    """A small network with strong votes, so that its coefficients differ, and two images for it."""
    torch.manual_seed(0)
    config = configured(words)
    network = build(config).network.eval()
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, CapsuleLayer):
                layer.matrices.weight *= 300 if layer.routing.presence == "length" else 3
    return network, torch.rand(2, config.data.channels, config.data.size, config.data.size)


@pytest.mark.parametrize("name", NETWORKS)
def test_coefficients_are_distributions_over_the_parents_one_an_iteration(name: str) -> None:
    """Those to all classes sum to 1 for every child in a window."""
    words, iterations = NETWORKS[name]
    network, pixels = made(words)
    observed = observe(network, pixels)
    assert [len(layer.coefficients) for layer in observed.layers] == iterations
    for layer in observed.layers:
        for coefficients in layer.coefficients:
            torch.testing.assert_close(coefficients.sum(dim=-1), torch.ones(coefficients.shape[:-1]))
        parents = layer.coefficients[0].shape[-1]
        assert layer.entropies[0] == pytest.approx(math.log(parents), abs=1e-5)
        if len(layer.entropies) > 1:
            assert layer.entropies[-1] < math.log(parents) - 1e-3
        assert layer.presence.shape == layer.poses.shape[:-1]
    classes = observed.prediction.scores.shape[1]
    coefficients = [observed.coefficients_to(torch.full((2,), label)) for label in range(classes)]
    for layer, to_classes in zip(observed.layers, zip(*coefficients, strict=True), strict=True):
        total = torch.stack(to_classes).sum(dim=0)
        left_out = 1 if layer.poses.shape[1] == 16 else 0  # the last of 16, by a 3×3 kernel with stride 2
        size = layer.poses.shape[1] - left_out
        torch.testing.assert_close(total[:, :size, :size], torch.ones_like(total[:, :size, :size]))
        assert float(total.sum()) == pytest.approx(2 * size**2 * total.shape[-1], rel=1e-5)
    fast.disable(network)
    with torch.no_grad():
        torch.testing.assert_close(observed.prediction.scores, network(pixels).scores)


#: How the classes follow from what is observed: the matrices on the grid of the children, and the squash function.
LINEAR = {
    "model=capsnet data=mnist_sample": ((3, 6, 6, 10, 16, 8), "ihwjdc", squash),
    "model=da_capsnet data=cifar10 attention=none": ((1, 10, 16, 13), "ijdc", partial(squash, constant=0.5)),
    "model=efficient_capsnet data=mnist_sample": ((2, 10, 16, 8), "ijdc", exponential_squash),
}


@pytest.mark.parametrize("words", LINEAR)
def test_the_classes_of_linear_layers_from_their_coefficients(words: str) -> None:
    network, pixels = made(words)
    routing, (shape, axes, squashed) = network.classes.routing, LINEAR[words]
    bias = nn.init.normal_(routing.bias).detach() if isinstance(routing, SelfAttentionRouting) else torch.zeros(())
    if "da_capsnet" in words:
        pixels = pixels[..., :28]  # no squares
    observed = observe(network, pixels)
    (layer,) = observed.layers
    matrices = network.classes.matrices.weight.view(shape)
    total = torch.einsum(f"bhwij,bhwic,{axes}->bjd", layer.coefficients[-1], layer.poses, matrices)
    torch.testing.assert_close(squashed(total), observed.prediction.poses)
    torch.testing.assert_close(layer.poses, network.forward_features(pixels).poses)
    assert layer.window is None
    distributions = layer.coefficients[-1] - bias
    torch.testing.assert_close(distributions.sum(dim=-1), torch.ones(distributions.shape[:-1]))
    assert layer.entropies[-1] == pytest.approx(entropy(distributions), abs=1e-5)
    presence = layer.poses.norm(dim=-1) if "da_capsnet" not in words else squash(layer.poses, 0.5).norm(dim=-1)
    torch.testing.assert_close(layer.presence, presence)


@pytest.mark.parametrize("name", ["em_capsnet", "inverted_capsnet"])
def test_the_classes_of_shared_and_of_own_matrices_from_their_coefficients(name: str) -> None:
    network, pixels = made(NETWORKS[name][0])
    observed = observe(network, pixels)
    layer, linear = observed.layers[-1], network.classes.layers[-1]
    with torch.no_grad():
        votes = linear.votes(Capsules(layer.poses, layer.presence)).poses  # of the children in the last iteration
        weights = (layer.coefficients[-1] * layer.presence[..., None]).flatten(1, 3)
        total = torch.einsum("bij,bijd->bjd", weights, votes)
        expected = fitted(votes, weights).mean if name == "em_capsnet" else linear.routing.norm(total)
    torch.testing.assert_close(expected, observed.prediction.poses)


def test_a_convolutional_layers_parents_from_its_coefficients() -> None:
    network, pixels = made("model=inverted_capsnet data=cifar10 routing.order=sequential model.structure=vector")
    lower, upper, _ = observe(network, pixels).layers
    assert lower.window == (3, 2)
    assert lower.presence.min() == lower.presence.max() == 1
    first = network.classes.layers[0]
    row, column = 5, 2
    total = torch.zeros(2, 3, 16)
    for place in range(9):
        child = lower.poses[:, 2 * row + place // 3, 2 * column + place % 3]
        matrices = first.matrices.weight[3 * place : 3 * place + 3]
        coefficients = lower.coefficients[-1][:, row, column, 3 * place : 3 * place + 3]
        total += torch.einsum("bij,bic,ijdc->bjd", coefficients, child, matrices)
    torch.testing.assert_close(first.routing.norm(total), upper.poses[:, row, column], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stride", [1, 2, 3])  # the last leaves some out
def test_coefficients_are_averaged_over_the_windows_that_hold_a_child(stride: int) -> None:
    height, width = output_size((4, 6), 2, stride)
    first, last = torch.rand(2, 2, height, width, 4 * 2, 3)  # iterations; kernels of 2 × 2, two types
    parents, window = torch.rand(2, height, width, 3), (2, stride)
    layer = ObservedLayer("", [first, last], [], torch.zeros(2, 4, 6, 2, 5), torch.ones(2, 4, 6, 2), window)
    total, count = torch.zeros(2, 4, 6, 2), torch.zeros(4, 6, 1)
    for row, column, k in product(range(height), range(width), range(4)):
        child = row * stride + k // 2, column * stride + k % 2
        weighted = last[:, row, column, 2 * k : 2 * k + 2] * parents[:, row, column, None]
        total[:, child[0], child[1]] += weighted.sum(dim=-1)
        count[child] += 1
    found = layer.coefficients_to(parents)
    torch.testing.assert_close(found, total / count.clamp(min=1))
    assert torch.equal(found, layer.coefficients_to(parents, 1))
    assert torch.equal(found, layer.coefficients_to(parents, 7))  # it does two iterations; its parents do more
    assert not torch.allclose(found, layer.coefficients_to(parents, 0))


def test_entropy_of_known_distributions() -> None:
    assert entropy(torch.full((3, 4, 10), 0.1)) == pytest.approx(math.log(10))
    assert entropy(torch.eye(7)) == 0
    mixed = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert entropy(mixed) == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize("words", [NETWORKS["capsnet"][0], "model=huang_cnn data=mnist_sample attention=cbam"])
def test_cbams_maps_are_the_factors_of_its_features(words: str) -> None:
    network, pixels = made(words)
    calls: list[tuple[Tensor, Tensor]] = []
    (cbam,) = (module for module in network.modules() if isinstance(module, CBAM))
    with cbam.register_forward_hook(lambda module, inputs, output: calls.append((inputs[0], output))):
        observed = observe(network, pixels)
    ((features, refined),), maps = calls, {each.kind: each.values for each in observed.attention}
    assert (maps.keys(), len(observed.layers)) == ({"channel", "spatial"}, int("capsnet" in words))
    expected = features * maps["channel"][:, :, None, None] * maps["spatial"][:, None]
    torch.testing.assert_close(refined, expected)


@pytest.mark.parametrize("axis", ["pose", "parents", "children", "votes", "capsules"])
def test_huangs_maps_are_the_factors_of_features_and_votes(axis: str) -> None:
    network, pixels = made(f"model=da_capsnet data=cifar10 attention=dual model.caps_axis={axis}")
    calls: list[tuple[Tensor, Tensor]] = []
    with network.attention.register_forward_hook(lambda module, inputs, output: calls.append((inputs[0], output))):
        observed = observe(network, pixels)
    conv, caps = observed.attention
    assert (conv.kind, caps.kind) == ("conv", "caps")
    ((features, refined),) = calls
    torch.testing.assert_close(refined, features * conv.values[:, :, None, None])
    with torch.no_grad():
        votes = torch.einsum("bhwic,ijdc->bhwijd", observed.layers[0].poses, network.classes.matrices.weight)
        attended = network.classes.votes(Capsules(observed.layers[0].poses)).poses
    torch.testing.assert_close((votes * caps.values).flatten(1, 3), attended)
    assert float((caps.values - 1).abs().max()) > 1e-3


def test_attention_on_the_votes_of_primary_capsules_and_of_a_convolutional_layer() -> None:
    network, pixels = made(NETWORKS["capsnet, em"][0])
    caps = observe(network, pixels).attention[-1]
    matrices = network.classes.matrices.weight.view(3, 6, 6, 10, 16, 8)
    votes = torch.einsum("bhwic,ihwjdc->bhwijd", observe(network, pixels).layers[0].poses, matrices)
    torch.testing.assert_close(caps.values, 1 + network.classes.attention.gate(votes), atol=1e-5, rtol=1e-4)
    layer = ConvCapsules(2, 3, 4, 4, 2, 1, DynamicRouting(), CapsAttention(4), structure="vector")
    observed = observe(_OneLayer(layer), torch.rand(1, 5, 5, 2, 4))
    assert observed.attention[0].values.shape == (1, 4, 4, 8, 3, 4)
    assert observed.layers[0].window == (2, 1)


class _OneLayer(nn.Module):
    """A network of one layer, whose input is the poses of its children."""

    def __init__(self, layer: CapsuleLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, poses: Tensor) -> Capsules:
        return self.layer(Capsules(poses))


def test_the_network_is_unchanged_also_when_a_pass_fails() -> None:
    network, pixels = made(NETWORKS["capsnet"][0])
    network.train()
    network.cbam.eval()
    before = {name: module.training for name, module in network.named_modules()}
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="has matrices for 108 children"):
        observe(network, pixels[:, :, :20])
    observed = observe(network, pixels)
    assert {name: module.training for name, module in network.named_modules()} == before
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in network.named_buffers())
    assert torch.equal(torch.get_rng_state(), state)
    assert not observed.prediction.scores.requires_grad
    assert all(parameter.grad is None for parameter in network.parameters())
    assert isinstance(network.classes, FastLayer)
    assert "votes" not in vars(network.classes)
    assert not any(module._forward_hooks for module in network.modules())

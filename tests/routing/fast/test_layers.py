"""Switching networks to fast paths and back; where neither loops nor kernels apply, chunks equal the whole batch."""

import copy

import pytest
import torch
from support import differentiated
from torch import Tensor, nn

from capsexp.models import CapsNet, InvertedCapsNet
from capsexp.nn import CapsAttention, Capsules, Hierarchy, LinearCapsules, make_routing
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, fast
from capsexp.routing.fast import layers, loops
from capsexp.routing.fast.votes import VoteInputs

CHUNKED = [
    ("model=em_capsnet", "routing.iterations=3"),
    ("model=em_capsnet", "routing.iterations=3", "routing.density=mean"),
    ("model=inverted_capsnet", "routing.iterations=3"),
    ("model=inverted_capsnet", "routing.iterations=3", "routing.activations=true"),
    ("model=inverted_capsnet", "routing.iterations=2", "routing.activations=true", "routing.order=sequential"),
]


@pytest.mark.parametrize("kept", [0, 2**26])
@pytest.mark.parametrize("options", CHUNKED)
def test_chunks_equal_the_whole_batch_and_votes_above_the_limit_are_not_kept_for_the_backward_pass(
    options: tuple[str, ...], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to rounding: gradients by shared matrices are summed in another order."""
    monkeypatch.setattr(loops, "MIN_VOTES", 2**40)
    monkeypatch.setattr(layers, "MAX_KEPT", kept)
    results, sizes = [], list[int]()
    for way, held in (("fast", 1), ("reference", 2**23)):
        monkeypatch.setattr(layers, "MAX_CHUNK", held)
        saved: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t):
            results.append(differentiated(*options, "data=mnist_sample", "budget=demo", f"trainer.routing={way}")[1])
        sizes.append(sum(saved))
    for chunks, whole in zip(*results, strict=True):
        torch.testing.assert_close(chunks, whole)
    assert kept or sizes[0] < sizes[1] / 5


@pytest.mark.parametrize("attention", [CapsAttention(8), nn.Dropout(0.5), nn.BatchNorm3d(1)])
@pytest.mark.parametrize("routing", [EMRouting, InvertedRouting])  # by layers, and by a whole hierarchy
def test_an_attention_acts_on_stored_votes_and_one_of_ones_own_on_the_whole_batch_once(
    routing: type[EMRouting | InvertedRouting], attention: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "MAX_CHUNK", 1)
    monkeypatch.setattr(layers, "MAX_KEPT", 1)
    upper = LinearCapsules(5, 3, 8, 8, make_routing(routing, 5, 3, 8, 8), attention)
    network = Hierarchy([LinearCapsules(20, 5, 4, 8, make_routing(routing, 20, 5, 4, 8)), upper]).double()
    children = Capsules(torch.randn(6, 20, 4).double(), torch.rand(6, 20).double())
    found = []
    for switch in (fast.disable, fast.enable):
        switch(network)
        torch.manual_seed(3)
        parents = network(children).poses
        found.append([parents, *torch.autograd.grad(parents.sin().sum(), upper.matrices.weight)])
    torch.testing.assert_close(*found)


def test_enable_and_disable_switch_every_layer_and_routing_and_no_parameter() -> None:
    network = InvertedCapsNet((1, 28, 28), 10, width=0.1)
    kinds, names = [type(module) for module in network.modules()], list(network.state_dict())
    fast.enable(network)
    switched = [module for module in network.modules() if "Fast" in type(module).__name__]
    assert len(switched) == 1 + 3 * 3 + 2 + 1  # hierarchy; layers, matrices, routings; convolutions; classifier
    assert list(network.state_dict()) == names
    copied = copy.deepcopy(network)
    fast.disable(network)
    assert [type(module) for module in network.modules()] == kinds != [type(module) for module in copied.modules()]


def test_a_derived_routing_runs_as_it_is() -> None:
    class Doubled(DynamicRouting):
        def coefficients(self, votes: Tensor) -> Tensor:
            return 2 * super().coefficients(votes)

    network = CapsNet((1, 28, 28), 3, Doubled, width=0.1)
    images = torch.rand(2, 1, 28, 28)
    expected = network(images)
    fast.enable(network)
    torch.testing.assert_close(network(images), expected)


@pytest.mark.parametrize(("child_pose", "lazy"), [(16, True), (17, False)])
def test_dynamic_routing_stores_the_votes_of_children_with_long_poses(
    child_pose: int, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    layer = LinearCapsules(2, 3, child_pose, 4, DynamicRouting())
    fast.enable(layer)
    assert isinstance(layer.votes(Capsules(torch.randn(5, 2, child_pose))).poses, VoteInputs) is lazy

"""Switching networks to fast paths and back."""

import copy

import pytest
import torch
from torch import Tensor, nn

from capsexp.models import CapsNet, InvertedCapsNet
from capsexp.nn import CapsAttention, Capsules, Hierarchy, LinearCapsules, make_routing
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, fast
from capsexp.routing.fast import loops
from capsexp.routing.fast.votes import VoteInputs


@pytest.mark.parametrize("attention", [CapsAttention(8), nn.Dropout(0.5), nn.BatchNorm3d(1)])
@pytest.mark.parametrize("routing", [EMRouting, InvertedRouting])
def test_an_attention_acts_on_stored_votes(
    routing: type[EMRouting | InvertedRouting], attention: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
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
    assert len(switched) == 3 * 3 + 2 + 1  # layers, matrices, routings; convolutions; classifier
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

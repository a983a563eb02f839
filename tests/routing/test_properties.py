"""What every routing has: a symmetry, exact gradients, finite numbers, float32."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from capsexp.nn.routing import Routing
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, SelfAttentionRouting

ROUTINGS = {
    "dynamic": partial(DynamicRouting, 3, 4),
    "em": partial(EMRouting, 3, 4, iterations=3, inverse_temperature=0.3, growth=0.0),
    "inverted": partial(InvertedRouting, 3, 4, iterations=3),
    "inverted, without norm": partial(InvertedRouting, 3, 4, iterations=3, norm=False),
    "inverted, with activations": partial(InvertedRouting, 3, 4, iterations=3, activations=True),
    "self-attention": partial(SelfAttentionRouting, 5, 3),
}


@pytest.fixture(params=ROUTINGS.values(), ids=ROUTINGS)
def routing(request: pytest.FixtureRequest) -> Routing:
    made: Routing = request.param().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.fixture
def votes() -> Tensor:
    return torch.randn(2, 5, 3, 4, dtype=torch.float64)


@pytest.fixture
def present() -> Tensor:
    return torch.rand(2, 5, dtype=torch.float64)


def parents(routing: Routing, votes: Tensor, present: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    """Poses, and activations where there are some."""
    return tuple(part for part in routing(votes, present) if part is not None)


def test_the_order_of_the_children_changes_nothing(routing: Routing, votes: Tensor, present: Tensor) -> None:
    order = torch.randperm(5)
    expected = routing(votes, present)
    for parameter in routing.parameters():
        if len(parameter) == 5:  # its rows belong to children
            parameter.data = parameter.data[order]
    torch.testing.assert_close(expected, routing(votes[:, order], present[:, order]))


def test_gradients(routing: Routing, votes: Tensor, present: Tensor) -> None:
    inputs = votes.requires_grad_(), present.requires_grad_(), *routing.parameters()
    assert torch.autograd.gradcheck(partial(parents, routing), inputs)


@pytest.mark.parametrize("activation", [0.0, 1.0])
def test_zero_votes_give_finite_numbers(routing: Routing, activation: float) -> None:
    inputs = torch.zeros(2, 5, 3, 4, requires_grad=True), torch.full((2, 5), activation, requires_grad=True)
    found = parents(routing.float(), *inputs)
    total = torch.stack([part.sum() for part in found]).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    assert all(bool(one.isfinite().all()) for one in (*found, *gradients))


def test_bfloat16_votes_are_routed_in_float32(routing: Routing, votes: Tensor, present: Tensor) -> None:
    rounded = votes.bfloat16(), present.bfloat16()
    expected = parents(routing.float(), *(one.float() for one in rounded))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(parents(routing, *rounded), expected)

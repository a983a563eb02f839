"""What every routing has: a symmetry, exact gradients, finite numbers, float32."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from capsexp.nn.routing import Routing
from capsexp.routing import (
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    SelfAttentionRouting,
    SelfRouting,
    VariationalBayesRouting,
)

ROUTINGS = {
    "dynamic": partial(DynamicRouting),
    "em": partial(EMRouting, parents=3, iterations=3, inverse_temperature=0.3, growth=0.0),
    "inverted": partial(InvertedRouting, parents=3, pose=4, iterations=3),
    "inverted, without norm": partial(InvertedRouting, parents=3, pose=4, iterations=3, norm=False),
    "inverted, with activations": partial(InvertedRouting, parents=3, pose=4, iterations=3, activations=True),
    "self-attention": partial(SelfAttentionRouting, children=5, parents=3),
    "self": partial(SelfRouting, children=5, parents=3, child_pose=6),
    "variational Bayes": partial(VariationalBayesRouting, parents=3),
}


@pytest.fixture(params=ROUTINGS.values(), ids=ROUTINGS)
def routing(request: pytest.FixtureRequest) -> Routing:
    made: Routing = request.param().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.fixture
def children() -> list[Tensor]:
    """Votes of five children for three parents, the children's activations and poses."""
    shapes = (2, 5, 3, 4), (2, 5), (2, 5, 6)
    votes, present, poses = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [votes, present.sigmoid(), poses]


def parents(routing: Routing, *given: Tensor) -> tuple[Tensor, ...]:
    """Poses, and activations where there are some; of what is given the routing reads its part."""
    read = given[: 3 if routing.uses_poses else 2]
    return tuple(part for part in routing(*read) if part is not None)


def test_the_order_of_the_children_changes_nothing(routing: Routing, children: list[Tensor]) -> None:
    order = torch.randperm(5)
    expected = parents(routing, *children)
    for parameter in routing.parameters():
        if len(parameter) == 5:  # its rows belong to children
            parameter.data = parameter.data[order]
    torch.testing.assert_close(expected, parents(routing, *(one[:, order] for one in children)))


def test_gradients(routing: Routing, children: list[Tensor]) -> None:
    inputs = *(one.requires_grad_() for one in children), *routing.parameters()
    assert torch.autograd.gradcheck(partial(parents, routing), inputs)


@pytest.mark.parametrize("activation", [0.0, 1.0])
def test_zero_votes_give_finite_numbers(routing: Routing, activation: float) -> None:
    shapes = {(2, 5, 3, 4): 0.0, (2, 5): activation, (2, 5, 6): 0.0}
    inputs = [torch.full(shape, value, requires_grad=True) for shape, value in shapes.items()]
    found = parents(routing.float(), *inputs)
    total = torch.stack([part.sum() for part in found]).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    assert all(bool(one.isfinite().all()) for one in (*found, *gradients))


def test_bfloat16_votes_are_routed_in_float32(routing: Routing, children: list[Tensor]) -> None:
    rounded = [one.bfloat16() for one in children]
    expected = parents(routing.float(), *(one.float() for one in rounded))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(parents(routing, *rounded), expected)


@pytest.mark.parametrize("kind", ["em", "inverted, with activations", "self", "variational Bayes"])
def test_children_without_activations_are_refused(kind: str, children: list[Tensor]) -> None:
    with pytest.raises(ValueError, match="activations"):
        ROUTINGS[kind]()(children[0].float())

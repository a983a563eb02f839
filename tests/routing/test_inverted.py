"""Inverted dot-product attention routing in layers: procedure 2."""

import pytest
import torch
from torch import Tensor, nn

from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules
from capsexp.nn.hierarchy import Hierarchy
from capsexp.nn.routing import Capsules
from capsexp.routing.inverted import InvertedRouting


def layers(iterations: int, order: str = "concurrent") -> list[CapsuleLayer]:
    """A convolutional and a linear layer for a grid [B, 5, 5, 2, 4], with the same matrices in each call."""
    torch.manual_seed(1)
    lower, upper = (InvertedRouting(parents=count, pose=4, iterations=iterations, order=order) for count in (3, 2))
    for parameter in (*lower.parameters(), *upper.parameters()):
        nn.init.normal_(parameter)
    return [
        ConvCapsules(2, 3, 4, 4, 3, 2, lower).double(),
        LinearCapsules(3 * 4, 2, 4, 4, upper, structure="matrix", scale=None).double(),
    ]


def test_concurrent_and_sequential_agree_in_one_iteration_and_for_a_single_layer():
    grid, children = (Capsules(torch.randn(2, *shape, 4, dtype=torch.float64)) for shape in ((5, 5, 2), (12,)))
    for iterations in (1, 2, 3):
        both, upper = (
            [Hierarchy(layers(iterations, order)[first:])(below).poses for order in ("concurrent", "sequential")]
            for first, below in ((0, grid), (1, children))
        )
        assert torch.allclose(*both) == (iterations == 1)
        torch.testing.assert_close(*upper)


def test_procedure_2_line_by_line(monkeypatch: pytest.MonkeyPatch):
    """A layer does the iterations that reach the classes; the result is that of all layers doing all of them."""
    primary = Capsules(torch.randn(2, 5, 5, 2, 4, dtype=torch.float64))
    first, second = layers(3)
    p1 = first.routing.iteration(*first.votes(primary), None)
    p2 = second.routing.iteration(*second.votes(p1), None)
    for _ in range(2):
        new1 = first.routing.iteration(*first.votes(primary), p1.poses)
        new2 = second.routing.iteration(*second.votes(p1), p2.poses)  # from its children before this iteration
        p1, p2 = new1, new2
    calls: list[Tensor | None] = []
    method = InvertedRouting.iteration
    monkeypatch.setattr(InvertedRouting, "iteration", lambda *given: calls.append(given[-1]) or method(*given))
    torch.testing.assert_close(Hierarchy(layers(3))(primary).poses, p2.poses)
    assert len([parents for parents in calls if parents is not None]) == 2 + 1

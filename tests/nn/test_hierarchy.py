"""One iteration of inverted routing through several layers: without votes and with them it is the same."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from capsexp.nn import hierarchy
from capsexp.nn.capsules import Capsules, LinearCapsules
from capsexp.nn.conv_capsules import ConvCapsules
from capsexp.nn.hierarchy import Hierarchy
from capsexp.routing.inverted import InvertedRouting


def layers(structure: str) -> Hierarchy:
    def routing(parents: int) -> InvertedRouting:
        return InvertedRouting(parents, 4, iterations=1)

    return Hierarchy(
        [
            ConvCapsules(3, 5, 4, 4, 3, 2, routing(5), structure=structure),  # type: ignore[arg-type]
            LinearCapsules(5, 2, 4, 4, routing(2), structure=structure),  # type: ignore[arg-type]
        ]
    ).double()


@pytest.mark.parametrize("structure", ["matrix", "vector"])
def test_one_iteration_needs_no_votes(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = layers(structure)
    primary = torch.randn(2, 7, 7, 3, 4, dtype=torch.float64, requires_grad=True)

    def result() -> tuple[Tensor, ...]:
        poses = stack(Capsules(primary)).poses
        return poses, *torch.autograd.grad(poses.square().sum(), [primary, *stack.parameters()])

    def never(*anything: object) -> Capsules:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(hierarchy, "_concurrent", never)
        without = result()
    needed: Callable[..., bool] = lambda layer: False  # noqa: E731
    monkeypatch.setattr(hierarchy, "_needs_no_votes", needed)
    for fast, reference in zip(without, result(), strict=True):
        torch.testing.assert_close(fast, reference)

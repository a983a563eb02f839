"""The squash function: its formula, its limits, its gradient at zero."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from capsexp.nn.squash import exponential_squash, squash


def test_the_formulas_as_the_papers_print_them() -> None:
    s = torch.randn(7, 5, 16, dtype=torch.float64) * torch.logspace(-5, 1, 7)[:, None, None]
    length = s.norm(dim=-1, keepdim=True)
    for constant in (1.0, 0.5):
        torch.testing.assert_close(squash(s, constant), length**2 / (constant + length**2) * (s / length))
    torch.testing.assert_close(exponential_squash(s), (1 - (-length).exp()) * (s / length), rtol=1e-7, atol=0)


@pytest.mark.parametrize("squash", [squash, exponential_squash])
def test_lengths_stay_below_one_and_directions_stay(squash: Callable[[Tensor], Tensor]) -> None:
    s = torch.randn(100, 8, dtype=torch.float64) * torch.logspace(-6, 1, 100, dtype=torch.float64)[:, None]
    squashed = squash(s)
    assert (squashed.norm(dim=-1) < 1).all()
    directions = torch.nn.functional.normalize
    torch.testing.assert_close(directions(squashed, dim=-1, eps=1e-30), directions(s, dim=-1, eps=1e-30))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-12])
@pytest.mark.parametrize("squash", [squash, exponential_squash])
def test_value_and_gradient_are_finite_where_the_norm_vanishes(
    value: float, squash: Callable[[Tensor], Tensor]
) -> None:
    s = torch.full((2, 8), value, requires_grad=True)
    squash(s).sum().backward()
    assert s.grad.isfinite().all()
    assert squash(s).isfinite().all()

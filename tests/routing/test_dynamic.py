"""Dynamic routing: the procedure step by step, its symmetries, its gradient."""

import pytest
import torch
from torch import Tensor

from capsexp.nn.squash import squash
from capsexp.routing.dynamic import DynamicRouting, dynamic_routing


def by_hand(u: Tensor, iterations: int, constant: float = 1.0, accumulate: bool = True) -> Tensor:
    """The procedure for one image, with loops over capsules: [I, J, D] -> [J, D]."""
    children, parents, _ = u.shape
    b = torch.zeros(children, parents, dtype=u.dtype)
    for iteration in range(iterations):
        c = torch.stack([b[i].exp() / b[i].exp().sum() for i in range(children)])
        v = torch.stack([squash(sum(c[i, j] * u[i, j] for i in range(children)), constant) for j in range(parents)])
        if iteration < iterations - 1:
            for i in range(children):
                for j in range(parents):
                    b[i, j] = u[i, j] @ v[j] + (b[i, j] if accumulate else 0)
    return v


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize("logits", ["accumulate", "replace"])
@pytest.mark.parametrize("constant", [1.0, 0.5])
def test_the_procedure_by_hand(iterations: int, logits: str, constant: float) -> None:
    u = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    routing = DynamicRouting(squash_constant=constant, iterations=iterations, logits=logits)  # type: ignore[arg-type]
    expected = torch.stack([by_hand(image, iterations, constant, logits == "accumulate") for image in u])
    torch.testing.assert_close(routing(u).poses, expected)
    if logits == "accumulate":
        torch.testing.assert_close(dynamic_routing(u, iterations, constant), expected)


@pytest.mark.parametrize("gradient", ["all", "last", "none"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_gradient(gradient: str, iterations: int) -> None:
    u = torch.randn(2, 4, 3, 4, dtype=torch.float64, requires_grad=True)
    routing = DynamicRouting(iterations=iterations, gradient=gradient)  # type: ignore[arg-type]
    (through,) = torch.autograd.grad(routing(u).poses.square().sum(), u)
    c = routing.coefficients(u) if gradient == "all" else routing.coefficients(u).detach()
    (expected,) = torch.autograd.grad(squash(torch.einsum("bij,bijd->bjd", c, u)).square().sum(), u)
    torch.testing.assert_close(through, expected)

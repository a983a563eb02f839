"""Dynamic routing by products equals the procedure in value and gradient, without a tensor of the votes' size."""

from typing import Any

import pytest
import torch
from test_fast_inverted import Largest
from torch import Tensor

from capsexp.routing.dynamic import DynamicRouting
from capsexp.routing.fast import products
from capsexp.routing.fast.products import routed

#: B, I, C, J, D: the papers' CapsNet with fewer children, and odd ones.
SHAPES = [(2, 72, 8, 10, 16), (3, 7, 4, 5, 6), (1, 1, 1, 1, 1), (2, 20, 8, 3, 16), (4, 5, 2, 1, 3), (1, 33, 16, 20, 1)]

#: Every shape with every number of iterations; of logits and gradient, every pair with each other and with those.
COMBINATIONS = [
    (shape, iterations, ("accumulate", "replace")[(row + column) % 2], ("all", "last")[(row + column // 2) % 2])
    for row, shape in enumerate(SHAPES)
    for column, iterations in enumerate((1, 2, 3, 5))
]


def inputs(shape: tuple[int, ...], kind: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Poses, matrices, and the gradient by the parents."""
    batch, children, child_pose, parents, pose = shape
    poses = torch.randn(batch, children, child_pose, dtype=kind, requires_grad=True)
    weight = torch.randn(children, parents, pose, child_pose, dtype=kind, requires_grad=True)
    return poses, weight, torch.randn(batch, parents, pose, dtype=kind)


def reference(poses: Tensor, weight: Tensor, iterations: int, logits: Any, gradient: Any) -> Tensor:
    """The parents, from materialised votes."""
    routing = DynamicRouting(*weight.shape[1:3], iterations=iterations, logits=logits, gradient=gradient)
    routing.squash_constant = 0.7
    return routing(torch.einsum("bic,ijdc->bijd", poses, weight)).poses


def by_products(poses: Tensor, weight: Tensor, iterations: int, logits: str, gradient: str) -> Tensor:
    """The parents, without materialised votes."""
    return routed(poses, weight, iterations, 0.7, logits == "accumulate", gradient != "all")


def assert_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    """Fails for differences above `tolerance` times the greatest absolute value of each tensor."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * other.detach().abs().max().item() + 1e-30)


@pytest.mark.parametrize(("shape", "iterations", "logits", "gradient"), COMBINATIONS)
def test_products_equal_the_procedure_in_value_and_gradient(
    shape: tuple[int, ...], iterations: int, logits: str, gradient: str
) -> None:
    poses, weight, by_parents = inputs(shape)
    ours, theirs = (f(poses, weight, iterations, logits, gradient) for f in (by_products, reference))
    assert_close((ours,), (theirs,), 1e-12)
    by_ours, by_theirs = (torch.autograd.grad(parents, (poses, weight), by_parents) for parents in (ours, theirs))
    assert_close(by_ours, by_theirs, 1e-11)


def test_float32_and_bfloat16_stay_close() -> None:
    poses, weight, by_parents = inputs((8, 1152, 8, 10, 16), torch.float32)
    weight.data *= 0.1
    theirs = reference(poses, weight, 3, "accumulate", "all")
    expected = (theirs, *torch.autograd.grad(theirs, (poses, weight), by_parents))
    ours = by_products(poses, weight, 3, "accumulate", "all")
    assert_close((ours, *torch.autograd.grad(ours, (poses, weight), by_parents)), expected, 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        rough = by_products(poses, weight, 3, "accumulate", "all")
    assert rough.dtype == torch.float32
    assert_close((rough, *torch.autograd.grad(rough, (poses, weight), by_parents)), expected, 0.05)


def test_the_gradient_at_zero_is_finite() -> None:
    poses, weight, by_parents = inputs((2, 6, 4, 3, 5))
    zero = torch.zeros_like(poses, requires_grad=True)
    for gradient in torch.autograd.grad(by_products(zero, weight, 3, "accumulate", "all"), (zero, weight), by_parents):
        assert gradient.isfinite().all()


def test_the_gradient_by_the_children_without_one_by_the_matrices() -> None:
    poses, weight, by_parents = inputs((2, 6, 4, 3, 5))
    fixed = weight.detach()
    (ours,) = torch.autograd.grad(by_products(poses, fixed, 2, "accumulate", "last"), poses, by_parents)
    (theirs,) = torch.autograd.grad(reference(poses, fixed, 2, "accumulate", "last"), poses, by_parents)
    assert_close((ours,), (theirs,), 1e-11)


@pytest.mark.parametrize("iterations", [2, 5])
def test_no_tensor_has_the_size_of_the_votes(iterations: int) -> None:
    children, matrices = torch.randn(64, 4, 30), torch.randn(10, 16, 4 * 30)
    with Largest() as largest:  # inside the operators
        (*totals, last), logits = products.route(children, matrices, iterations, 1.0, True, False)
        products.gradients((children, matrices, *totals, *logits), last, 1.0, True, False, trains=True)
    votes = 64 * 30 * 10 * 16
    assert 0 < largest.elements <= max(matrices.numel(), 10 * children.numel())
    assert largest.elements < votes / 3

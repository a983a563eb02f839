"""Dynamic routing by loops and by products equals the procedure in value and gradient, and stores no votes."""

import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch
from support import ROOT
from test_fast_inverted import Largest, Result, distance, layer_of
from torch import Tensor

from capsexp.nn.capsules import CapsuleLayer, LinearCapsules
from capsexp.nn.routing import Capsules
from capsexp.routing import DynamicRouting, fast
from capsexp.routing.fast import products

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("loops_for_every_batch"),
]

# batch, side, children, C, kernel (0: linear), stride, parents, D, structure
SHAPES = {
    "CapsNet, more images than a vector": (19, 3, 8, 8, 0, 1, 10, 16, "vector"),
    "ones": (1, 1, 1, 1, 0, 1, 1, 1, "vector"),
    "longer poses of children": (3, 1, 7, 6, 0, 1, 5, 3, "vector"),
    "a pose longer than a vector": (2, 1, 5, 4, 0, 1, 3, 20, "vector"),
    "convolutional": (3, 5, 2, 3, 2, 1, 4, 7, "vector"),
    "matrix, an edge that no kernel sees": (2, 6, 3, 4, 3, 2, 5, 4, "matrix"),
}

LINEAR = [name for name, shape in SHAPES.items() if not shape[4]]
WAYS = ("loops", "products")

#: Every shape with every number of iterations; of logits and gradient, every pair with each other and with those.
COMBINATIONS = [
    (name, iterations, ("accumulate", "replace")[(row + column) % 2], ("all", "last")[(row + column // 2) % 2])
    for row, name in enumerate(SHAPES)
    for column, iterations in enumerate((1, 2, 3, 5))
]


def made(name: str, kind: torch.dtype = torch.float64, **options: Any) -> tuple[CapsuleLayer, Tensor]:
    """A layer and its children."""
    layer, children = layer_of(SHAPES[name], DynamicRouting(squash_constant=0.7, **options), kind)
    return layer, children


def results(layer: CapsuleLayer, children: Tensor, way: str = "loops") -> Result:
    """The parents, and the gradients by children and matrices, by loops, by products or by the reference."""
    (fast.enable if way == "loops" else fast.disable)(layer)
    if way == "products":  # which serve linear layers of vectors on a GPU
        assert isinstance(layer, LinearCapsules)
        routing = layer.routing
        options = routing.iterations, routing.squash_constant, routing.accumulate, routing.detach
        poses = products.routed(layer.flattened(Capsules(children)).poses, layer.matrices.weight, *options)
    else:
        poses = layer(Capsules(children)).poses
    assert way != "loops" or fast.paths(layer).startswith("C loops, ")
    weights = torch.sin(torch.arange(poses.numel(), dtype=poses.dtype)).view_as(poses)
    read = [tensor for tensor in (children, layer.matrices.weight) if tensor.requires_grad]
    return [poses, *torch.autograd.grad((poses * weights).sum(), read)]


@pytest.mark.parametrize(("name", "iterations", "logits", "gradient"), COMBINATIONS)
def test_value_and_gradients(name: str, iterations: int, logits: str, gradient: str) -> None:
    layer, children = made(name, iterations=iterations, logits=logits, gradient=gradient)
    expected = results(layer, children, "reference")
    for way in ("loops", "products") if name in LINEAR else ("loops",):
        for ours, theirs in zip(results(layer, children, way), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_fixed_matrices_have_no_gradient_and_that_at_zero_is_finite(way: str) -> None:
    layer, children = made(LINEAR[0], gradient="none")
    ours, theirs = (results(layer, children, one) for one in (way, "reference"))
    assert len(ours) == 2
    assert distance(ours, theirs) < 1e-12
    at_zero = results(made(LINEAR[0])[0], torch.zeros_like(children, requires_grad=True), way)
    assert all(part.isfinite().all() for part in at_zero)


@pytest.mark.parametrize(
    ("name", "way"), [(LINEAR[0], "loops"), ("matrix, an edge that no kernel sees", "loops"), (LINEAR[0], "products")]
)
def test_float32_and_bfloat16(name: str, way: str) -> None:
    layer, children = made(name, torch.float32)
    exact = results(layer, children, "reference")
    assert 0 < distance(results(layer, children, way), exact) < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (results(layer, children, one) for one in (way, "reference"))
    assert [part.dtype for part in ours] == [part.dtype for part in exact]
    assert 1e-4 < distance(ours, exact) < (1.2 if way == "loops" else 2) * distance(theirs, exact)


def test_bfloat16_children_are_routed_as_if_they_were_float32() -> None:
    """Children in bfloat16 come from a convolution under autocast without a squash."""
    layer, children = made("convolutional", torch.float32)
    rounded = children.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = results(layer, rounded), results(layer, rounded.detach().float().requires_grad_())
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[2], theirs[2])


@pytest.mark.usefixtures("three_threads")
def test_results_repeat_bit_for_bit_and_images_do_not_depend_on_the_threads() -> None:
    """Gradients by matrices are sums over images, which each number of threads adds in an order of its own."""
    layer, children = made(LINEAR[0], torch.float32)
    found = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        found.append(results(layer, children))
    assert all(map(torch.equal, found[1], found[2]))
    assert all(map(torch.equal, found[0][:2], found[1][:2]))
    assert distance(found[0], found[1]) < 1e-6


@pytest.mark.parametrize("iterations", [2, 5])
def test_no_tensor_has_the_size_of_the_votes(iterations: int) -> None:
    layer, children = made(LINEAR[0], iterations=iterations)
    children = children.detach().repeat(8, 1, 1, 1, 1).requires_grad_()
    observed = {}
    for way in ("reference", *WAYS):
        with Largest() as largest:
            results(layer, children, way)
        observed[way] = largest.elements
    votes = children[..., 0].numel() * 10 * 16
    assert observed["reference"] >= votes
    assert observed["loops"] < votes / 4
    assert observed["products"] <= votes * 8 / 16  # C / D


def test_the_largest_sizes_fit_the_stack_of_a_thread_on_macos() -> None:
    code = """
import threading, torch
from capsexp.nn.capsules import LinearCapsules
from capsexp.nn.routing import Capsules
from capsexp.routing import DynamicRouting, fast
from capsexp.routing.fast import dynamic, loops, selfcheck
loops.MIN_VOTES, selfcheck.agrees = 0, lambda *_: True
torch.set_num_threads(2)
threading.stack_size(2**19)
for parents, rows, columns in (4096, 1, 1), (1, 4096, 1), (1, 1, 2048), (1, 2, 2048):
    layer = LinearCapsules(2, parents, columns, rows, DynamicRouting())
    fast.enable(layer)
    votes = layer.vote_inputs(Capsules(torch.randn(4, 2, columns)))
    assert loops.library_for(votes.poses, votes.weight, 1, 1)
    layer.routing(votes).poses.sum().backward()
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=200)

"""Dynamic routing by the loops equals the procedure in value and gradient, without a tensor of the votes' size."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support import ROOT
from test_fast_inverted import Largest, Result, distance
from torch import Tensor

from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules
from capsexp.nn.routing import Capsules
from capsexp.routing import DynamicRouting, fast
from capsexp.routing.fast import loops, proof

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# batch, side, children, C, kernel (0: linear), stride, parents, D, structure
SHAPES = {
    "CapsNet, more images than a vector": (19, 3, 8, 8, 0, 1, 10, 16, "vector"),
    "ones": (1, 1, 1, 1, 0, 1, 1, 1, "vector"),
    "longer poses of children": (3, 1, 7, 6, 0, 1, 5, 3, "vector"),
    "a pose longer than a vector": (2, 1, 5, 4, 0, 1, 3, 20, "vector"),
    "convolutional": (3, 5, 2, 3, 2, 1, 4, 7, "vector"),
    "matrix, an edge that no kernel sees": (2, 6, 3, 4, 3, 2, 5, 4, "matrix"),
}

#: Every shape with every number of iterations; of logits and gradient, every pair with each other and with those.
COMBINATIONS = [
    (name, iterations, ("accumulate", "replace")[(row + column) % 2], ("all", "last")[(row + column // 2) % 2])
    for row, name in enumerate(SHAPES)
    for column, iterations in enumerate((1, 2, 3, 5))
]


@pytest.fixture(autouse=True)
def _loops_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "WORTHWHILE", 0)
    monkeypatch.setattr(proof, "_proving", True)  # these tests are the proof


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def made(name: str, kind: torch.dtype = torch.float64, **options: Any) -> tuple[CapsuleLayer, Tensor]:
    """A layer and its children."""
    batch, side, types, child, kernel, stride, count, pose, structure = SHAPES[name]
    routing = DynamicRouting(count, pose, **options)
    routing.squash_constant = 0.7
    layer: CapsuleLayer
    if kernel:
        layer = ConvCapsules(types, count, child, pose, kernel, stride, routing, structure=structure, scale=0.5)  # type: ignore[arg-type]
    else:
        layer = LinearCapsules(types * side**2, count, child, pose, routing, structure=structure, scale=0.5)  # type: ignore[arg-type]
    return layer.to(kind), torch.randn(batch, side, side, types, child, dtype=kind).requires_grad_()


def results(layer: CapsuleLayer, children: Tensor, enabled: bool = True) -> Result:
    """The parents, and the gradients by children and matrices."""
    (fast.enable if enabled else fast.disable)(layer)
    poses = layer(Capsules(children)).poses
    assert not enabled or fast.paths(layer).startswith("C loops, ")
    weights = torch.sin(torch.arange(poses.numel(), dtype=poses.dtype)).view_as(poses)
    read = [tensor for tensor in (children, layer.matrices.weight) if tensor.requires_grad]
    return [poses, *torch.autograd.grad((poses * weights).sum(), read)]


@pytest.mark.parametrize(("name", "iterations", "logits", "gradient"), COMBINATIONS)
def test_value_and_gradients(name: str, iterations: int, logits: str, gradient: str) -> None:
    layer, children = made(name, iterations=iterations, logits=logits, gradient=gradient)
    for ours, theirs in zip(*(results(layer, children, enabled) for enabled in (True, False)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_fixed_matrices_have_no_gradient() -> None:
    layer, children = made("convolutional", gradient="none")
    ours, theirs = (results(layer, children, enabled) for enabled in (True, False))
    assert len(ours) == 2
    assert distance(ours, theirs) < 1e-12


@pytest.mark.parametrize("name", [next(iter(SHAPES)), "matrix, an edge that no kernel sees"])
def test_float32_and_bfloat16(name: str) -> None:
    layer, children = made(name, torch.float32)
    exact = results(layer, children, enabled=False)
    assert 0 < distance(results(layer, children), exact) < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (results(layer, children, enabled) for enabled in (True, False))
    assert [part.dtype for part in ours] == [part.dtype for part in exact]
    assert 1e-4 < distance(ours, exact) < 1.2 * distance(theirs, exact)


def test_bfloat16_children_are_routed_as_if_they_were_float32() -> None:
    """Children in bfloat16 come from a convolution under autocast without a squash."""
    layer, children = made("convolutional", torch.float32)
    rounded = children.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = results(layer, rounded), results(layer, rounded.detach().float().requires_grad_())
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[2], theirs[2])


@pytest.mark.usefixtures("_threads")
def test_results_repeat_bit_for_bit_and_images_do_not_depend_on_the_threads() -> None:
    """Gradients by matrices are sums over images, which each number of threads adds in an order of its own."""
    layer, children = made(next(iter(SHAPES)), torch.float32)
    found = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        found.append(results(layer, children))
    assert all(map(torch.equal, found[1], found[2]))
    assert all(map(torch.equal, found[0][:2], found[1][:2]))
    assert distance(found[0], found[1]) < 1e-6


def test_the_gradient_at_zero_is_finite() -> None:
    layer, children = made("convolutional")
    for part in results(layer, torch.zeros_like(children, requires_grad=True)):
        assert part.isfinite().all()


@pytest.mark.parametrize("iterations", [2, 5])
def test_no_tensor_has_the_size_of_the_votes(iterations: int) -> None:
    layer, children = made(next(iter(SHAPES)), iterations=iterations)
    children = children.detach().repeat(8, 1, 1, 1, 1).requires_grad_()
    observed = []
    for enabled in (False, True):
        with Largest() as largest:
            results(layer, children, enabled)
        observed.append(largest.elements)
    votes = layer.lazy_votes(Capsules(children)).elements * len(children)
    assert observed[0] >= votes
    assert observed[1] < votes / 4


def test_the_largest_sizes_fit_the_stack_of_a_thread_on_macos() -> None:
    code = """
import threading, torch
from capsexp.nn.capsules import LinearCapsules
from capsexp.nn.routing import Capsules
from capsexp.routing import DynamicRouting, fast
from capsexp.routing.fast import dynamic, loops, proof
loops.WORTHWHILE, proof._proving = 0, True
torch.set_num_threads(2)
threading.stack_size(2**19)
for parents, rows, columns in (4096, 1, 1), (1, 4096, 1), (1, 1, 2048), (1, 2, 2048):
    layer = LinearCapsules(2, parents, columns, rows, DynamicRouting(parents, rows))
    fast.enable(layer)
    votes = layer.lazy_votes(Capsules(torch.randn(4, 2, columns)))
    assert loops.library_for(votes.poses, votes.weight, 1, 1)
    layer.routing(votes).poses.sum().backward()
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=200)

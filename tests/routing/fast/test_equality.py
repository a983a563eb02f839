"""Every fast path on a CPU equals its reference in value and gradient, repeats, and stores no votes."""

import shutil
from functools import partial
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from support import process, raising
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode  # the documented way to observe all operators' results

from capsexp.nn import CapsuleLayer, Capsules, ConvCapsules, Hierarchy, LinearCapsules, make_routing
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, fast

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("loops_for_every_batch"),
]

Result = list[Tensor]

Shape = tuple[int, tuple[int, int], int, int, int, int, int, int, str]

# batch, sides, children, C, kernel (0: linear), stride, parents, D, structure
SHAPES: dict[str, Shape] = {
    "linear, more images than a vector": (19, (3, 3), 8, 8, 0, 1, 10, 16, "vector"),
    "linear, ones": (1, (1, 1), 1, 1, 0, 1, 1, 1, "vector"),
    "linear, longer poses of children": (3, (1, 1), 7, 6, 0, 1, 5, 3, "vector"),
    "linear, a pose longer than a vector": (2, (1, 1), 5, 4, 0, 1, 3, 20, "vector"),
    "linear, matrix": (2, (2, 2), 3, 16, 0, 1, 10, 16, "matrix"),
    "vector": (3, (5, 4), 2, 3, 2, 1, 4, 7, "vector"),
    "matrix, an edge that no kernel sees": (2, (6, 6), 3, 4, 3, 2, 5, 4, "matrix"),
    "one parent": (2, (4, 4), 3, 4, 3, 1, 1, 4, "matrix"),
    "a kernel of one, stride 2": (1, (5, 5), 2, 3, 1, 2, 3, 7, "vector"),
}
FIRST, CONVOLUTIONAL = "linear, more images than a vector", "matrix, an edge that no kernel sees"

PROCEDURES = {
    "dynamic": partial(DynamicRouting, squash_constant=0.7),
    "dynamic, replace": partial(DynamicRouting, logits="replace"),
    "dynamic, last": partial(DynamicRouting, gradient="last"),
    "dynamic, last, replace": partial(DynamicRouting, gradient="last", logits="replace"),
    "dynamic, none": partial(DynamicRouting, gradient="none"),
    "em": partial(EMRouting, inverse_temperature=0.3, growth=0.5),
    "em, mean": partial(EMRouting, inverse_temperature=0.3, density="mean"),
    "inverted": InvertedRouting,
    "inverted, without norm": partial(InvertedRouting, norm=False),
    "inverted, activations": partial(InvertedRouting, activations=True, inverse_temperature=2.0),
}
CASES = [
    *((FIRST, procedure, iterations) for procedure, iterations in product(PROCEDURES, (1, 2, 3, 5))),
    *(
        (name, procedure, 3)
        for name, procedure in product(SHAPES, ("dynamic", "em", "inverted", "inverted, activations"))
    ),
]


def layer_of(
    shape: Shape, procedure: str, kind: torch.dtype = torch.float64, **options: Any
) -> tuple[CapsuleLayer, Capsules]:
    """A layer with random parameters and its children, who have activations, one of them 0."""
    batch, sides, types, child, kernel, stride, count, pose, structure = shape
    sizes = types * (kernel**2 or prod(sides)), count, child, pose
    routing = make_routing(partial(PROCEDURES[procedure], **options), *sizes)
    for parameter in routing.parameters():
        nn.init.normal_(parameter)
    layer: CapsuleLayer
    if kernel:
        layer = ConvCapsules(types, *sizes[1:], kernel, stride, routing, structure=structure, scale=0.5)
    else:
        layer = LinearCapsules(*sizes, routing, structure=structure, scale=0.5)
    present = torch.rand(batch, *sides, types, dtype=kind)
    poses, present[0, 0, 0, 0] = torch.randn(*present.shape, child, dtype=kind), 0
    return layer.to(kind), Capsules(poses.requires_grad_(), present.requires_grad_())


def results(layer: CapsuleLayer, children: Capsules, way: str = "loops") -> Result:
    """The parents, and the gradients by all that they depend on: by loops, kernels, or by the reference."""
    (fast.enable if way in ("loops", "kernels") else fast.disable)(layer)
    if way == "kernels":
        parents = [part for part in layer.routing(layer.vote_inputs(children)) if part is not None]
    else:
        parents = [part for part in layer(children) if part is not None]
    assert way != "loops" or fast.paths(layer).startswith("C loops, ")
    read = [tensor for tensor in (*children, *layer.parameters()) if tensor.requires_grad]
    moved = [part.movedim(-1, 1) for part in parents]  # its gradients aren't contiguous
    weighted = [part * torch.sin(torch.arange(part.numel(), dtype=part.dtype)).view_as(part) for part in moved]
    total = torch.stack([part.sum() for part in weighted]).sum()
    gradients = torch.autograd.grad(total, read, allow_unused=True, materialize_grads=True)
    return [*parents, *gradients]


def distance(ours: Result, theirs: Result) -> float:
    """The largest relative error."""
    return max(((a - b).norm() / b.norm().clamp(min=1e-9)).item() for a, b in zip(ours, theirs, strict=True))


def assert_equal(shape: Shape, procedure: str, way: str = "loops", **options: Any) -> None:
    """In float64, in value and gradient."""
    layer, children = layer_of(shape, procedure, **options)
    expected = results(layer, children, "reference")
    for ours, theirs in zip(results(layer, children, way), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def assert_rounded(shape: Shape, procedure: str, way: str = "loops") -> None:
    """In float32 equal and repeated; with products of bfloat16 as close to that as the reference."""
    layer, children = layer_of(shape, procedure, torch.float32, iterations=2)
    exact = results(layer, children, "reference")
    first, second = (results(layer, children, way) for _ in range(2))
    assert all(map(torch.equal, first, second))
    assert distance(first[:1], exact[:1]) < 1e-4
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (results(layer, children, each) for each in (way, "reference"))
    assert [part.dtype for part in ours] == [part.dtype for part in exact]
    assert 0 < distance(ours[:1], exact[:1]) < (1.2 if way == "loops" else 2) * distance(theirs[:1], exact[:1])


@pytest.mark.parametrize(("name", "procedure", "iterations"), CASES)
def test_value_and_gradients(name: str, procedure: str, iterations: int) -> None:
    assert_equal(SHAPES[name], procedure, iterations=iterations)


def test_gradients_at_zero_are_finite() -> None:
    layer, (poses, present) = layer_of(SHAPES[FIRST], "dynamic")
    at_zero = results(layer, Capsules(torch.zeros_like(poses, requires_grad=True), present))
    assert all(part.isfinite().all() for part in at_zero)


@pytest.mark.parametrize("name", [FIRST, CONVOLUTIONAL])
@pytest.mark.parametrize("procedure", ["dynamic", "em, mean", "inverted"])
def test_float32_repeats_and_bfloat16_is_as_close_to_it_as_the_reference(name: str, procedure: str) -> None:
    assert_rounded(SHAPES[name], procedure)


@pytest.mark.usefixtures("three_threads")
def test_images_do_not_depend_on_the_threads() -> None:
    """Gradients by matrices are sums over images, which each number of threads adds in an order of its own."""
    layer, children = layer_of(SHAPES[FIRST], "dynamic", torch.float32)
    of_threads = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        of_threads.append(results(layer, children))
    assert all(map(torch.equal, *(part[:2] for part in of_threads)))
    assert distance(*of_threads) < 1e-6


class Largest(TorchDispatchMode):
    """The greatest number of elements of any tensor that an operator returns."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self.elements = max(self.elements, part.untyped_storage().nbytes() // part.element_size())
        return result


@pytest.mark.parametrize("procedure", ["dynamic", "em", "inverted"])
def test_no_tensor_has_the_size_of_the_votes(procedure: str) -> None:
    layer, (poses, present) = layer_of(SHAPES[FIRST], procedure)
    poses, present = (part.detach().repeat(8, *[1] * (part.ndim - 1)).requires_grad_() for part in (poses, present))
    observed = {}
    for way in ("reference", "loops"):
        with Largest() as largest:
            results(layer, Capsules(poses, present), way)
        observed[way] = largest.elements
    votes = present.numel() * 10 * 16
    assert observed["reference"] >= votes
    assert observed["loops"] <= votes / 4


def hierarchy(iterations: int, **options: Any) -> Hierarchy:
    torch.manual_seed(1)
    routings = [InvertedRouting(parents=count, pose=4, iterations=iterations, **options) for count in (3, 5, 2)]
    conv = [ConvCapsules(2, 3, 4, 4, 3, 2, routings[0]), ConvCapsules(3, 5, 4, 4, 2, 1, routings[1])]
    return Hierarchy([*conv, LinearCapsules(5 * 4, 2, 4, 4, routings[2], structure="matrix", scale=1.0)]).double()


@pytest.mark.parametrize("options", [{}, {"order": "sequential"}, {"activations": True, "inverse_temperature": 2.0}])
@pytest.mark.parametrize("iterations", [1, 3, 5])
def test_all_layers_of_a_hierarchy(iterations: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    network, found = hierarchy(iterations, **options), []
    grid = torch.randn(2, 7, 7, 2, 4, dtype=torch.float64, requires_grad=True)
    for enabled in (False, True):
        if enabled:
            fast.enable(network)
            for kind in (ConvCapsules, LinearCapsules):
                monkeypatch.setattr(kind, "votes", raising(AssertionError()))
        parents = [part for part in network(Capsules(grid, grid[..., 0].sigmoid())) if part is not None]
        total = torch.cat([part.sin().flatten() for part in parents]).sum()
        found.append([*parents, *torch.autograd.grad(total, [grid, *network.parameters()])])
    torch.testing.assert_close(*found)


def kept(iterations: int) -> int:
    """The elements that the forward pass keeps for the backward pass without the parameters, each tensor once."""
    network = hierarchy(iterations)
    fast.enable(network)
    own = {parameter.data_ptr() for parameter in network.parameters()}
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 8
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        poses = network(Capsules(torch.randn(2, 7, 7, 2, 4, dtype=torch.float64, requires_grad=True))).poses
        assert poses.requires_grad  # what is kept is alive up to here, so that no two have the same address
    return sum(storages.values())


def test_an_iteration_keeps_only_poses() -> None:
    parents = 2 * (9 * 3 + 4 * 5 + 2) * 4  # of all layers: old poses, sums; LayerNorm's input, means and deviations
    assert kept(5) - kept(4) <= 4 * parents


def test_the_largest_sizes_fit_the_stack_of_a_thread_on_macos() -> None:
    code = """
import threading, torch
from capsexp.nn import Capsules, LinearCapsules
from capsexp.routing import DynamicRouting, fast
from capsexp.routing.fast import loops, selfcheck
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
    assert process("-c", code).returncode == 0

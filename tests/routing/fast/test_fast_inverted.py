"""Inverted routing by the loops equals the procedure in value and gradient, without a tensor of the votes' size."""

import copy
import shutil
from typing import Any

import pytest
import torch
from support import raising
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode  # the documented way to observe all operators' results

from capsexp.nn.attention import CapsAttention
from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules
from capsexp.nn.hierarchy import Hierarchy
from capsexp.nn.routing import Capsules, Routing
from capsexp.routing import fast
from capsexp.routing.inverted import InvertedRouting

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
    pytest.mark.usefixtures("loops_for_every_batch"),
]

Result = list[Tensor]

# batch, side, children, child pose, kernel (0: linear), stride, parents, parent pose, structure
SHAPES = {
    "cifar10 classes": (2, 5, 32, 16, 0, 1, 10, 16, "matrix"),
    "cifar100": (1, 7, 8, 36, 3, 2, 8, 36, "matrix"),
    "multimnist": (1, 5, 4, 64, 3, 1, 4, 64, "vector"),
    "one child": (2, 1, 1, 4, 0, 1, 5, 4, "matrix"),
    "one parent": (2, 4, 3, 4, 3, 1, 1, 4, "matrix"),
    "kernel of one, stride 2": (1, 5, 2, 3, 1, 2, 3, 7, "vector"),
    "a larger vote": (3, 5, 5, 3, 2, 3, 7, 5, "vector"),
    "numbers": (2, 3, 2, 1, 2, 1, 3, 1, "vector"),
}


def layer_of(shape: tuple[Any, ...], routing: Routing, kind: torch.dtype) -> tuple[CapsuleLayer, Tensor]:
    """A layer of SHAPES and its children."""
    batch, side, types, child, kernel, stride, count, pose, structure = shape
    layer: CapsuleLayer
    if kernel:
        layer = ConvCapsules(types, count, child, pose, kernel, stride, routing, structure=structure, scale=0.5)
    else:
        layer = LinearCapsules(types * side**2, count, child, pose, routing, structure=structure, scale=0.5)
    return layer.to(kind), torch.randn(batch, side, side, types, child, dtype=kind).requires_grad_()


def made(name: str, kind: torch.dtype = torch.float64) -> tuple[CapsuleLayer, Tensor, Tensor]:
    """A layer, its children, and its parents' poses after the previous iteration."""
    count, pose = SHAPES[name][6:8]
    routing = InvertedRouting(parents=count, pose=pose, norm=pose > 1)  # of one number, the norm is its bias
    layer, children = layer_of(SHAPES[name], routing, kind)
    return layer, children, torch.randn_like(layer(Capsules(children)).poses).requires_grad_()


def results(layer: CapsuleLayer, children: Tensor, parents: Tensor, enabled: bool) -> Result:
    """The new poses, and the gradients by children, matrices and old poses."""
    (fast.enable if enabled else fast.disable)(layer)
    poses = layer.routing.iteration(*layer.votes(Capsules(children)), parents).poses
    assert not enabled or fast.paths(layer).startswith("C loops, ")
    weights = torch.sin(torch.arange(poses.numel(), dtype=poses.dtype)).view_as(poses)
    return [poses, *torch.autograd.grad((poses * weights).sum(), [children, layer.matrices.weight, parents])]


def distance(ours: Result, theirs: Result) -> float:
    """The largest relative error."""
    return max(((a - b).norm() / b.norm().clamp(min=1e-9)).item() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_value_and_gradients(name: str):
    layer, children, parents = made(name)
    for ours, theirs in zip(*(results(layer, children, parents, enabled) for enabled in (True, False)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["cifar10 classes", "cifar100", "multimnist"])
def test_float32_which_repeats_and_bfloat16_as_close_to_it_as_the_reference(name: str):
    layer, children, parents = made(name, torch.float32)
    exact = results(layer, children, parents, False)
    first, second = (results(layer, children, parents, True) for _ in range(2))
    assert all(map(torch.equal, first, second))
    assert distance(first, exact) < 1e-4
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (results(layer, children, parents, enabled) for enabled in (True, False))
    assert [part.dtype for part in ours] == [part.dtype for part in exact]
    assert 0 < distance(ours[:1], exact[:1]) < 1.2 * distance(theirs[:1], exact[:1])
    assert distance(ours, exact) < 1.2 * distance(theirs, exact)


def hierarchy(iterations: int, structure: str = "matrix", **options: Any) -> Hierarchy:
    torch.manual_seed(1)
    routings = [InvertedRouting(parents=count, pose=4, iterations=iterations, **options) for count in (3, 5, 2)]
    conv = [ConvCapsules(2, 3, 4, 4, 3, 2, routings[0], structure=structure)]  # type: ignore[arg-type]
    conv += [ConvCapsules(3, 5, 4, 4, 2, 1, routings[1], structure=structure)]  # type: ignore[arg-type]
    linear = LinearCapsules(5 * 4, 2, 4, 4, routings[2], structure=structure, scale=1.0)  # type: ignore[arg-type]
    return Hierarchy([*conv, linear]).double()


def parents_and_gradients(network: Hierarchy, grid: Tensor) -> Result:
    parents = [part for part in network(Capsules(grid, grid[..., 0].sigmoid())) if part is not None]
    total = torch.cat([part.sin().flatten() for part in parents]).sum()
    return [*parents, *torch.autograd.grad(total, [grid, *network.parameters()])]


@pytest.mark.parametrize(
    "options", [{"order": "concurrent"}, {"order": "sequential"}, {"activations": True, "inverse_temperature": 2.0}]
)
@pytest.mark.parametrize("structure", ["matrix", "vector"])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_all_layers_and_iterations(
    iterations: int, structure: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    reference = hierarchy(iterations, structure, **options)
    faster = copy.deepcopy(reference)
    fast.enable(faster)
    grid = torch.randn(2, 7, 7, 2, 4, dtype=torch.float64, requires_grad=True)
    expected = parents_and_gradients(reference, grid)

    for kind in (ConvCapsules, LinearCapsules):
        monkeypatch.setattr(kind, "votes", raising(AssertionError()))
    for ours, theirs in zip(parents_and_gradients(faster, grid), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_with_attention_votes_are_materialised():
    reference = hierarchy(3)
    reference.layers[2].attention = CapsAttention(4).double()
    faster = copy.deepcopy(reference)
    fast.enable(faster)
    grid = Capsules(torch.randn(2, 7, 7, 2, 4, dtype=torch.float64))
    assert isinstance(faster.layers[2].votes(Capsules(torch.rand(2, 20, 4).double())).poses, Tensor)
    torch.testing.assert_close(faster(grid).poses, reference(grid).poses)


class Largest(TorchDispatchMode):
    """The greatest number of elements of any tensor that an operator returns."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self.elements = max(self.elements, part.untyped_storage().nbytes() // part.element_size())
        return result


def test_no_tensor_has_the_size_of_the_votes():
    layer, children, parents = made("cifar100")
    observed = []
    for enabled in (False, True):
        with Largest() as largest:
            results(layer, children, parents, enabled)
        observed.append(largest.elements)
    votes = layer.vote_inputs(Capsules(children)).elements
    assert observed[0] >= votes
    assert observed[1] < votes / 4


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


def test_an_iteration_keeps_only_poses():
    parents = 2 * (9 * 3 + 4 * 5 + 2) * 4  # of all layers: old poses, sums; LayerNorm's input, means and deviations
    assert kept(5) - kept(4) <= 4 * parents

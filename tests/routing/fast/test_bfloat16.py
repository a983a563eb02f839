"""Products of bfloat16 on a CPU without fast instructions for them: rounded as autocast rounds, computed in float32."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from capsexp.nn import Capsules, ConvCapsules
from capsexp.nn.matrices import TransformationMatrices
from capsexp.routing import InvertedRouting, fast
from capsexp.routing.fast import bfloat16

# a layer, the shape that it reads
LAYERS = [
    (nn.Conv2d(3, 256, 9, 2), (64, 3, 20, 20)),
    (nn.Linear(160, 30), (64, 5, 160)),
    (nn.Linear(160, 30, bias=False), (64, 160)),
    (TransformationMatrices(1, 10, 128, 16), (8, 100, 1, 128)),
    (TransformationMatrices(32, 10, 16, 16, "matrix"), (8, 3, 32, 16)),
]


def numbers(layer: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    """The output and the gradients, rounded to bfloat16."""
    inputs = inputs.detach().requires_grad_()
    output = layer(inputs)
    grad_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    gradients = torch.autograd.grad(output, [inputs, *layer.parameters()], grad_output.to(output.dtype))
    return [number.bfloat16() for number in (output, *gradients)]


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_without_fast_instructions_only_factors_and_sums_are_rounded(
    layer: nn.Module, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are float64's, but for few that are rounded to the next bfloat16 number, 2⁻⁷ apart."""
    exact, inputs = copy.deepcopy(layer).bfloat16().double(), torch.randn(shape).bfloat16().float()
    expected = numbers(exact, inputs.double())
    fast.enable(layer)
    monkeypatch.setattr(bfloat16, "is_faster_in_bfloat16", lambda device: False)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(inputs).dtype == torch.bfloat16
        found = numbers(layer, inputs)
    assert fast.paths(layer) == bfloat16.PATH
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 1e-3 * other.norm()


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
@pytest.mark.parametrize(("dtype", "is_faster"), [(torch.float32, True), (torch.float64, False)])
def test_with_fast_instructions_and_in_float64_it_is_torchs_own(
    layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast leaves float64 alone."""
    layer, inputs = copy.deepcopy(layer).to(dtype), torch.randn(shape, dtype=dtype)
    monkeypatch.setattr(bfloat16, "is_faster_in_bfloat16", lambda device: is_faster)
    fast.disable(layer)
    with torch.autocast("cpu", torch.bfloat16):
        expected = layer(inputs)
        fast.enable(layer)
        found = layer(inputs)
    assert torch.equal(found, expected)
    assert found.dtype == (dtype if dtype == torch.float64 else torch.bfloat16)
    assert fast.paths(layer) == "reference"


def test_the_sum_of_votes_is_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "is_faster_in_bfloat16", lambda device: False)
    layer = ConvCapsules(2, 3, 16, 16, 3, 2, InvertedRouting(parents=3, pose=16))
    children = Capsules(torch.randn(2, 5, 5, 2, 16).bfloat16())
    exact = copy.deepcopy(layer).bfloat16().double().votes(Capsules(children.poses.double())).poses.sum(dim=-3)
    fast.enable(layer)
    convolved, types = functional.conv2d, list[torch.dtype]()
    monkeypatch.setattr(
        functional, "conv2d", lambda maps, *rest, **k: types.append(maps.dtype) or convolved(maps, *rest, **k)
    )
    with torch.autocast("cpu", torch.bfloat16):
        found = layer.vote_inputs(children).sum()
    assert (found.dtype, types) == (torch.bfloat16, [torch.float32])
    assert (found - exact).norm() < 2**-8 * exact.norm()

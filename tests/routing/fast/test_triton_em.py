"""EM routing by the Triton kernels equals the procedure, in Triton's interpreter; see test_triton_inverted."""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product

import pytest
import torch
from test_triton_inverted import ROOT, SHAPES
from torch import Tensor

BUDGETS = {"whole": (1, 2048), "split": (4, 64)}  # programs, elements
CASES = [("stride 2, an edge that no kernel sees", "split", "sum"), ("vector", "whole", "mean")]
ALL = {name: list(product([name], BUDGETS, ("sum", "mean"))) for name in SHAPES}


@pytest.mark.parametrize(
    "cases", [CASES, *(pytest.param(cases, marks=pytest.mark.slow) for cases in ALL.values())], ids=["some", *ALL]
)
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_equal_the_procedure(cases: list[tuple[str, str, str]]) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, *(word for case in cases for word in case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [" ".join(case) for case in cases]


def results(name: str, density: str, kind: torch.dtype, enabled: bool) -> list[Tensor]:
    """Poses and activations after two iterations; the gradients by children, activations, matrices and β.

    All numbers are ones that bfloat16 represents.
    """
    from capsexp.nn import Capsules, ConvCapsules
    from capsexp.routing import EMRouting, fast

    torch.manual_seed(0)
    batch, height, width, types, (rows, inner), kernel, stride, parents, columns, _ = SHAPES[name]
    routing = EMRouting(parents, columns * inner, iterations=2, inverse_temperature=0.3, density=density)  # type: ignore[arg-type]
    structure = "vector" if inner == 1 else "matrix"
    sizes = (types, parents, rows * inner, columns * inner, kernel, stride)
    layer = ConvCapsules(*sizes, routing, structure=structure, scale=1.0)  # type: ignore[arg-type]
    torch.nn.init.normal_(routing.activation.beta_u)
    torch.nn.init.normal_(routing.activation.beta_a)
    layer = layer.bfloat16().to(kind)
    poses = torch.randn(batch, height, width, types, rows * inner).bfloat16().to(kind).requires_grad_()
    present = torch.rand(batch, height, width, types).bfloat16()
    present[0, 0, 0, 0] = 0
    children = Capsules(poses, present.to(kind).requires_grad_())
    if enabled:
        fast.enable(layer)
        found = layer.routing(layer.lazy_votes(children))
    else:
        found = layer(children)
    assert found.activations is not None
    total = sum((part * torch.sin(torch.arange(part.numel()).to(kind)).view_as(part)).sum() for part in found)
    return [*found, *torch.autograd.grad(total, [*children, *layer.parameters()])]


def compare(name: str, density: str) -> None:
    """Fails where values or gradients differ: in float64, and in float32, with factors in bfloat16 if `rounded`."""
    exact, rounded = results(name, density, torch.float64, enabled=False), SHAPES[name][-1]
    for mine, other in zip(results(name, density, torch.float64, enabled=True), exact, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-9, msg=lambda text: f"{name}, {density}: {text}")
    with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
        single = results(name, density, torch.float32, enabled=True)
    for mine, other in zip(single, exact, strict=True):
        assert mine.dtype == torch.float32
        error = ((mine - other).norm() / other.norm().clamp(min=1e-6)).item()
        assert error < (1e-2 if rounded else 1e-4), f"{name}, {density}: {error}"


def main(words: list[str]) -> None:
    """Compares some shapes: three words each, see CASES."""
    from capsexp.routing.fast import em, triton_votes

    em.Loops.of = lambda *arguments: None  # type: ignore[method-assign]
    for name, budget, density in zip(*[iter(words)] * 3, strict=True):
        triton_votes.PROGRAMS, triton_votes.ELEMENTS = BUDGETS[budget]
        compare(name, density)
        print(name, budget, density)


if __name__ == "__main__":
    main(sys.argv[1:])

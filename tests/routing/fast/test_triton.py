"""The Triton kernels against the procedures, in Triton's interpreter, on the CPU.

The interpreter is chosen when Triton is imported, which other tests may have done: hence a new process.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import cycle, product

import pytest
import torch
from support import ROOT
from torch import Tensor

# batch, height, width, children, child pose Y × X, kernel, stride, parents, Z, products in bfloat16
SHAPES = {
    "matrix": (2, 4, 3, 2, (2, 2), 3, 1, 3, 2, False),
    "stride 2, an edge that no kernel sees": (2, 5, 3, 1, (2, 2), 2, 2, 4, 2, False),
    "vector": (1, 3, 2, 2, (3, 1), 2, 1, 3, 5, False),
    "matrices of no power of two": (1, 3, 2, 1, (3, 3), 2, 1, 2, 3, False),
    "one parent, one child": (3, 1, 1, 1, (2, 2), 1, 1, 1, 2, False),
    "linear": (3, 1, 1, 7, (2, 2), 1, 1, 5, 2, False),
    "numbers": (2, 1, 1, 3, (1, 1), 1, 1, 3, 1, False),
    "bfloat16": (2, 3, 2, 1, (2, 2), 2, 1, 3, 2, True),
}
BUDGETS = {"whole": (1, 2048), "split": (4, 64)}  # programs, elements
ROUTINGS = ("inverted", "em sum", "em mean")
SOME = [
    *((name, budget, "inverted") for name, budget in zip(SHAPES, cycle(BUDGETS), strict=False)),
    ("stride 2, an edge that no kernel sees", "split", "em sum"),
    ("vector", "whole", "em mean"),
]
ALL = {name: list(product([name], BUDGETS, ROUTINGS)) for name in SHAPES}


@pytest.mark.parametrize(
    "cases", [SOME, *(pytest.param(cases, marks=pytest.mark.slow) for cases in ALL.values())], ids=["some", *ALL]
)
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_equal_the_procedure(cases: list[tuple[str, str, str]]) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, __file__, *(word for case in cases for word in case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [" ".join(case) for case in cases]


def results(name: str, procedure: str, dtype: torch.dtype, enabled: bool) -> list[Tensor]:
    """Poses and activations after two iterations; the gradients by children, activations and parameters.

    All numbers are ones that bfloat16 represents.
    """
    from capsexp.nn import Capsules, ConvCapsules
    from capsexp.routing import EMRouting, InvertedRouting, fast

    torch.manual_seed(0)
    batch, height, width, types, (rows, inner), kernel, stride, parents, columns, _ = SHAPES[name]
    word, *density = procedure.split()
    routing: EMRouting | InvertedRouting
    if word == "em":
        routing = EMRouting(parents=parents, iterations=2, inverse_temperature=0.3, density=density[0])  # type: ignore[arg-type]
        torch.nn.init.normal_(routing.activation.beta_u)
        torch.nn.init.normal_(routing.activation.beta_a)
    else:
        routing = InvertedRouting(parents=parents, pose=columns * inner, iterations=2, norm=False)
    structure = "vector" if inner == 1 else "matrix"
    layer = ConvCapsules(types, parents, rows * inner, columns * inner, kernel, stride, routing, structure=structure)  # type: ignore[arg-type]
    for weight in layer.matrices.parameters():
        torch.nn.init.normal_(weight)
    layer = layer.bfloat16().to(dtype)
    poses = torch.randn(batch, height, width, types, rows * inner).bfloat16().to(dtype).requires_grad_()
    present = torch.rand(batch, height, width, types).bfloat16()
    present[0, 0, 0, 0] = 0
    children = Capsules(poses, present.to(dtype).requires_grad_() if word == "em" else None)
    if enabled:
        fast.enable(layer)
        found = layer.routing(layer.vote_inputs(children))
    else:
        found = layer(children)
    inputs, outputs = ([part for part in capsules if part is not None] for capsules in (children, found))
    total = sum((part * torch.sin(torch.arange(part.numel()).to(dtype)).view_as(part)).sum() for part in outputs)
    return [*outputs, *torch.autograd.grad(total, [*inputs, *layer.parameters()])]


def compare(name: str, procedure: str) -> None:
    """Fails where values or gradients differ: in float64, and in float32, with factors in bfloat16 if `rounded`."""
    exact, rounded = results(name, procedure, torch.float64, enabled=False), SHAPES[name][-1]
    for mine, other in zip(results(name, procedure, torch.float64, enabled=True), exact, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-9, msg=lambda text: f"{name}, {procedure}: {text}")
    with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
        single = results(name, procedure, torch.float32, enabled=True)
    for mine, other in zip(single, exact, strict=True):
        assert mine.dtype == torch.float32
        error = ((mine - other).norm() / other.norm().clamp(min=1e-6)).item()
        assert error < (1e-2 if rounded else 1e-4), f"{name}, {procedure}: {error}"


def main(words: list[str]) -> None:
    """Compares some shapes: three words each, see SOME."""
    from capsexp.routing.fast import em, inverted, triton_votes

    em.Loops.of = inverted.Loops.of = lambda *arguments: None  # type: ignore[method-assign]
    for name, budget, procedure in zip(*[iter(words)] * 3, strict=True):
        triton_votes.PROGRAMS, triton_votes.ELEMENTS = BUDGETS[budget]
        compare(name, procedure)
        print(name, budget, procedure)


if __name__ == "__main__":
    main(sys.argv[1:])

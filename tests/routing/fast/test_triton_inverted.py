"""The Triton kernels against the procedure, in Triton's interpreter, on the CPU.

The interpreter is chosen when Triton is imported, which other tests may have done: hence a new process.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]

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


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_equal_the_procedure():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name}: {budget}" for name in SHAPES for budget in ("whole", "split")]


def compare(name: str) -> None:
    """Fails where values or gradients differ; in float64, with factors that bfloat16 represents exactly."""
    from capsexp.nn.capsules import patches
    from capsexp.routing.fast import triton_inverted

    torch.manual_seed(0)
    batch, height, width, types, (rows, inner), kernel, stride, parents, columns, rounded = SHAPES[name]
    kind = torch.float32 if rounded else torch.float64
    children = torch.randn(batch, height, width, types, rows * inner).bfloat16().to(kind)
    weight = torch.randn(kernel**2 * types, parents, columns, rows).bfloat16()
    weight = weight if rounded else weight.to(kind)
    places = [(size - kernel) // stride + 1 for size in (height, width)]
    before, gradient = torch.randn(2, batch, *places, parents, columns * inner, dtype=kind)
    arguments = (children, weight, before, kernel, stride)
    ours = (triton_inverted.forward(*arguments), *triton_inverted.backward(gradient, *arguments))
    leaves = [tensor.to(kind).requires_grad_() for tensor in (children, weight, before)]
    squares, queries = (tensor.unflatten(-1, (-1, inner)) for tensor in (leaves[0], leaves[2]))
    votes = torch.einsum("bhwiyx,ijzy->bhwijzx", patches(squares, kernel, stride).flatten(3, 4), leaves[1])
    agreement = torch.einsum("bhwijzx,bhwjzx->bhwij", votes, queries) / (columns * inner) ** 0.5
    total = torch.einsum("bhwij,bhwijzx->bhwjzx", agreement.softmax(dim=-1), votes).flatten(-2)
    by_children, by_weight, by_before = torch.autograd.grad(total, leaves, gradient)
    theirs = (total, by_children, by_weight.to(weight.dtype), by_before)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, msg=lambda text: f"{name}: {text}")
        assert mine.is_contiguous(), name


def main() -> None:
    """Compares all shapes, with all children in a program, and with few children and places in a program."""
    from capsexp.routing.fast import triton_votes

    for name in SHAPES:
        triton_votes.PROGRAMS, triton_votes.ELEMENTS = 1, 2048
        compare(name)
        print(f"{name}: whole")
        triton_votes.PROGRAMS, triton_votes.ELEMENTS = 4, 64
        compare(name)
        print(f"{name}: split")


if __name__ == "__main__":
    main()

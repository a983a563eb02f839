"""The Triton kernels against the procedures, in Triton's interpreter, on the CPU.

The interpreter is chosen when Triton is imported, which other tests may have done: hence a new process.
"""

import sys
from importlib.util import find_spec
from itertools import cycle, product

import pytest
import torch
from support import ROOT, process
from test_equality import Shape, assert_equal, assert_rounded

# As in test_equality.
SHAPES: dict[str, Shape] = {
    "matrix": (2, (4, 3), 2, 4, 3, 1, 3, 4, "matrix"),
    "stride 2, an edge that no kernel sees": (2, (5, 3), 1, 4, 2, 2, 4, 4, "matrix"),
    "vector": (1, (3, 2), 2, 3, 2, 1, 3, 5, "vector"),
    "matrices of no power of two": (1, (3, 2), 1, 9, 2, 1, 2, 9, "matrix"),
    "one parent, one child": (3, (1, 1), 1, 4, 1, 1, 1, 4, "matrix"),
    "linear": (3, (1, 1), 7, 4, 0, 1, 5, 4, "matrix"),
    "numbers": (2, (1, 1), 3, 1, 0, 1, 3, 1, "vector"),
}
BUDGETS = {"whole": (1, 2048), "split": (4, 64)}  # programs, elements
ROUTINGS = ("inverted, without norm", "em", "em, mean")
SOME = [
    *((name, budget, ROUTINGS[0]) for name, budget in zip(SHAPES, cycle(BUDGETS), strict=False)),
    ("stride 2, an edge that no kernel sees", "split", "em"),
    ("vector", "whole", "em, mean"),
]
ALL = {name: list(product([name], BUDGETS, ROUTINGS)) for name in SHAPES}


@pytest.mark.parametrize(
    "cases", [SOME, *(pytest.param(cases, marks=pytest.mark.slow) for cases in ALL.values())], ids=["some", *ALL]
)
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_equal_the_procedure(cases: list[tuple[str, str, str]]) -> None:
    variables = {"TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = process(__file__, *(word for case in cases for word in case), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [" ".join(case) for case in cases]


def main(words: list[str]) -> None:
    """Compares some shapes: three words each, see SOME."""
    from capsexp.routing.fast import em, inverted, triton_shared

    em.Loops.of = inverted.Loops.of = lambda *arguments: None  # type: ignore[method-assign]
    for name, budget, procedure in zip(*[iter(words)] * 3, strict=True):
        torch.manual_seed(0)
        triton_shared.PROGRAMS, triton_shared.ELEMENTS = BUDGETS[budget]
        assert_equal(SHAPES[name], procedure, "kernels", iterations=2)
        if name == "matrix":
            assert_rounded(SHAPES[name], procedure, "kernels")
        print(name, budget, procedure)


if __name__ == "__main__":
    main(sys.argv[1:])

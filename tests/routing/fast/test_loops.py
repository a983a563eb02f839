"""The loops of votes.c equal the procedures in value and gradient, and routing without them is the same."""

import os
import shutil
from collections.abc import Iterator

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.nn.capsules import ConvCapsules, LinearCapsules
from capsexp.routing.fast import em, inverted, loops
from capsexp.routing.fast.loops import Loops
from capsexp.run.build import build

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# batch, side, children, C, kernel, stride, parents, Z, Y
SHAPES = {
    "matrix, an edge that no kernel sees": (3, 6, 2, 4, 3, 2, 5, 2, 2),
    "vector": (2, 4, 3, 3, 2, 1, 2, 5, 3),
    "linear, more places than a block": (11, 1, 7, 9, 1, 1, 3, 3, 3),
}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "WORTHWHILE", 0)


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def made(name: str) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Children, matrices and parents in float64; kernel and stride."""
    torch.manual_seed(0)
    batch, side, types, pose, kernel, stride, parents, rows, columns = SHAPES[name]
    places = (side - kernel) // stride + 1
    children = torch.randn(batch, side, side, types, pose, dtype=torch.float64)
    weight = torch.randn(kernel**2 * types, parents, rows, columns, dtype=torch.float64)
    before = torch.randn(batch, places, places, parents, rows * (pose // columns), dtype=torch.float64)
    return children, weight, before, (kernel, stride)


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("name", SHAPES)
def test_the_gradient_of_an_inverted_iteration(name: str) -> None:
    children, weight, parents, window = made(name)
    checked = [tensor.requires_grad_() for tensor in (children, weight, parents)]
    assert torch.autograd.gradcheck(lambda *these: inverted.Iteration.apply(*these, *window), checked, fast_mode=True)


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("name", SHAPES)
def test_the_gradient_of_an_em_iteration(name: str) -> None:
    children, weight, mean, window = made(name)
    activations, offset = torch.rand(children.shape[:-1]).double(), torch.randn(mean.shape[:-1]).double()
    tensors = [children, weight, activations, mean, 0.2 * torch.rand_like(mean), offset]
    for inputs in (tensors[:3], tensors):
        none = [None] * (6 - len(inputs))
        checked = [tensor.clone().requires_grad_() for tensor in inputs]
        iteration = lambda *these, none=none: em._Iteration.apply(*these, *none, *window)  # noqa: E731
        assert torch.autograd.gradcheck(iteration, checked, fast_mode=True)


@pytest.mark.parametrize("density", ["sum", "mean"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_em_without_votes_equals_the_procedure(iterations: int, density: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for way in ("reference", "fast"):
        config = composed_config(
            "model=em_capsnet", "data=mnist_sample", "budget=demo", "budget.width=0.1",
            f"routing.iterations={iterations}", f"routing.density={density}", "routing.growth=0.5",
            f"trainer.routing={way}",
        )  # fmt: skip
        torch.manual_seed(0)
        network = build(config).network.double()
        if way == "fast":
            for kind in (ConvCapsules, LinearCapsules):
                monkeypatch.setattr(kind, "votes", None)
        prediction = network(torch.rand(3, 1, 28, 28, dtype=torch.float64))
        (prediction.scores.square().sum() + prediction.poses.square().sum()).backward()
        results.append([prediction.scores, prediction.poses, *(p.grad for p in network.parameters())])
    for reference, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, reference, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", SHAPES)
def test_float32_is_exact_to_its_rounding(name: str) -> None:
    children, weight, parents, window = made(name)
    exact = inverted.Iteration.apply(children, weight, parents, *window)
    found = inverted.Iteration.apply(children.float(), weight.float(), parents.float(), *window)
    assert ((found - exact).norm() / exact.norm()).item() < 5e-7


def test_one_hot_assignments_have_no_denormal_numbers() -> None:
    children, weight, mean, window = made("linear, more places than a block")
    arguments = [tensor.float() for tensor in (children, weight, torch.ones(children.shape[:-1]), mean)]
    precision, offset = torch.full_like(arguments[3], 60.0), torch.zeros(mean.shape[:-1])
    total, means, variance = em._Iteration.apply(*arguments, precision, offset, *window)
    assert bool(((total == 0) | (total > 1e-34)).all())
    assert bool(means.isfinite().all())
    assert bool((variance >= 0).all())


@pytest.mark.parametrize("lacking", ["compiler", "source"])
def test_without_a_compiler_there_are_no_loops(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "compiler":
        monkeypatch.setenv("CC", "no-such-compiler")
    else:
        monkeypatch.setattr(loops, "SOURCE", loops.SOURCE.with_name("missing.c"))
    loops._library.cache_clear()
    children, weight, _, window = made("vector")
    try:
        assert Loops.of(children, weight, *window) is None
    finally:
        loops._library.cache_clear()


def test_the_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{os.environ.get('CC') or 'cc'} -pthread")
    loops._library.cache_clear()
    children, weight, _, window = made("vector")
    try:
        assert Loops.of(children, weight, *window) is not None
    finally:
        loops._library.cache_clear()


def test_a_small_batch_takes_no_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "WORTHWHILE", 10**6)
    children, weight, _, window = made("vector")
    assert Loops.of(children, weight, *window) is None

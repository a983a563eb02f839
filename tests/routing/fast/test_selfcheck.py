"""A fast path that raises or computes other numbers isn't used: planted faults end in the reference's numbers."""

import copy
import logging
from collections.abc import Callable

import pytest
import torch
from support import raising
from torch import Tensor

from capsexp.errors import RunError
from capsexp.nn.capsules import ConvCapsules, LinearCapsules
from capsexp.nn.routing import Capsules, Routing
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, fast
from capsexp.routing.fast import dynamic, em, inverted, loops, selfcheck

ROUTINGS: dict[str, Callable[[], Routing]] = {
    "inverted": lambda: InvertedRouting(parents=5, pose=4),
    "em": lambda: EMRouting(parents=5),
    "dynamic": DynamicRouting,
}
OPERATIONS = {
    "inverted": (inverted, "inverted_forward", "inverted_backward"),
    "em": (em, "em_forward", "em_backward"),
    "dynamic": (dynamic, "dynamic_forward", "dynamic_backward"),
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    monkeypatch.setattr(selfcheck, "_failures", {})


def layer_of(name: str) -> ConvCapsules:
    layer = ConvCapsules(3, 5, 4, 4, kernel=3, stride=2, routing=ROUTINGS[name]())
    fast.enable(layer)
    return layer


def routed(layer: ConvCapsules, images: int = 3) -> list[Tensor]:
    """Parents and the gradients of the parameters."""
    torch.manual_seed(1)
    children = Capsules(torch.randn(images, 5, 5, 3, 4), torch.rand(images, 5, 5, 3))
    parents = layer(children).poses
    return [parents, *torch.autograd.grad(parents.square().sum(), [*layer.parameters()])]


def reference(layer: ConvCapsules) -> list[Tensor]:
    slow = copy.deepcopy(layer)
    fast.disable(slow)
    return routed(slow)


def wrong(operation: Callable[..., object], which: Callable[..., bool]) -> Callable[..., object]:
    """The operation with a part of its result off by a thousandth."""

    def act(*arguments: object) -> object:
        result = operation(*arguments)
        if which(*arguments):
            first = result[0] if isinstance(result, tuple) else result
            if isinstance(first, Tensor):  # there is no gradient by the queries of the first iteration
                first *= 1.001
        return result

    return act


def test_a_layer_with_damaged_weights_does_not_switch_off_the_fast_path_of_others() -> None:
    children = Capsules(torch.randn(3, 5, 5, 3, 4), torch.rand(3, 5, 5, 3))
    for scale in (float("nan"), 1e6):
        selfcheck._failures.clear()
        damaged = layer_of("inverted")
        damaged.matrices.weight.data[0] *= scale
        damaged(children)
        layer = layer_of("inverted")
        weights = {name: weight * 2 for name, weight in layer.named_parameters()}  # no leaves
        torch.func.functional_call(layer, weights, (children,))
        assert [*selfcheck._failures.values()] == [None]
        assert fast.paths(layer).startswith("C loops, ")


@pytest.mark.parametrize("given", [(None, torch.ones(3)), (torch.ones(3), None)])
def test_a_missing_gradient_is_zero(given: tuple[Tensor | None, Tensor | None]) -> None:
    ours, theirs = given
    assert str(selfcheck.difference([ours], [theirs], 1e-4)).startswith("its numbers differ")
    assert selfcheck.difference([None], [torch.zeros(3)], 1e-4) is None


@pytest.mark.parametrize("part", ["matrices", "attention"])
def test_hooks_of_matrices_and_attention_are_not_left_out(part: str) -> None:
    layer = layer_of("inverted")
    getattr(layer, part).register_forward_hook(lambda module, inputs, output: 2 * output)
    assert all(map(torch.equal, routed(layer), reference(layer)))
    assert fast.paths(layer) == "stored votes"


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_right_path_is_used_and_checked_once_for_each_shape_and_option(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, failure = [], selfcheck._failure
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(selfcheck, "_failure", lambda *given: checks.append(given) or failure(*given))
    layer = layer_of(name)
    for images, count in ((1, 1), (5, 2), (5, 2), (6, 2)):  # of four places each: 5 are more than a vector
        routed(layer, images)
        assert (len(checks), fast.paths(layer)[:9]) == (count, "C loops, ")
    layer.routing.iterations = 5 - layer.routing.iterations  # 3 or 2
    routed(layer, images)
    assert len(checks) == 3
    assert not any(selfcheck._failures.values())


def test_hooks_see_no_random_children() -> None:
    layer, seen = layer_of("em"), []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(len(output.poses)))
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0].poses)))
    layer.routing.softmax.register_forward_hook(lambda module, inputs, output: seen.append(output))
    layer.register_full_backward_hook(lambda module, before, after: seen.append(len(after[0])))
    layer.register_full_backward_pre_hook(lambda module, after: seen.append(len(after[0])))
    routed(layer)
    assert seen == [3, 3, 3, 3]
    assert not any(selfcheck._failures.values())


@pytest.mark.parametrize("fault", ["forward", "backward", "raises"])
@pytest.mark.parametrize("name", ROUTINGS)
def test_a_fault_ends_in_the_references_numbers(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module, forward, backward = OPERATIONS[name]
    operation = backward if fault == "backward" else forward
    planted = (
        raising(MemoryError("out of shared memory"))
        if fault == "raises"
        else wrong(getattr(module, operation), lambda *_: True)
    )
    monkeypatch.setattr(module, operation, planted)
    layer = layer_of(name)
    with caplog.at_level(logging.WARNING, "capsexp"):
        found = routed(layer)
        routed(layer)
    assert all(torch.equal(one, other) for one, other in zip(found, reference(layer), strict=True))
    assert fast.paths(layer) == "stored votes"
    (line,) = caplog.messages
    assert [*selfcheck._failures.values()] == [line]
    assert "no fast path" in line
    assert ("out of shared memory" if fault == "raises" else "numbers differ from the reference's by") in line


@pytest.mark.parametrize("fault", ["image behind a vector", "third iteration"])
def test_a_fault_that_begins_late_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def planted(of: loops.LanesLoops, queries: Tensor | None) -> Tensor:
        total = loops.dynamic_forward(of, queries)
        calls.append(queries is None)
        if fault == "third iteration":
            total *= 1 if True in calls[-2:] else 1.001
        else:
            total[16:17] *= 1.001
        return total

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(dynamic, "dynamic_forward", planted)
    layer = LinearCapsules(9, 5, 4, 4, DynamicRouting(iterations=5))
    fast.enable(layer)
    layer(Capsules(torch.randn(40, 9, 4)))
    (why,) = selfcheck._failures.values()
    assert why is not None


def test_a_fault_of_one_shape_is_found_at_that_shape(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inverted, "inverted_forward", wrong(loops.inverted_forward, lambda of, _: of.sizes[0] == 5))
    layer = layer_of("inverted")
    torch.manual_seed(1)
    layer(Capsules(torch.randn(3, 7, 7, 3, 4)))
    assert fast.paths(layer).startswith("C loops, ")
    assert caplog.messages == []
    found = routed(layer)
    assert fast.paths(layer) == "stored votes"
    assert all(torch.equal(one, other) for one, other in zip(found, reference(layer), strict=True))


def test_a_check_changes_no_parameter_no_random_number_and_works_in_evaluation() -> None:
    layer = layer_of("em").eval()
    before, state = copy.deepcopy(layer.state_dict()), torch.get_rng_state()
    children = Capsules(torch.randn(3, 5, 5, 3, 4), torch.rand(3, 5, 5, 3))
    torch.set_rng_state(state)
    with torch.inference_mode():
        layer(children)
    assert [*selfcheck._failures.values()] == [None]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_a_device_that_can_not_go_on_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned = RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
    monkeypatch.setattr(inverted, "inverted_forward", raising(poisoned))
    with pytest.raises(RunError, match=r"illegal memory access.*trainer\.routing=reference"):
        routed(layer_of("inverted"))

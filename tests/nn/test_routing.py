"""The contract of routing procedures, with procedures that are not part of the package."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
import torch
from annotated_types import Ge
from support import composed_config
from torch import Tensor, nn

from capsexp.config.checks import Component
from capsexp.config.searchpath import CONF
from capsexp.models import CapsNet, DACapsNet, EfficientCapsNet, EMCapsNet, HuangCNN, TsaiMultiCNN
from capsexp.nn import (
    AttentionOptions,
    AxisAttention,
    CapsuleLayer,
    Capsules,
    ConvCapsules,
    Hierarchy,
    LinearCapsules,
    Routing,
    TransformationMatrices,
    squash,
)
from capsexp.routing import NAMES, DynamicRouting, EMRouting, InvertedRouting, SelfAttentionRouting, SelfRouting
from capsexp.run.build import build


class MeanRouting(Routing):
    """Parents are the means of their votes; only what the contract requires."""

    presence = "pose"

    def __init__(self, parents: int, pose: int, *, iterations: Annotated[int, Ge(1)] = 1) -> None:
        super().__init__()
        self.iterations = iterations

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        coefficients = self.softmax(votes.new_zeros(votes.shape[:-1]))
        return Capsules(torch.einsum("...ij,...ijd->...jd", coefficients, votes))


class ConcurrentMeanRouting(MeanRouting):
    """The mean of the parents' previous poses and their votes' mean."""

    concurrent = True

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        mean = super().forward(votes)
        return mean if parents is None else Capsules((parents + mean.poses) / 2)


class SquashingRouting(MeanRouting):
    """Means, squashed with the network's constant."""

    presence = "length"

    def __init__(self, parents: int, pose: int, squash_constant: float, *, iterations: int = 1) -> None:
        super().__init__(parents, pose, iterations=iterations)
        self.squash_constant = squash_constant

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        return Capsules(squash(super().forward(votes).poses, self.squash_constant))


class DerivedRouting(SquashingRouting):
    """Takes its parent's arguments by **keys."""

    def __init__(self, *given: Any, **keys: Any) -> None:
        super().__init__(*given, **keys)


def network(model: str, procedure: type[Routing], **options: Any) -> nn.Module:
    """A small network with the procedure in all layers."""
    config = composed_config(f"model={model}", "data=mnist_sample", "model.width=0.1", "data.classes=2")
    return build(
        dataclasses.replace(config, routing=Component("mine", f"{__name__}.{procedure.__name__}", options))
    ).network.double()


@pytest.mark.parametrize("model", ["capsnet", "da_capsnet", "inverted_capsnet"])
@pytest.mark.parametrize("procedure", [MeanRouting, ConcurrentMeanRouting, SquashingRouting])
def test_every_network_takes_any_procedure(model: str, procedure: type[Routing]) -> None:
    made = network(model, procedure, iterations=2)
    scores, poses = made(torch.rand(3, 1, 28, 28, dtype=torch.float64))
    assert scores.shape == (3, 2)
    (scores.square().sum() + poses.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_votes_are_computed_again_only_for_children_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network("inverted_capsnet", ConcurrentMeanRouting, iterations=3)
    calls = []
    for number, layer in enumerate(made.classes.layers):
        votes = layer.votes
        monkeypatch.setattr(
            layer, "votes", lambda children, number=number, votes=votes: calls.append(number) or votes(children)
        )
    made(torch.rand(3, 1, 28, 28, dtype=torch.float64))
    assert calls == [0, 1, 2, 2]  # in the second iteration none; in the third only the class capsules are routed


class SizedRouting(MeanRouting):
    """Keeps the numbers that it names."""

    def __init__(self, pose: int, children: int, child_pose: int, parents: int) -> None:
        super().__init__(parents, pose)
        self.sizes = children, parents, child_pose, pose


@pytest.mark.parametrize("model", ["capsnet", "da_capsnet", "dynamic_capsnet", "em_capsnet", "inverted_capsnet"])
def test_a_procedure_is_given_the_numbers_that_it_names(model: str) -> None:
    made = network(model, SizedRouting)
    layers = [module for module in made.modules() if isinstance(module, CapsuleLayer)]
    read: list[Any] = []
    for layer in layers:
        layer.routing.register_forward_hook(lambda module, votes, _: read.append((module.sizes, votes[0].shape)))
    made(torch.rand(2, 1, 28, 28, dtype=torch.float64))
    assert len(read) == len(layers)
    for ((children, parents, child_pose, pose), shape), layer in zip(read, layers, strict=True):
        assert shape[-3:] == (children, parents, pose)
        assert child_pose == (pose if layer.matrices.matrix else layer.matrices.weight.shape[-1])


@pytest.mark.parametrize("kind", [CapsNet, DACapsNet])
def test_networks_give_their_squash_constant_to_routing_and_primary_capsules(kind: type[nn.Module]) -> None:
    made = kind((1, 28, 28), 2, DerivedRouting, width=0.1, squash_constant=0.25)
    assert made.classes.routing.squash_constant == 0.25
    if kind is CapsNet:
        assert made.primary.squash_constant == 0.25


CHILDREN, OPTIONS = Capsules(torch.rand(2, 3, 4), torch.rand(2, 3)), AttentionOptions(caps=True)


def layer(routing: Routing, *sizes: int, **options: Any) -> LinearCapsules:
    return LinearCapsules(*(sizes or (3, 2, 4, 4)), routing, **options)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: layer(EMRouting(parents=1)), "EMRouting: parents=1, in a layer of parents=2"),
        (lambda: layer(SelfAttentionRouting(children=1, parents=2)), "children=1, in a layer of children=3"),
        (lambda: layer(SelfRouting(children=3, parents=2, child_pose=1)), "child_pose=1, in a layer of child_pose=4"),
        (lambda: layer(InvertedRouting(parents=2, pose=5)), "pose=5, in a layer of pose=4"),
        (lambda: layer(DynamicRouting(), 3, 0, 4, 4), "parents=0: must be at least 1"),
        (lambda: ConvCapsules(3, 2, 4, 4, 3, 1, DynamicRouting(), padding=-1), "padding=-1: must be at least 0"),
        (lambda: layer(DynamicRouting())(CHILDREN.poses), "children must be Capsules.*, not Tensor"),
        (lambda: Hierarchy([layer(InvertedRouting(parents=2, pose=4)), layer(DynamicRouting())]), "all alike; concurr"),
        (lambda: CapsNet((1, 28, 28), 10, width=0), "width=0: must be above 0 and at most 1"),
        (lambda: HuangCNN((1, 28, 28), 10, width=2.0), "width=2.0: must be above 0 and at most 1"),
        (lambda: CapsNet((1, 28, 28), 10, "e", width=0.1), "routing=e: must be one of dynamic, em, inverted, self, "),
        (lambda: CapsNet((1, 28, 28), 10, DynamicRouting(), width=0.1), "must be a class of capsexp.routing"),
        (lambda: CapsNet((1, 28, 28), 10, attention={"cbam": True}, width=0.1), r"must be capsexp.nn.AttentionOptions"),
        (lambda: HuangCNN((1, 28, 28), 10, DynamicRouting), "must be capsexp.nn.AttentionOptions"),
        (lambda: CapsNet((1, 28, 28), 10, "self", OPTIONS, width=0.1), "attention.caps=true: with this routing"),
        (lambda: CapsNet((1, 28, 28), 10, width=0.1)(torch.rand(1, 28, 28)), r"must be \[B, channels, H, W\]"),
        (lambda: EfficientCapsNet((1, 28, 28), 10, width=0.1)(torch.rand(1, 1, 36, 36)), "another size of images"),
        (lambda: layer(SelfAttentionRouting(children=6, parents=2), shared=True)(CHILDREN), "routes 6 children, not 3"),
        (lambda: MeanRouting(2, 4).iteration(*CHILDREN, None), "has no iteration"),
        (lambda: DynamicRouting(2, 4), "takes 1 positional argument"),
    ],
)
def test_what_makes_no_layer_or_network_is_one_line(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message) as raised:
        wrong()
    assert "\n" not in str(raised.value)


def test_names_of_procedures_are_those_of_the_configuration() -> None:
    configured = {path.stem: composed_config(f"routing={path.stem}").routing for path in (CONF / "routing").iterdir()}
    classes = {name: component.cls for name, component in configured.items() if name != "none"}
    assert classes == NAMES
    assert isinstance(CapsNet((1, 28, 28), 10, "em", width=0.1).classes.routing, EMRouting)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (partial(DynamicRouting, iterations=0), "iterations=0: must be at least 1"),
        (partial(EMRouting, parents=3, iterations=-1), "iterations=-1: must be at least 1"),
        (partial(DynamicRouting, logits="foo"), "logits=foo: must be one of accumulate, replace"),
        (partial(DynamicRouting, gradient="foo"), "gradient=foo: must be one of all, last, none"),
        (partial(EMRouting, parents=3, density="foo"), "density=foo: must be one of sum, mean"),
        (partial(InvertedRouting, parents=3, pose=4, order="foo"), "order=foo: must be one of concurrent, sequential"),
        (partial(TransformationMatrices, 1, 1, 4, 4, "foo"), "structure=foo: must be one of vector, matrix"),
        (partial(AxisAttention, "foo", 1, 1, 1), "axis=foo: must be one of pose, parents, children, votes, capsules"),
        (partial(EMCapsNet, (3, 32, 32), 10, backbone="foo"), "backbone=foo: must be one of simple, resnet"),
        (partial(HuangCNN, (3, 32, 32), 10, padding="foo"), "padding=foo: must be one of same, valid"),
        (partial(TsaiMultiCNN, (1, 36, 36), 10, head="foo"), "head=foo: must be one of pooled, connected"),
    ],
)
def test_options_that_do_not_exist_are_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        wrong()

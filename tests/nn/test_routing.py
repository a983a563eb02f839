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

from capsexp import models
from capsexp.config.checks import Component
from capsexp.config.searchpath import CONF
from capsexp.models import CapsNet, DACapsNet, EfficientCapsNet, EMCapsNet, HuangCNN, TsaiMultiCNN
from capsexp.nn import (
    AttentionOptions,
    AxisAttention,
    CapsuleLayer,
    Capsules,
    Hierarchy,
    LinearCapsules,
    Prediction,
    Routing,
    TransformationMatrices,
    losses,
    squash,
)
from capsexp.routing import NAMES, DynamicRouting, EMRouting, InvertedRouting, SelfAttentionRouting
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

    def __init__(self, parents: int, pose: int, squash_constant: float = 1.0, *, iterations: int = 1) -> None:
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


IMAGES, CHILDREN, CAPS = (1, 28, 28), Capsules(torch.rand(2, 3, 4), torch.rand(2, 3)), AttentionOptions(caps=True)
BOTH, CNNS = AttentionOptions(conv=True, caps=True), ("HuangCNN", "ResNet18", "SabourCNN", "TsaiCNN", "TsaiMultiCNN")
NO_CAPSULES = "attention.conv=true and attention.caps=true: this network has no capsules; it takes only attention.cbam"
LOSSES = ("BinaryCrossEntropy", "CrossEntropy", "Margin", "Spread")
PREDICTION = Prediction(torch.rand(2, 3), None), torch.tensor([0, 1])
NO_TENSOR = r"scores must be a tensor, not Prediction; of a network's output its \.scores"
WITH_ACTIVATIONS = (EMRouting(parents=2), InvertedRouting(parents=2, pose=4, activations=True))


def layer(routing: Routing, *sizes: int, **options: Any) -> LinearCapsules:
    return LinearCapsules(*(sizes or (3, 2, 4, 4)), routing, **options)


def on_grid(*grid: int, matrices: int = 4, shared: bool = False) -> object:
    return layer(DynamicRouting(), matrices, 5, 6, 7, shared=shared)(Capsules(torch.randn(1, *grid, 6)))


def routed(routing: str, **options: Any) -> nn.Module:
    return CapsNet(IMAGES, 10, routing, width=0.1, **options)


WRONG: list[tuple[str, Callable[..., object]]] = [
    ("EMRouting: parents=1, in a layer of parents=2", lambda: layer(EMRouting(parents=1))),
    ("children=1, in a layer of children=3", lambda: layer(SelfAttentionRouting(children=1, parents=2))),
    ("pose=5, in a layer of pose=4", lambda: layer(InvertedRouting(parents=2, pose=5))),
    ("parents=0: must be at least 1", lambda: layer(DynamicRouting(), 3, 0, 4, 4)),
    ("types_first=True: not with shared=True", lambda: layer(DynamicRouting(), shared=True, types_first=True)),
    ("poses are squares of one size", partial(TransformationMatrices, 3, 2, 15, 15, "matrix")),
    ("poses are squares of one size", partial(TransformationMatrices, 3, 2, 16, 9, "matrix")),
    ("children must be Capsules.*, not Tensor", lambda: layer(DynamicRouting())(CHILDREN.poses)),
    ("has matrices for 24 children, not for 4×6×4: .*shared=True", lambda: on_grid(4, 6, 4, matrices=24)),
    ("has matrices for 4 children, not for 8: .*shared=True", lambda: on_grid(8)),
    ("has matrices for 4 children, not for 3: ", lambda: on_grid(3)),
    ("has matrices for 4 children, not for 6: ", lambda: on_grid(6, shared=True)),
    ("routes 6 children, not 3", lambda: layer(SelfAttentionRouting(children=6, parents=2), shared=True)(CHILDREN)),
    ("alike; concur", lambda: Hierarchy([layer(InvertedRouting(parents=2, pose=4)), layer(DynamicRouting())])),
    ("width=0: must be above 0 and at most 1", lambda: CapsNet(IMAGES, 10, width=0)),
    ("width=2.0: must be above 0 and at most 1", lambda: HuangCNN(IMAGES, 10, width=2.0)),
    ("routing=e: must be one of dynamic, em, inverted, self_attention", lambda: routed("e")),
    ("must be a class of capsexp.routing", lambda: routed(DynamicRouting())),  # type: ignore[arg-type]
    ("must be capsexp.nn.AttentionOptions", lambda: routed("em", attention={"cbam": True})),
    ("must be capsexp.nn.AttentionOptions", lambda: HuangCNN(IMAGES, 10, DynamicRouting)),  # type: ignore[arg-type]
    *((NO_CAPSULES, partial(getattr(models, cnn), (3, 36, 36), 10, BOTH, width=0.1)) for cnn in CNNS),
    (r"images must be \[B, channels, H, W\]", lambda: routed("em")(torch.rand(IMAGES))),
    ("another size of images", lambda: EfficientCapsNet(IMAGES, 10, width=0.1)(torch.rand(1, 1, 36, 36))),
    *(("activations", partial(layer(routing), Capsules(CHILDREN.poses))) for routing in WITH_ACTIVATIONS),
    ("has no iteration", lambda: MeanRouting(2, 4).iteration(*CHILDREN, None)),
    ("takes 1 positional argument", lambda: DynamicRouting(2, 4)),  # type: ignore[misc]
    ("iterations=0: must be at least 1", partial(DynamicRouting, iterations=0)),
    ("iterations=-1: must be at least 1", partial(EMRouting, parents=3, iterations=-1)),
    ("logits=foo: must be one of accumulate, replace$", partial(DynamicRouting, logits="foo")),
    ("gradient=foo: must be one of all, last, none$", partial(DynamicRouting, gradient="foo")),
    ("density=foo: must be one of sum, mean$", partial(EMRouting, parents=3, density="foo")),
    ("order=foo: must be one of concurrent, sequential$", partial(InvertedRouting, parents=3, pose=4, order="foo")),
    ("structure=foo: must be one of vector, matrix$", partial(TransformationMatrices, 1, 1, 4, 4, "foo")),
    ("axis=foo: must be one of pose, parents, children, votes, capsules$", partial(AxisAttention, "foo", 1, 1, 1)),
    ("backbone=foo: must be one of simple, resnet$", partial(EMCapsNet, (3, 32, 32), 10, backbone="foo")),
    ("padding=foo: must be one of same, valid$", partial(HuangCNN, (3, 32, 32), 10, padding="foo")),
    ("head=foo: must be one of pooled, connected$", partial(TsaiMultiCNN, (1, 36, 36), 10, head="foo")),
    *((NO_TENSOR, partial(getattr(losses, f"{loss}Loss")(), *PREDICTION)) for loss in LOSSES),
]


@pytest.mark.parametrize(("message", "wrong"), WRONG)
def test_what_makes_no_layer_network_or_loss_is_one_line(message: str, wrong: Callable[..., object]) -> None:
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message) as raised:
        wrong()
    assert "\n" not in str(raised.value)


def test_names_of_procedures_are_those_of_the_configuration() -> None:
    configured = {path.stem: composed_config(f"routing={path.stem}").routing for path in (CONF / "routing").iterdir()}
    classes = {name: component.cls for name, component in configured.items() if name != "none"}
    assert classes == NAMES
    assert isinstance(CapsNet((1, 28, 28), 10, "em", width=0.1).classes.routing, EMRouting)

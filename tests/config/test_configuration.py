"""Every file of every group makes a valid configuration, of which network, loss and optimiser can be built."""

import dataclasses
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from support import composed_config, differentiated, refused

from capsexp.config import checks
from capsexp.config.checks import Component
from capsexp.config.schema import without_effect
from capsexp.config.searchpath import CONF
from capsexp.errors import InputError
from capsexp.models import CapsNet
from capsexp.run import keys
from capsexp.run.build import build, make_loss
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import make_optimizer, make_schedule
from capsexp.run.plan import plan

GROUPS = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name not in ("hydra", "study"))
CHOICES = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
CHOICES = [one for one in CHOICES if one not in (("data", "folder"), ("data", "idx"))]  # need data.path: tests/data
SMALL = ("data=mnist_sample", "budget.width=0.04", "trainer.accelerator=cpu")


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_can_be_built(group: str, name: str) -> None:
    small = [word for word in SMALL if not word.startswith(f"{group}=")]
    without_capsules = (group, name) == ("routing", "none")  # which a network without them brings
    config = composed_config(*small, "model=sabour_cnn" if without_capsules else f"{group}={name}")
    if group == "data":
        return  # its files may not be here: tests/data
    module = CapsuleModule(plan(config), build(config))
    optimizer = make_optimizer(module.parameters(), config.optim)
    assert optimizer.param_groups[0]["lr"] == config.optim.lr
    assert type(optimizer).__name__.lower() == config.optim.name
    loss = make_loss(config.loss, module.network)
    scores = module(torch.rand(2, 1, 28, 28)).scores
    assert loss(scores.float(), torch.tensor([1, 2])).isfinite()
    if config.optim.schedule == "steps":
        assert make_schedule(optimizer, config.optim, config.optim.epochs) is not None


def test_a_model_brings_its_papers_choices_and_the_command_line_takes_precedence() -> None:
    config = composed_config("model=da_capsnet", "data=cifar10")
    assert (config.attention.conv, config.attention.caps, config.attention.cbam) == (True, True, False)
    assert (config.optim.epochs, config.preprocess.shift, config.model.arguments["squash_constant"]) == (100, 0.1, 0.5)
    typed = composed_config("model=da_capsnet", "optim=jiao", "attention.conv=false", "preprocess=plain")
    assert (typed.attention.conv, typed.attention.caps) == (False, True)
    assert (typed.optim.epochs, typed.preprocess.shift) == (250, 0.0)
    assert composed_config("optim=jiao", "model=da_capsnet").optim.epochs == 250


class Derived(CapsNet):
    """Takes its parent's arguments by **keys."""

    def __init__(self, *given: Any, doubled: bool = False, **keys: Any) -> None:
        super().__init__(*given, **keys)
        self.doubled = doubled


def test_a_derived_class_takes_its_parents_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_target", lambda *_: None)
    config = composed_config(*SMALL)
    own = Component("own", f"{__name__}.Derived", {"doubled": True, "width": 0.04, "kernel": 7})
    checked = dataclasses.replace(config, model=checks.check_component(own, "model"))
    network = build(checked).network
    assert (network.doubled, network.convolution.kernel_size) == (True, (7, 7))
    identity = keys.identity(checked, "float32", None)["model"]
    assert identity == {"name": "own", "_target_": own.target, "doubled": True, "width": 0.04, "kernel": 7}
    unknown = dataclasses.replace(own, arguments={"kernl": 7})
    assert refused(checks.check_component, unknown, "model").startswith(
        "model.kernl: no such key; did you mean kernel?"
    )


@pytest.mark.parametrize(
    ("idle", "needed"),
    [
        ("optim.factor=0.5", "optim.schedule=exponential"),
        ("attention.cbam_reduction=8", "attention=cbam"),
        ("attention.cbam_kernel=3", "attention=cbam"),
        ("preprocess.fill=nearest", "preprocess.shift=0.1"),
        ("preprocess.fill=nearest", "preprocess.rotate=30"),
        ("preprocess.fill=nearest", "preprocess.squeeze=0.1"),
        ("preprocess.flip=true", "data.flips=true"),
        ("data.flips=true", "preprocess.flip=true"),
        ("data.mean=[0.3]", "preprocess.normalize=true"),
        ("reconstruction.weight=0.1", "reconstruction.enabled=true"),
        ("reconstruction.last_activation=tanh", "reconstruction.enabled=true"),
        ("optim.plateau_of=test_accuracy", "optim.schedule=plateau"),
        ("routing.logits=replace", "routing.iterations=2"),
        ("routing.gradient=last", "routing.iterations=2"),
    ],
)
def test_options_without_effect_are_named(idle: str, needed: str) -> None:
    plain = ["optim.schedule=constant", "attention=none", "preprocess=plain", "routing.iterations=1", idle]
    (line,) = without_effect(composed_config(*plain), plain)
    assert line.startswith(f"{idle}: no effect without ")
    assert without_effect(composed_config(*plain, *needed.split()), [*plain, *needed.split()]) == []


def others(annotation: Any, value: Any) -> list[Any]:
    """Other values that an argument may have."""
    kinds = [annotation, *get_args(annotation)]
    if type(value) is bool:
        return [not value]
    if Literal in map(get_origin, kinds):
        return [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind) if choice != value]
    return [2 * value or 0.5] if type(value) in (int, float) else []


@pytest.mark.parametrize(
    "words",
    [
        "model=capsnet",
        "model=da_capsnet",
        "model=dynamic_capsnet",
        "model=em_capsnet",
        "model=inverted_capsnet routing.iterations=1",
        "model=inverted_capsnet model.backbone=resnet",
    ],
)
def test_an_option_has_an_effect_or_a_line_says_that_it_has_none(words: str) -> None:
    plain = ["data=mnist_sample", "budget.width=0.05", *words.split()]
    config = composed_config(*plain)
    _, expected = differentiated(*plain)
    for group, component in (("model", config.model), ("routing", config.routing)):
        for name, parameter in checks.parameters(component.cls).items():
            value = component.arguments.get(name, parameter.default)
            for other in others(parameter.annotation, value) if parameter.kind is parameter.KEYWORD_ONLY else []:
                typed = f"++{group}.{name}={checks.shown(other)}"
                changed = [*(word for word in plain if checks.typed_key(word) != f"{group}.{name}"), typed]
                with suppress(InputError):
                    _, results = differentiated(*changed)
                    equal = len(results) == len(expected) and all(
                        a.shape == b.shape and torch.equal(a, b) for a, b in zip(results, expected, strict=True)
                    )
                    assert bool(without_effect(composed_config(*changed), [typed])) == equal, typed


def test_no_gradient_through_the_routing_has_an_effect_in_one_iteration() -> None:
    words = ["routing.iterations=1", "routing.gradient=none"]
    assert without_effect(composed_config(*words), words) == []

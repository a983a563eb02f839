"""What assemble composes is what Hydra composes, to the order of the keys; everything else it leaves to Hydra."""

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from test_configuration import GROUPS

from capsexp.config.assemble import assembled
from capsexp.config.compose import by_hydra, composed, plain
from capsexp.config.searchpath import CONF, choices
from capsexp.errors import InputError
from capsexp.study import studies

CHOICES = {group: list(choices(group)) for group in GROUPS if group != "logger"}


def assert_same(overrides: Sequence[str]) -> None:
    ours, hydras = assembled((CONF,), list(overrides)), by_hydra(overrides)
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(hydras)
    assert plain(ours) == plain(hydras)


def assert_left_to_hydra(conf: Path, overrides: list[str]) -> None:
    try:
        assembled((conf,), overrides)
    except Exception:
        return
    pytest.fail("assembled")


@pytest.mark.parametrize("model", CHOICES["model"])
def test_a_models_own_choices(model: str) -> None:
    assert_same([f"model={model}"])


@pytest.mark.parametrize("number", range(max(map(len, CHOICES.values()))))
def test_every_choice_of_every_group(number: int) -> None:
    assert_same([f"{group}={next(islice(cycle(names), number, None))}" for group, names in CHOICES.items()])


def test_every_form_of_a_value() -> None:
    values = [
        "optim.lr=1e-3",
        "optim.name=sgd",
        "optim.milestones=[1,2]",
        "optim.epochs=null",
        "optim.weight_decay=${optim.lr}",
        "data.mean=[]",
        "data.synthesis={shear: 0.5}",
        "data.root='a, b'",
        'data.versions.published.note="${data.name}: \\"x\\""',
        "trainer.deterministic=True",
        "trainer.threads='3'",
        "paths.logs=${paths.results}/of ${oc.env:HOME}",
        "protocol=",
        "seed=1",
        "seed=2",
    ]
    assert_same(["data=affine_mnist", "model=da_capsnet", *values])


@pytest.mark.slow
def test_every_run_of_every_study() -> None:
    commands = {words for name in studies.names() for row in studies.load(name).rows for words in row.combinations()}
    assert len(commands) > 100
    for words in commands:
        assert_same(words)


def test_a_caller_may_change_what_it_gets() -> None:
    first = composed(["optim.lr=0.5"])
    first["optim"]["milestones"].append(3)
    first["model"].clear()
    assert composed(["optim.lr=0.5"]) == plain(by_hydra(["optim.lr=0.5"]))


@pytest.mark.parametrize(
    "overrides",
    [
        ["+data.synthesis={name: affine_mnist, _target_: capsexp.data.synthesis.AffineMNIST}"],
        ["++seed=3"],
        ["~rerun"],
        ["preprocess={flip: true}"],
        ["hydra/sweeper=basic"],
        ["model=resnet18", "model=capsnet"],
    ],
    ids=" ".join,
)
def test_what_only_hydra_can_compose(overrides: list[str]) -> None:
    assert_left_to_hydra(CONF, overrides)
    assert composed(overrides) == plain(by_hydra(overrides))


@pytest.mark.parametrize(
    "override",
    ["model=capsnet,resnet18", "model.name=glob(*)", "model=x", "seeds=1", "optim.lr.x=1", "study=x", "data.root=???"],
)
def test_what_hydra_refuses(override: str) -> None:
    with pytest.raises(InputError):
        composed([override])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("config.yaml", "defaults: [_self_, a: x, b: y]"),
        ("config.yaml", "defaults: [a: x, b: y]"),
        ("config.yaml", "defaults: [a: x, b@c: y, _self_]"),
        ("a/x.yaml", "defaults: [override /b: z]"),  # composed already
        ("b/y.yaml", "defaults: [/a: x]"),
        ("b/y.yaml", "defaults: [a: x]"),  # of a group below b
        ("b/y.yaml", "defaults: [_self_, z]"),
        ("b/y.yaml", "defaults: [sub/z]"),
        ("b/y.yaml", "# @package c\nk: 1"),
    ],
)
def test_files_that_only_hydra_can_compose(changed: str, text: str, tmp_path: Path) -> None:
    files = {"config.yaml": "defaults: [a: x, b: y, _self_]", "a/x.yaml": "k: 1", "b/y.yaml": "defaults: [z, _self_]"}
    for name, content in {**files, "b/z.yaml": "k: 2", "b/sub/z.yaml": "k: 3"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    usual = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-usual"))
    assert assembled((usual,), []) == {"a": {"k": 1}, "b": {"k": 2}}
    (usual / changed).write_text(text)
    unusual = usual.rename(tmp_path)  # under another name: files are read once
    assert_left_to_hydra(unusual, [])

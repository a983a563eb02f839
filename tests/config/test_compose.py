"""Values that are set on top of composed choices give what Hydra gives for the whole command line."""

from collections.abc import Sequence

import pytest
from hydra import compose, initialize_config_dir

from capsexp.config.compose import by_hydra, composed, plain
from capsexp.config.searchpath import CONF
from capsexp.errors import InputError
from capsexp.study import studies


def assert_same(overrides: Sequence[str]) -> None:
    assert composed(list(overrides)) == plain(by_hydra(overrides))


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


def test_hydra_goes_on_for_a_caller_that_uses_it() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        by_hydra(["seed=3"])
        assert compose("config", ["seed=4"]).seed == 4


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
def test_more_than_choices_and_values(overrides: list[str]) -> None:
    assert_same(overrides)


@pytest.mark.parametrize(
    "override",
    ["model=capsnet,resnet18", "model.name=glob(*)", "model=x", "seeds=1", "optim.lr.x=1", "study=x", "data.root=???"],
)
def test_what_hydra_refuses(override: str) -> None:
    with pytest.raises(InputError):
        composed([override])

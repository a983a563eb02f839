"""Values that are set on top of composed choices give what Hydra gives for the whole command line."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from support import AFFINE

from capsexp.config.compose import by_hydra, composed, for_hydra, parsed, to_containers
from capsexp.config.schema import check
from capsexp.config.searchpath import CONF
from capsexp.errors import InputError
from capsexp.study import studies
from capsexp.study.selection import combination


def assert_same(overrides: Sequence[str]) -> None:
    assert composed(list(overrides)) == to_containers(by_hydra(overrides))


def test_every_form_of_a_value() -> None:
    typed = """optim.lr=1e-3 optim.name=sgd optim.milestones=[1,2] optim.epochs=null optim.weight_decay=${optim.lr}
    data.mean=[] trainer.deterministic=True trainer.threads='3' protocol= seed=1 seed=2 seed=1"""
    quoted = ["data.synthesis={shear: 0.5}", "data.root='a, b'", "paths.logs=${paths.results}/of ${oc.env:HOME}"]
    quoted.append('data.versions.published.note="${data.name}: \\"x\\""')
    assert_same(["data=affine_mnist", "model=da_capsnet", *typed.split(), *quoted])


#: Command lines of studies' rows in their settings, with choices of all groups, some of which change other groups.
OF_ROWS = [
    "trainer.precision=float32 model=capsnet data=mnist routing.iterations=1 attention=cbam",
    "budget=short budget.epochs=40 budget.train_images=4434 trainer.precision=bf16 model=da_capsnet data=svhn "
    "attention=dual routing.logits=replace",
    "budget=paper trainer.precision=bf16 model=da_capsnet data=coil20 optim=huang_coil20 attention=none "
    "data.classes=20 data.reader.test_fraction=0.3",
    "budget=short budget.epochs=5 budget.train_images=10000 budget.width=0.25 trainer.precision=float32 data=cifar10 "
    "model=inverted_capsnet loss=spread routing.iterations=2",
    "budget=smoke trainer=cpu model=resnet18 data=cifar100",
    "budget.epochs=8 model=sabour_cnn data=affine_mnist reconstruction.enabled=true protocol=heldout seed=3",
    "trainer=gpu routing=dynamic loss=cross_entropy preprocess=huang data=fashion_mnist logger=[csv]",
]


@pytest.mark.parametrize("line", OF_ROWS)
def test_the_configuration_of_a_row_is_hydras(line: str) -> None:
    assert_same(line.split())


@pytest.mark.slow
def test_every_run_of_every_study() -> None:
    every = [(study, setting) for name in studies.names() for study in [studies.load(name)]
             for setting in study.settings.values()]  # fmt: skip
    commands = {words for study, setting in every for row in study.rows for words in row.combinations(setting)}
    assert len(commands) > 200
    for words in commands:
        assert combination(words).config == check(to_containers(by_hydra(words)))


def test_hydra_goes_on_for_a_caller_that_uses_it() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        by_hydra(["seed=3"])
        assert compose("config", ["seed=4"]).seed == 4


def test_a_caller_may_change_what_it_gets() -> None:
    first = composed(["optim.lr=0.5"])
    first["optim"]["milestones"].append(3)
    first["model"].clear()
    assert composed(["optim.lr=0.5"]) == to_containers(by_hydra(["optim.lr=0.5"]))


@pytest.mark.parametrize(
    "overrides",
    [
        [AFFINE],
        ["++seed=3"],
        ["optim.lr=1", "++optim.lr=2"],
        ["~rerun"],
        ["preprocess={flip: true}"],
        ["hydra/sweeper=basic"],
        ["model=resnet18", "model=capsnet"],
        ["data=affine_mnist", "data=mnist"],
        ["data=svhn", "++data.title=digits"],
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


def test_paths_that_are_there_are_a_sweep_and_a_comma_in_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "odd, one"):
        Path(name).mkdir()
    for value, swept in (("one,two", True), ("'one','two'", True), ("choice(one,new)", True), ("odd, one", False)):
        override = parsed(for_hydra(f"data.path={value}"))
        assert override.is_sweep_override() == swept
    assert parsed(for_hydra("data.path=one,new")).value() == "one,new"

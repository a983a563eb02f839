"""Settings, and words typed behind a study's name: they select among its runs or replace words of them."""

import os
from pathlib import Path
from typing import Any

import made
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from made import CBAM, PLAIN, row, study
from support import Program, refused

from capsexp.config.compose import portable
from capsexp.config.schema import Config
from capsexp.config.searchpath import CONF
from capsexp.run import execute
from capsexp.study import studies
from capsexp.study.selection import Selection, combination, select
from capsexp.study.studies import Setting


def selected(selection: Selection) -> list[str]:
    """The commands of the runs in the first setting."""
    return [" ".join(run.overrides) for of_row in selection.blocks[0].runs.values() for run in of_row]


def names(selection: Selection) -> list[str]:
    """The settings."""
    return [block.name for block in selection.blocks]


#: Rows that differ in `attention` and in whether they have iterations; the last one can't be run.
MADE = study(
    row("A", "model=capsnet attention=none"),
    row("B", "model=capsnet attention=cbam routing.iterations=1,2"),
    row("C", None),
)


@pytest.mark.parametrize(
    ("typed", "runs"),
    [
        ([], ["attention=none", "attention=cbam routing.iterations=1", "attention=cbam routing.iterations=2"]),
        (["routing.iterations=2,3"], ["attention=cbam routing.iterations=2"]),
        (["attention=none,cbam", "routing.iterations=1"], ["attention=cbam routing.iterations=1"]),
        (["attention=none", "seed=0,1"], ["attention=none"]),
        (["attention=none", "optim.lr=1,2"], ["attention=none optim.lr=1", "attention=none optim.lr=2"]),
        (["attention=none", "budget=demo"], ["attention=none budget=demo"]),
    ],
)
def test_a_key_in_which_rows_differ_selects_and_any_other_is_added_or_replaced(
    typed: list[str], runs: list[str]
) -> None:
    for model in ("capsnet", "da_capsnet"):  # all rows have the first
        replaced = [] if model == "capsnet" else [f"model={model}"]
        assert selected(select(MADE, [*typed, *replaced])) == [f"model={model} {run}" for run in runs]


def test_a_key_of_settings_does_not_select() -> None:
    """Also where one row alone has it."""
    rows = [row("A", PLAIN), row("B", f"{CBAM} trainer.precision=float32"), row("C", f"{CBAM} budget.width=0.5")]
    for typed in ("trainer.precision=float32", "budget.width=0.5", "budget.epochs=7"):
        selection = select(study(*rows), [typed])
        assert (len(selected(selection)), selection.only, names(selection)) == (3, "", ["typed"])


def test_only_selected_rows_and_claims_about_them_are_left() -> None:
    left = select(studies.load("jiao_table2"), ["routing.iterations=3"])
    assert [row.name for row in left.study.rows] == ["CapsNet3", "CapsNet3_CBAM"]
    assert [claim for claim in left.study.claims if claim.untested is None] == []
    assert (left.only, names(left)) == ("routing.iterations=3", ["paper", "laptop"])
    whole = studies.load("huang_table2")
    assert [claim.text for claim in select(whole, ["data=svhn"]).study.claims] == [
        claim.text for claim in whole.claims if "SVHN" in claim.text or claim.untested
    ]


@pytest.mark.parametrize(
    ("name", "typed", "count"),
    [
        ("tsai_fig4_ablation", "routing.order=sequential", 4),
        ("tsai_fig4_ablation", "routing.iterations=1,2,3 budget.width=0.25", 13),
        ("huang_readings", "model.extra_convolution=true", 2),
        ("huang_readings", "model.caps_axis=children", 2),
        ("huang_readings", "data=cifar10", 3),
        ("jiao_table2", "data=fashion_mnist routing.iterations=3", 2),
        ("jiao_table2", "budget.width=0.5", 11),
    ],
)
def test_how_many_different_runs_are_left_of_a_study(name: str, typed: str, count: int) -> None:
    (block, *_) = select(studies.load(name), typed.split()).blocks
    assert len(block.configs) == len({run.trained for of_row in block.runs.values() for run in of_row}) == count


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("data=fashion_mnist", ["typed"]),
        ("optim.lr=0.5", ["typed"]),
        ("budget.width=0.25", ["typed"]),
        ("trainer.precision=bf16", ["typed"]),
        ("routing.iterations=2", ["paper", "laptop"]),
        ("data=mnist budget.epochs=250 trainer.precision=float32", ["paper", "laptop"]),
        ("trainer=cpu paths.logs=x data.root=y seed=3", ["paper", "laptop"]),
        ("protocol=heldout", ["typed"]),
        ("budget.test_images=null", ["paper"]),  # which is no longer the laptop's training
    ],
)
def test_words_that_change_what_is_trained_are_a_setting_and_others_leave_the_studys(
    typed: str, settings: list[str]
) -> None:
    assert names(select(studies.load("jiao_table2"), typed.split())) == settings


def test_a_typed_setting_has_the_words_as_its_title() -> None:
    (block,) = select(studies.load("huang_table2"), ["optim.lr=0.5", "trainer=cpu", "data=svhn"]).blocks
    assert (block.setting.title, block.setting.brief("svhn")) == ("optim.lr=0.5", "optim.lr=0.5")


def test_a_budget_is_a_setting_alone() -> None:
    (block,) = select(studies.load("huang_table4"), ["data=mnist"], "laptop").blocks
    assert (block.name, len(block.configs)) == ("laptop", 6)
    assert {config.budget.epochs for config in block.configs.values()} == {5}
    (typed,) = select(studies.load("huang_table4"), ["data=mnist", "optim.lr=0.5"], "laptop").blocks
    assert {config.budget.epochs for config in typed.configs.values()} == {5}
    assert typed.name == "typed"
    assert typed.setting.title == "--budget=laptop optim.lr=0.5"
    line = refused(lambda: select(study(laptop=None), [], "laptop"))
    assert line == "made_table1: declares no laptop setting"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("attention=conv", "attention=conv: no row of made_table1 has it, and its rows differ in it"),
        ("attention.cbam=true", "attention.cbam=true: makes A and B the same"),
        ("optim.lrr=1", "optim.lrr: no such key; did you mean lr?"),
        ("budget=shrt", "budget=shrt: no such choice; did you mean short?"),
    ],
)
def test_words_that_leave_nothing_to_compare_are_refused(typed: str, message: str) -> None:
    assert refused(lambda: select(study(), [typed])).startswith(message)


def test_rows_whose_runs_lack_the_typed_key_have_no_runs() -> None:
    inverted = "model=inverted_capsnet data=mnist routing.iterations=1,2"
    (block,) = select(study(row("A", PLAIN), row("B", inverted)), ["routing.norm=false"]).blocks
    assert {name: len(of_row) for name, of_row in block.runs.items()} == {"A": 0, "B": 2}
    assert block.name == "typed"


def test_an_unknown_word_of_a_setting_is_an_error_that_names_it() -> None:
    wrong = Setting("Two epochs", words="budget.epochz=2")
    line = "made_table1, A, laptop: budget.epochz: no such key; did you mean epochs?"
    assert refused(lambda: select(study(laptop=wrong))).startswith(line)
    assert refused(lambda: select(study(paper=wrong))).startswith(line.replace("laptop", "paper"))
    assert refused(lambda: select(study(laptop=wrong), ["optim.lr=0.5"], "laptop")).startswith(line)


# Sweeps


def sweeper_of(words: list[str]) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", words, return_hydra_config=True)
    sweeper = instantiate(config.hydra.sweeper)
    sweeper.config = config
    return sweeper


@pytest.mark.parametrize("name", ["tsai_fig4_ablation", "tsai_table1"])
def test_hydra_sweeps_over_the_selected_runs_and_seeds(name: str) -> None:
    typed = [f"+study={name}", "routing.iterations=1,2", "seed=0,1", "budget=glob(*mo*)"]
    sweeper = sweeper_of(typed[:1])
    overrides = OverridesParser.create(config_loader=Loader()).parse_overrides(typed)  # type: ignore[arg-type]
    batches = sweeper.split_arguments(overrides, 4)
    assert {len(batch) for batch in batches[:-1]} == {4}
    found = [" ".join(words) for batch in batches for words in batch]
    runs = selected(select(studies.load(name), ["routing.iterations=1,2", "budget=demo,smoke"]))
    assert found == list(dict.fromkeys(f"{run} seed={seed}" for run in runs for seed in (0, 1)))


def test_runs_that_a_launcher_starts_here_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)), raising=False)
    sweeper = sweeper_of([])
    parsed = OverridesParser.create().parse_overrides(["seed=0,1,2"])
    given = OverridesParser.create().parse_overrides(["seed=0,1", "trainer.threads=5"])
    for target, threads in (("x.LocalLauncher", ["trainer.threads=4"]), ("x.SlurmLauncher", [])):
        sweeper.config.hydra.launcher = {"_target_": target}
        both, last = sweeper.split_arguments(parsed, 2)
        assert both == [["seed=0", *threads], ["seed=1", *threads]]
        assert last == [["seed=2"]]
        assert sweeper.split_arguments(given, None) == [[[f"seed={seed}", "trainer.threads=5"] for seed in (0, 1)]]


class Loader:
    """Finds the budgets, as Hydra's own in a sweep."""

    def get_group_options(self, group: str, results_filter: object) -> list[str]:
        return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_a_study_is_a_sweep_without_m_and_its_runs_are_as_if_typed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    ran: list[tuple[Config, list[str]]] = []
    monkeypatch.setattr(execute, "run", lambda *given: ran.append(given) or made.run("model=capsnet data=mnist", 0))
    typed = ["data=mnist_sample", "budget=smoke", "routing.iterations=1", f"paths.logs={tmp_path}"]
    assert program("capsexp", "+study=jiao_table2", *typed)[0] == 0
    assert [" ".join(portable(words)) for _, words in ran] == [
        f"trainer.precision=float32 model=capsnet data=mnist_sample routing.iterations=1 attention={attention} "
        "budget=smoke"
        for attention in ("none", "cbam")
    ]
    for config, words in ran:
        alone = combination((*portable(words), typed[-1])).config
        assert config == alone

"""Words typed behind a study's name: they select among its runs or replace words of them, in every command alike."""

import os
from pathlib import Path

import made
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from made import row, study
from support import Program, refused

from capsexp.config.schema import Config
from capsexp.config.searchpath import CONF
from capsexp.run import execute
from capsexp.study import studies
from capsexp.study.selection import Selection, select
from capsexp.study.setting import Setting


def selected(selection: Selection) -> list[str]:
    """The commands of the runs that are left."""
    return [" ".join(run.overrides) for run in selection.runs if run.selected]


#: Rows that differ in `attention` and `n`; the last one can't be run.
MADE = study(
    row("A", "model=capsnet attention=none"),
    row("B", "model=capsnet attention=cbam n=1,2"),
    row("C", None),
)


@pytest.mark.parametrize(
    ("typed", "runs"),
    [
        ([], ["attention=none", "attention=cbam n=1", "attention=cbam n=2"]),
        (["n=2,3"], ["attention=cbam n=2"]),
        (["attention=none,cbam", "n=1"], ["attention=cbam n=1"]),
        (["attention=none", "seed=0,1"], ["attention=none"]),
        (["attention=none", "m=1,2"], ["attention=none m=1", "attention=none m=2"]),
        (["attention=none", "budget=demo"], ["attention=none budget=demo"]),
    ],
)
def test_a_key_in_which_rows_differ_selects_and_any_other_is_added(typed: list[str], runs: list[str]) -> None:
    assert selected(select(MADE, typed)) == [f"model=capsnet {run}" for run in runs]


def test_a_key_that_rows_have_in_common_is_replaced() -> None:
    assert selected(select(MADE, ["model=x", "attention=none"])) == ["model=x attention=none"]


def test_a_row_keeps_its_runs_that_are_not_selected() -> None:
    runs = select(MADE, ["n=2"]).runs
    assert [(run.row, run.selected) for run in runs] == [("B", False), ("B", True)]


def test_only_selected_rows_and_claims_about_them_are_left() -> None:
    left = select(studies.load("jiao_table2"), ["routing.iterations=3"]).study
    assert [row.name for row in left.rows] == ["CapsNet3", "CapsNet3_CBAM"]
    assert [claim for claim in left.claims if claim.untested is None] == []
    whole = studies.load("huang_table2")
    assert [claim.text for claim in select(whole, ["data=svhn"]).study.claims] == [
        claim.text for claim in whole.claims if "SVHN" in claim.text or claim.untested
    ]


@pytest.mark.parametrize(
    ("name", "typed", "count"),
    [
        ("tsai_fig4_ablation", "routing.order=sequential", 4),  # one iteration is the same in any order
        ("tsai_fig4_ablation", "routing.order=sequential routing.iterations=1,2,3", 2),
        ("tsai_fig4_ablation", "routing.iterations=1,2,3 budget.width=0.25", 13),
        ("huang_readings", "model.extra_convolution=true", 2),
        ("huang_readings", "model.caps_axis=children", 2),
        ("huang_readings", "data=cifar10", 3),
        ("jiao_table2", "data=fashion_mnist routing.iterations=3", 2),
        ("jiao_table2", "budget.width=0.5", 11),
    ],
)
def test_how_many_different_runs_are_left_of_a_study(name: str, typed: str, count: int) -> None:
    runs = [run for run in select(studies.load(name), typed.split()).runs if run.selected]
    assert len({run.overrides for run in runs}) == len({run.condition for run in runs}) == count


@pytest.mark.parametrize(
    ("typed", "replaces"),
    [
        ("data=fashion_mnist", True),
        ("optim.lr=0.5", True),
        ("routing.iterations=2", False),
        ("data=mnist", False),
        ("budget.width=0.25 protocol=heldout trainer=cpu paths.logs=x data.root=y seed=3", False),
    ],
)
def test_what_makes_it_another_experiment(typed: str, replaces: bool) -> None:
    assert select(studies.load("jiao_table2"), typed.split()).replaced == replaces


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        (
            "jiao_table2",
            "routing.iterations=9",
            "routing.iterations=9: no row of jiao_table2 has it, ",
        ),
        ("jiao_table2", "attention.cbam=true", "attention.cbam=true: makes CapsNet1 and CapsNet1_CBAM of jiao_table2 "),
        ("jiao_table2", "optim.lrr=1", "optim.lrr: no such key; did you mean lr?"),
        ("jiao_table2", "budget=shrt", "budget=shrt: no such choice; did you mean short?"),
    ],
)
def test_words_that_leave_nothing_to_compare_are_refused(name: str, typed: str, message: str) -> None:
    assert refused(lambda: select(studies.load(name), [typed]).replaced).startswith(message)


def test_rows_whose_runs_lack_the_typed_key_have_no_runs() -> None:
    selection = select(studies.load("tsai_fig4"), ["routing.norm=false"])
    assert selection.replaced
    assert {run.row.split()[0] for run in selection.runs if run.condition} == {"Inverted"}


def test_a_record_of_the_typed_setting_is_admitted() -> None:
    whole, half = (Setting.of(studies.identity(words)) for words in ((), HALF))
    for typed, admitted in (([], {whole, half}), (["budget.train_images=99"], {half}), (["budget.epochs=7"], set())):
        run = select(studies.load("jiao_table2"), typed).runs[0]
        assert {setting for setting in (whole, half) if run.admits(setting)} == admitted


HALF = ("budget.epochs=125", "budget.train_images=99", "budget.test_images=9", "budget.width=0.5")


# Sweeps


@pytest.mark.parametrize("name", ["tsai_fig4_ablation", "tsai_table1"])
def test_hydra_sweeps_over_the_selected_runs_and_seeds(name: str) -> None:
    typed = [f"+study={name}", "routing.iterations=1,2", "seed=0,1", "budget=glob(*mo*)"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", typed[:1], return_hydra_config=True)
    sweeper = instantiate(config.hydra.sweeper)
    sweeper.config = config
    overrides = OverridesParser.create(config_loader=Loader()).parse_overrides(typed)  # type: ignore[arg-type]
    batches = sweeper.split_arguments(overrides, 4)
    assert {len(batch) for batch in batches[:-1]} == {4}
    found = [" ".join(words) for batch in batches for words in batch]
    runs = selected(select(studies.load(name), ["routing.iterations=1,2", "budget=demo,smoke"]))
    assert found == list(dict.fromkeys(f"{run} seed={seed}" for run in runs for seed in (0, 1)))


def test_runs_that_a_launcher_starts_here_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)), raising=False)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", return_hydra_config=True)
    sweeper = instantiate(config.hydra.sweeper)
    parsed = OverridesParser.create().parse_overrides(["seed=0,1,2"])
    given = OverridesParser.create().parse_overrides(["seed=0,1", "trainer.threads=5"])
    for target, threads in (("x.LocalLauncher", ["trainer.threads=4"]), ("x.SlurmLauncher", [])):
        config.hydra.launcher = {"_target_": target}
        sweeper.config = config
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
    ran: list[tuple[Config, str]] = []
    monkeypatch.setattr(execute, "run", lambda *given: ran.append(given) or made.run("model=capsnet data=mnist", 0))
    typed = ["data=mnist_sample", "budget=smoke", "routing.iterations=1", f"paths.logs={tmp_path}"]
    assert program("capsexp", "+study=jiao_table2", *typed)[0] == 0
    assert [command for _, command in ran] == [
        f"python -m capsexp model=capsnet data=mnist_sample routing.iterations=1 attention={attention} budget=smoke"
        for attention in ("none", "cbam")
    ]
    for config, command in ran:
        alone = studies.config_of((*command.split()[3:], typed[-1]))
        assert config == alone

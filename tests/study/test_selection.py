"""Settings, and words typed behind a study's name: they select among its runs or replace words of them."""

import pytest
from made import CBAM, PLAIN, claim, row, study
from support import refused

from capsexp.study import studies
from capsexp.study.selection import Selection, select
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
    assert {(*map(tuple, claim.pairs), claim.counted) for claim in left.study.claims if claim.untested is None} == {
        (("CapsNet3", "CapsNet3_CBAM"), False)
    }
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
    assert len({run.trained for of_row in block.runs.values() for run in of_row}) == count


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        ("data=fashion_mnist", ["typed"]),
        ("optim.lr=0.5", ["typed"]),
        ("budget.width=0.25", ["typed"]),
        ("trainer.precision=bf16", ["typed"]),
        ("routing.iterations=2", ["paper", "laptop"]),
        ("data=mnist budget.epochs=250 trainer.precision=float32", ["paper", "laptop"]),
        ("trainer=cpu paths.logs=x data.root=y", ["paper", "laptop"]),
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
    assert block.setting.title == "optim.lr=0.5"


def test_a_budget_is_a_setting_alone() -> None:
    (block,) = select(studies.load("huang_table4"), ["data=mnist"], "laptop").blocks
    assert (block.name, sum(map(len, block.runs.values()))) == ("laptop", 6)
    assert {run.config.budget.epochs for of_row in block.runs.values() for run in of_row} == {5}
    (typed,) = select(studies.load("huang_table4"), ["data=mnist", "optim.lr=0.5"], "laptop").blocks
    assert {run.config.budget.epochs for of_row in typed.runs.values() for run in of_row} == {5}
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


def test_a_claim_that_compares_a_training_with_itself_is_refused() -> None:
    made = study(row("A", PLAIN), row("B", f"{PLAIN} routing.iterations=3"), claims=[claim()])
    assert refused(lambda: select(made)) == "made_table1: a claim compares A with B, which is the same training"


def test_a_choice_that_is_another_in_each_network_is_refused() -> None:
    networks = study(row("A", PLAIN), row("B", "model=em_capsnet data=mnist"))
    assert refused(lambda: select(networks, ["routing=inverted"])).startswith(
        "routing=inverted: each network here has its own routing;"
    )


def test_the_demo_is_no_study_of_a_source_and_has_no_verdicts() -> None:
    assert studies.DEMO not in studies.names()
    assert names(select(studies.load(studies.DEMO))) == ["typed"]


def test_a_row_is_a_study_of_its_own_by_the_name_that_its_page_has() -> None:
    (row,) = studies.load("jiao_table2:CapsNet3_CBAM").rows
    assert row.name == "CapsNet3_CBAM"
    names = ["jiao_table2:CapsNet3_CBAM", "jiao_level", "jiao_table2:CapsNet1"]
    loaded = [(one.name, [row.name for row in one.rows][:2]) for one in studies.load_all(names)]
    assert loaded == [("jiao_table2", ["CapsNet3_CBAM", "CapsNet1"]), ("jiao_level", ["CapsNet1", "CapsNet1_CBAM"])]
    for both in (["jiao_table2", "jiao_table2:CapsNet1"], ["jiao_table2:CapsNet1", "jiao_table2"]):
        assert studies.load_all(both)[0].claims == studies.load("jiao_table2").claims
    message = "CapsNet3_CBM: no such row of jiao_table2; did you mean CapsNet3_CBAM?"
    assert refused(lambda: studies.load("jiao_table2:CapsNet3_CBM")).startswith(message)


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

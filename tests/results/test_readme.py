"""The README: its generated block, every file of the configuration, links that lead somewhere."""

import re
from pathlib import Path

import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, row, runs, study
from support import ROOT

from capsexp.config.compose import CONF
from capsexp.results.collect import Results
from capsexp.results.page import Footnotes, Table
from capsexp.results.readme import BEGIN, END, block, position, short_table
from capsexp.study import studies
from capsexp.study.studies import Row

WHOLE = [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(CBAM, [99.8, 99.9, 99.99])]
SHORT = f"{CBAM} budget.epochs=2"


README = (ROOT / "README.md").read_text()


def table_of(made: Results, notes: Footnotes | None = None) -> Table:
    found = short_table(made, notes or Footnotes(made.runs.setting))
    assert found is not None
    return found


def test_the_block_has_a_line_a_study_and_tables_of_those_with_runs() -> None:
    ran = results(study(rows=[*study().rows, row("C", None)]), [*WHOLE, *runs(f"{PLAIN} budget.width=0.5", [9.0])])
    empty = results(study(name="made_table2", title="Another"), [])
    text = block([ran, empty], unassigned=4)
    lines = text.splitlines()
    assert lines[0].startswith("7 runs, 7 minutes on NVIDIA H200. 6 of them had the paper's whole training")
    assert lines[0].endswith(" Records of no study: 4.")
    assert "**made, Table 1**: A table. 7 runs, 7 minutes on NVIDIA H200." in lines
    assert text.count("**made, Table 1**") == 1  # not of the study without runs
    assert "<details><summary><b>made</b>: 7 runs, 7 minutes on NVIDIA H200.</summary>" in lines
    assert "<details><summary><b>What was run</b>, and what was not: 2 studies</summary>" in lines
    assert (
        "| [made_table1](results/tables/made_table1.md) | made, Table 1 | A table | 2 of 2 | 3 | whole in 2 "
        "| 2 reproduced, 1 published higher |"
    ) in lines
    assert "| [made_table2](results/tables/made_table2.md) | made, Table 1 | Another | 0 of 2 |  |  |  |" in lines
    assert "of no study" not in block([ran], unassigned=0)
    assert block([empty], unassigned=0).startswith("Nothing has been run yet.\n\n")


def test_without_a_column_to_lay_across_all_rows_stand_on_one_line() -> None:
    table = table_of(results(study(), WHOLE))
    assert table.columns == ["", "A", "B"]
    assert table.rows == [
        ["maximum %", "99.80 → 99.80 ± 0.10 (3)", "99.90 → 99.90 ± 0.10 (3)"],
        ["first epoch", "7 → 1.0 ± 0.0 (3)", "→ 1.0 ± 0.0 (3)"],
    ]


def test_the_labels_of_a_column_are_laid_across() -> None:
    rows = [
        Row(["Net A", "A"], PLAIN, {"accuracy": "99.70999908"}),
        Row(["Net B", "B"], CBAM, {"accuracy": "99.9"}),
        Row(["Big net A", "A"], SWEPT, {"accuracy": "not reported"}),
    ]
    made = results(
        study(*rows, columns=["network", "data"], across="data", measures=["accuracy"]),
        [*runs(PLAIN, [99.0]), *runs(SHORT, [8.0])],
    )
    notes = Footnotes(made.runs.setting)
    table = table_of(made, notes)
    assert table.columns == ["", "A", "B"]
    assert table.rows == [
        ["Net", "99.71 → 99.00 (1)", "99.9 → 8.00 (1) [a]"],
        ["Big net", "→ 99.00 (1) [b]", ""],
    ]
    assert notes.texts() == [
        "Unmarked: the paper's whole training, bf16",
        "[a] 2 of 250 epochs, bf16",
        "[b] best of 1 of 3 (routing.iterations=1,2,3), selected on the test set",
    ]


@pytest.mark.parametrize(("measure", "printed"), [("memory", "not in our copy"), ("accuracy", "not reported")])
def test_a_study_whose_source_prints_no_accuracies_has_no_short_table(measure: str, printed: str) -> None:
    made = results(study(row("A", PLAIN, **{measure: printed}), measures=[measure]), runs(PLAIN, [9.0]))
    assert short_table(made, Footnotes([])) is None


def test_numbers_that_our_copy_has_lost_are_left_out() -> None:
    rows = [row(name, words, accuracy="not in our copy") for name, words in (("A", PLAIN), ("B", CBAM))]
    made = results(study(*rows, measures=["accuracy"]), runs(PLAIN, [9.0]))
    table = table_of(made)
    assert (table.columns, table.rows) == (["", "A"], [["maximum %", "→ 9.00 (1)"]])


def test_claims_with_runs_are_listed_once() -> None:
    words = 'B is better (as the source says (in a footnote), "by far")'
    claims = [claim(text=words, claimed="+0.10"), claim(pairs=[["A", "C"]])]
    made = [
        results(study(name=name, claims=claims, rows=[*study().rows, row("C", None)], source=source), WHOLE)
        for name, source in (("one", "made, Table 1"), ("two", "made, Table 2"), ("three", "other, Table 1"))
    ]
    text = block(made, 0)
    listed = re.findall(r"^\| \[(\w+)\]\(results/tables/\w+\.md\) \| (B is better .*) \|$", text, re.MULTILINE)
    assert [name for name, _ in listed] == ["one", "three"]
    for _, rest in listed:
        assert re.fullmatch(r"B is better \| \+0\.10 points \| \+0\.10 ± \d\.\d\d points .* \| confirmed", rest)
    counts = "Claims with runs: 2 confirmed; without: 2."
    assert text.splitlines()[2] == (
        f"Published accuracies and epochs with runs: 4 reproduced, 2 published higher. {counts}"
    )


def test_claims_with_few_seeds_are_folded() -> None:
    made = [
        results(study(name="one", claims=[claim()], source="made, Table 1"), WHOLE),
        results(
            study(name="two", claims=[claim(), claim(text="B is better by far")], source="other, Table 1"), WHOLE[:4]
        ),
        results(study(name="three", source="third, Table 1"), []),
    ]
    text = block(made, 0)
    visible, *folds = text.split("<details><summary>")
    assert "| [one](results/tables/one.md) | B is better |" in visible
    assert "[two]" not in visible
    assert [fold.partition(":")[0] for fold in folds] == [
        "<b>made</b>",
        "<b>other</b>",
        "<b>What was run</b>, and what was not",
    ]
    assert "Claims with" not in folds[0]
    assert folds[1].startswith("<b>other</b>: 4 runs, 4 minutes on NVIDIA H200.</summary>")
    assert "Claims with fewer than 3 seeds:" in folds[1]
    assert folds[1].count("| [two](results/tables/two.md) |") == 2
    assert text.count("</details>") == 3
    assert "Claims with 3 seeds or more" not in block(made[1:], 0)


def test_footnotes_mean_the_same_in_all_tables() -> None:
    made = [results(study(name=name), [*WHOLE[:3], *runs(SHORT, [8.0])]) for name in ("one", "two")]
    text = block(made, 0)
    assert text.count("99.90 → 8.00 (1) [a]") == 2
    assert text.count("[a] 2 of 250 epochs, bf16") == 1


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("huang, Fig. 10, in the words of it", "huang, Fig. 10, in the words of it"),
        ('ou, "Routing v.s. Backpropagation"; more', 'ou, "Routing v.s. Backpropagation"'),
        ("huang, Table 2 (its curves are Figs. 11 to 13)", "huang, Table 2"),
        ("tsai, Fig. 4, bottom right. The numbers are only drawn.", "tsai, Fig. 4, bottom right"),
    ],
)
def test_a_source_is_shortened(source: str, short: str) -> None:
    assert f") | {short} | A table |" in block([results(study(source=source), [])], 0)


@pytest.mark.parametrize("name", studies.names())
def test_every_row_of_a_study_has_its_own_place(name: str) -> None:
    found = studies.load(name)
    assert len({position(found, one) for one in found.rows}) == len(found.rows)


# The README and docs/


def test_every_file_of_the_configuration_is_in_the_picture_of_it() -> None:
    words = re.findall(r"[\w-]+", (ROOT / "docs" / "configuration.md").read_text())
    elsewhere = ("hydra", "study")  # the studies are in results/README.md
    groups = [folder for folder in CONF.iterdir() if folder.is_dir() and folder.name not in elsewhere]
    for path in (path for group in groups for path in group.glob("*.yaml")):
        assert path.stem in words, f"{path.relative_to(CONF)} is missing in docs/configuration.md"


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")], ids=str)
def test_every_link_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200
    assert len(README.encode()) <= 14_000
    assert README.count(BEGIN) == README.count(END) == 1

"""results/README.md and the README's block; the README and docs/ as they are."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from made import CBAM, PLAIN, SHORT, claim, row, run, runs, study
from support import ROOT

from capsexp.config.searchpath import CONF
from capsexp.errors import InputError
from capsexp.results import questions
from capsexp.results.runs import run_of
from capsexp.results.study import StudyResults, measure
from capsexp.run.records import Record
from capsexp.study.studies import Claim, Setting, Study
from capsexp.tables.index import BEGIN, END, filled, index

LOW, HIGH = [98.9, 99.0, 99.1], [99.4, 99.5, 99.6]
GAIN = [*runs(PLAIN, LOW), *runs(CBAM, HIGH)]
FASHION = [one.replace("mnist", "fashion_mnist") for one in (PLAIN, CBAM)]
ASKED = claim(claimed="+1.00", question="CBAM raises accuracy on MNIST")
README = (ROOT / "README.md").read_text()


def several(*made: Study, found: Sequence[Record] = GAIN) -> list[StudyResults]:
    return measure(made, [*map(run_of, found)])


def lines(text: str) -> list[list[str]]:
    """The cells of the tables' rows, with common spaces."""
    rows = [line[1:-1] for line in text.replace("\N{NO-BREAK SPACE}", " ").splitlines() if line.startswith("|")]
    return [[cell.rstrip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]


def block(measured: Sequence[StudyResults], folder: Path) -> str:
    """The README's block."""
    (folder / "README.md").write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", encoding="utf-8")
    text = filled(folder / "README.md", measured)
    assert text.startswith(f"before\n{BEGIN}\n\n")
    assert text.endswith(f"\n\n{END}\nafter\n")
    assert "stale" not in text
    return text


def test_the_index_has_a_part_for_each_source_the_best_known_first() -> None:
    first = study(claims=[claim(), claim(text="Wrong", claimed="decrease"), Claim("Nobody", untested="No network.")])
    second = study(name="made_table2", claims=[claim()])  # the same claim again
    other = study(name="a_table1", source="a", title="Another?", claims=[claim(pairs=[["A", "C"]])])
    other = dataclasses.replace(other, rows=[*other.rows, row("C", f"{CBAM} routing.iterations=1")])
    text = index(several(other, first, second), unassigned=4)
    assert text.split("\n\n")[2] == "**Trained in full: 1 claim holds, 1 doesn't.** Not tried: 2."
    assert re.findall("^## (.+)\n\n(.+)", text, re.M) == [
        ("made", "**Trained in full: 1 claim holds, 1 doesn't.** Not tried: 1."),
        ("a", "**Not tried: 1.**"),
    ]
    answer = "In part: B is better (+0.50 points); “Wrong” doesn't hold (+0.50 points)."
    assert ["[A table](tables/made_table1.md)", "Table 1", answer] in lines(text)
    unknown = "Not known: 2 of 3 rows trained, which no claim compares."
    assert ["[Another?](tables/a_table1.md)", "Table 1", unknown] in lines(text)
    assert "In these tables: 6 runs, 6 minutes; 4 records of other trainings, which capsexp compare reads." in text
    assert "In these tables: no runs. All" in index(several(other, found=[]), unassigned=0)


def test_a_claim_that_is_a_reading_of_ours_is_not_counted() -> None:
    made = several(study(claims=[claim(), claim(text="Read otherwise", claimed="decrease", counted=False)]))
    assert len(questions.distinct(made)) == 1
    longer = Setting("5 epochs of 500 images", words="budget.epochs=5 budget.train_images=500")
    for other, count in (({"source": "two"}, 1), ({"paper": longer}, 2), ({"name": "made_table2"}, 1)):
        made = several(study(claims=[claim()]), study(claims=[claim()], **other))
        assert len(questions.distinct(made)) == count
    sized, other = study(claims=[claim(claimed="+0.5")]), study(claims=[claim(claimed="decrease")], source="two")
    assert [len(questions.distinct(several(sized, one))) for one in (study(claims=[claim()], source="two"), other)] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("changed", "found", "line"),
    [
        ({}, GAIN, ["**holds**, half as much", "+1.00", "**+0.50** (+0.25 to +0.75)"]),
        ({"claimed": "decrease"}, GAIN, ["**doesn't hold**", "a decrease, +0.10", "**+0.50** (+0.25 to +0.75)"]),
        ({}, [*runs(f"{PLAIN} {SHORT}", LOW), *runs(f"{CBAM} {SHORT}", HIGH)], ["**holds**, so far", "+1.00",
            "**+0.50** (+0.25 to +0.75)"]),
        ({}, GAIN[::3], ["open: one run of A, B", "+1.00", "+0.50"]),
        ({"claimed": "+0.14"}, [*GAIN[:3], *runs(CBAM, [99.1, 99.0, 99.2])], ["open: 3 seeds, needs 12", "+0.14",
            "+0.10 (−0.15 to +0.35)"]),
        ({}, [*GAIN[:3], *(run(CBAM, seed, [90.0, 99.6]) for seed in (0, 1))], ["open: B still gained 9.6 points in "
            "the last fifth of its epochs", "+1.00", "+0.60 (+0.35 to +0.85)"]),
        ({}, [], ["not tried", "+1.00", ""]),
    ],
)  # fmt: skip
def test_a_line_of_the_block_has_the_answer_in_words(
    changed: dict[str, str], found: list[Record], line: list[str], tmp_path: Path
) -> None:
    asking = dataclasses.replace(ASKED, question="More | errors", **changed)
    text = block(several(study(claims=[asking, claim(text="Not asked")]), found=found), tmp_path)
    assert lines(text)[0] == ["claim", "answer", "printed", "measured (95 %)"]
    assert lines(text)[2:] == [[r"[More \| errors](results/tables/made_table1.md)", *line]]


def test_what_is_open_of_one_statement_is_a_line_and_a_reading_stands_below(tmp_path: Path) -> None:
    sets = ("mnist", "fashion_mnist", "svhn")
    rows = [row(f"{name} {of_set}", words.replace("mnist", of_set)) for of_set in sets
            for name, words in (("A", PLAIN), ("B", CBAM))]  # fmt: skip
    pairs = {of_set: [[f"A {of_set}", f"B {of_set}"]] for of_set in sets}
    claims = [
        claim(text=of_set, claimed=f"+{size}.00", pairs=pairs[of_set], question=f"CBAM helps on {of_set}")
        for size, of_set in enumerate(sets, 1)
    ]
    claims += [claim(text="otherwise", pairs=[["A svhn", "B mnist"]], question="CBAM helps on svhn", counted=False)]
    found = [*GAIN, *(run(words, 0, [90.0]) for words in FASHION)]
    found += [run(PLAIN.replace("mnist", "svhn"), 0, [80.0]), run(CBAM.replace("mnist", "svhn"), 0, [82.0])]
    again = study(name="made_table2", claims=[claim(question="CBAM helps on mnist")])
    text = block(several(study(*rows, claims=claims), again, found=found), tmp_path)
    assert [line[0].partition("]")[0] for line in lines(text)[2:]] == [
        "[CBAM helps on mnist",
        "[… on fashion_mnist, svhn",
    ]
    assert lines(text)[-1][1:] == ["open", "+2.00 to +3.00", "0.00 to +2.00"]
    assert "svhn, by another reading of the text, in another training: +19.50." in text


def test_a_readme_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"README\.md: 'utf-8' codec"):
        filled(tmp_path / "README.md", [])


# The README and docs/


def test_every_file_of_the_configuration_is_in_the_picture_of_it() -> None:
    picture = (ROOT / "docs" / "commands.md").read_text().split("```")[1].strip()
    groups = {name: part.split() for part in re.split(r"\n(?=\w)", picture) for name in part.split()[:1]}
    for path in CONF.glob("*/*.yaml"):
        if path.parent.name not in ("hydra", "study"):  # the studies are in results/README.md
            assert path.stem in groups[path.parent.name], f"{path.relative_to(CONF)} is missing in docs/commands.md"


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")], ids=str)
def test_every_link_leads_to_a_file_and_its_heading(path: Path) -> None:
    for link, heading in re.findall(r"\]\((?!https?:)([^)# ]*)#?([^)]*)\)", path.read_text()):
        target = path.parent / link if link else path
        assert target.exists(), link
        titles = re.findall("^#+ (.*)", target.read_text(), re.M) if heading else []
        assert not heading or heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100
    assert len(README.split()) <= 1_000  # with addresses and markup

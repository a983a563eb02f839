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
ASKED = claim(claimed="+1.00", question="CBAM on MNIST")
README = (ROOT / "README.md").read_text()


def several(*made: Study, found: Sequence[Record] = GAIN) -> list[StudyResults]:
    return measure(made, [*map(run_of, found)])


def lines(text: str) -> list[list[str]]:
    """The cells of the tables' rows, with common spaces."""
    rows = [line[2:-2] for line in text.replace("\N{NO-BREAK SPACE}", " ").splitlines() if line.startswith("|")]
    return [re.split(r" +(?<!\\)\| ", row) for row in rows]


def block(measured: Sequence[StudyResults], folder: Path) -> str:
    """The README's block."""
    (folder / "README.md").write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", encoding="utf-8")
    text = filled(folder / "README.md", measured)
    assert text.startswith(f"before\n{BEGIN}\n\n")
    assert text.endswith(f"\n\n{END}\nafter\n")
    assert "stale" not in text
    return text


def test_the_index_has_a_line_a_source_that_add_up() -> None:
    first = study(claims=[claim(), claim(text="Wrong", claimed="decrease"), Claim("Nobody", untested="No network.")])
    second = study(name="made_table2", claims=[claim()])  # the same claim again
    other = study(name="other_table1", source="other", title="Another?", claims=[claim(pairs=[["A", "C"]])])
    other = dataclasses.replace(other, rows=[*other.rows, row("C", f"{CBAM} routing.iterations=1")])
    text = index(several(other, first, second), unassigned=4)
    assert lines(text)[0] == ["source", "claims", "supported", "contradicted", "open", "not tested"]
    assert lines(text)[2:5] == [
        ["[made](#made)", "3", "1", "1", "0", "1"],
        ["[other](#other)", "1", "0", "0", "0", "1"],
        ["all", "4", "1", "1", "0", "2"],
    ]
    found = [
        "[A table](tables/made_table1.md)",
        "Table 1",
        "In part: B is better (+0.50 points); “Wrong” is contradicted, +0.50 points.",
    ]
    assert found in lines(text)
    assert ["[Another?](tables/other_table1.md)", "Table 1", "Not known: the runs test no claim."] in lines(text)
    last = "In these tables: 6 runs, 6 minutes; 4 records of other trainings, which capsexp compare reads."
    assert last in text
    assert "In these tables: no runs. All" in index(several(other, found=[]), unassigned=0)


def test_a_claim_that_is_a_reading_of_ours_is_not_counted() -> None:
    made = several(study(claims=[claim(), claim(text="Read otherwise", claimed="decrease", counted=False)]))
    assert questions.counts(questions.distinct(made))["claims"] == 1
    longer = Setting("5 epochs of 500 images", words="budget.epochs=5 budget.train_images=500")
    for other, count in (({"source": "two"}, 2), ({"paper": longer}, 2), ({"name": "made_table2"}, 1)):
        made = several(study(claims=[claim()]), study(claims=[claim()], **other))
        assert questions.counts(questions.distinct(made))["claims"] == count


def test_the_block_asks_each_question_with_what_is_published_and_measured(tmp_path: Path) -> None:
    opposite = claim(text="Less", claimed="decrease", question="Fewer | errors")
    asked = several(study(claims=[ASKED, opposite, claim(text="Not asked")]))
    text = block(asked, tmp_path)
    assert lines(text)[0] == ["question", "published", "measured (95 % interval)", "answer"]
    shown = "**+0.50 points (+0.25 to +0.75)**"
    assert lines(text)[2:] == [
        ["[CBAM on MNIST](results/tables/made_table1.md)", "+1.00", shown, "yes, half as much"],
        [r"[Fewer \| errors](results/tables/made_table1.md)", "+0.10", shown, "no"],
    ]
    assert "[All 3 claims: 2 supported, 1 contradicted](results/README.md)" in text


def test_in_the_block_only_what_is_decided_is_bold(tmp_path: Path) -> None:
    made = [several(study(claims=[ASKED]), found=found) for found in (GAIN, GAIN[::3], [])]
    assert [lines(block(one, tmp_path))[-1][2:] for one in made] == [
        ["**+0.50 points (+0.25 to +0.75)**", "yes, half as much"],
        ["+0.50 points", "open"],
        ["", "not run yet"],
    ]


def test_a_readme_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"README\.md: 'utf-8' codec"):
        filled(tmp_path / "README.md", [])


# The sentence


def gains(*sizes: str, found: Sequence[Record], **changed: object) -> str:
    """The sentence of claims on CBAM of these sizes, on MNIST, then on Fashion-MNIST."""
    rows = [row(name, words) for name, words in zip("ABCD", (PLAIN, CBAM, *FASHION), strict=True)]
    pairs = [["A", "B"], ["C", "D"]]
    claims = [
        dataclasses.replace(ASKED, text=f"On {pair}", claimed=size, pairs=[pair], **changed)
        for size, pair in zip(sizes, pairs, strict=False)
    ]
    return questions.sentence(several(study(*rows, claims=claims), found=found))


BOTH = [*GAIN, *runs(FASHION[0], LOW), *runs(FASHION[1], HIGH)]
NONE = "No gain of attention is shown."


@pytest.mark.parametrize(
    ("sizes", "found", "sentence"),
    [
        (["+1.00"], [], NONE),
        (["+1.00"], GAIN[::3], NONE),
        (["-1.00"], GAIN, NONE),
        (
            ["+1.00"],
            GAIN,
            "On MNIST yes (CBAM), by about half of what is published. "
            "Elsewhere no gain is shown; the networks are as we read the papers.",
        ),
        (["+1.00", "+0.95"], BOTH, "On MNIST and Fashion-MNIST yes (CBAM), by about half of what is published. Elsewh"),
        (
            ["+1.00", "+0.50"],
            BOTH,
            "On MNIST and Fashion-MNIST yes (CBAM), by 50 to 100 % of what is published. Elsewh",
        ),
        (["+2.00"], GAIN, "On MNIST yes (CBAM), by 25 % of what is published. "),
    ],
)
def test_the_sentence_names_where_a_gain_is_shown_and_how_much_of_it(
    sizes: list[str], found: list[Record], sentence: str
) -> None:
    assert gains(*sizes, found=found).startswith(sentence)


def test_the_sentence_names_the_attention_of_which_no_gain_is_shown() -> None:
    words = "model=da_capsnet data=mnist attention="
    rows = [row("C", f"{words}none"), row("D", f"{words}dual")]
    made = study(*study().rows, *rows, claims=[ASKED, dataclasses.replace(ASKED, text="Dual", pairs=[["C", "D"]])])
    assert questions.sentence(several(made)) == (
        "On MNIST yes (CBAM), by about half of what is published. "
        "Elsewhere, and with dual attention, no gain is shown; the networks are as we read the papers."
    )


def test_the_sentence_is_of_accuracies_raised_by_attention() -> None:
    """Not of a fall that is claimed and found, or of epochs."""
    assert gains("-1.00", found=[*runs(PLAIN, HIGH), *runs(CBAM, LOW)]) == NONE
    fewer = [run(words, n, [1.0] * (at + n % 2) + [9.0, 1.0]) for words, at in ((PLAIN, 99), (CBAM, 9)) for n in (0, 1)]
    assert gains("-50", found=fewer, estimate="relative", measure="first_epoch") == NONE


def test_questions_on_something_else_than_attention_have_no_sentence(tmp_path: Path) -> None:
    rows = [row("A", PLAIN), row("B", f"{PLAIN} routing.iterations=1")]
    found = [*runs(PLAIN, LOW), *runs(f"{PLAIN} routing.iterations=1", HIGH)]
    for records in (found, []):
        measured = several(study(*rows, claims=[ASKED]), found=records)
        assert questions.sentence(measured) == ""
        assert block(measured, tmp_path).startswith(f"before\n{BEGIN}\n\n| question |")


def test_the_sentence_tells_the_papers_training_from_another() -> None:
    """And compares only the first with what is published."""
    shorter = [*runs(f"{FASHION[0]} {SHORT}", LOW), *runs(f"{FASHION[1]} {SHORT}", HIGH)]
    assert gains("+1.00", "+0.60", found=[*GAIN, *shorter]).startswith(
        "On MNIST yes (CBAM), by about half of what is published; so far on Fashion-MNIST, too."
    )
    assert (
        gains("+1.00", "+0.60", found=shorter)
        == "So far on Fashion-MNIST yes (CBAM). Elsewhere no gain is shown; the networks are as we read the papers."
    )


def test_a_data_set_of_two_claims_is_named_once() -> None:
    claims = [ASKED, dataclasses.replace(ASKED, text="Again", claimed="+0.99")]
    assert questions.sentence(several(study(claims=claims))).startswith("On MNIST yes (CBAM), by about half ")


# The README and docs/


def test_every_file_of_the_configuration_is_in_the_picture_of_it() -> None:
    words = re.findall(r"[\w-]+", (ROOT / "docs" / "configuration.md").read_text())
    elsewhere = ("hydra", "study")  # the studies are in results/README.md
    groups = [folder for folder in CONF.iterdir() if folder.is_dir() and folder.name not in elsewhere]
    for path in (path for group in groups for path in group.glob("*.yaml")):
        assert path.stem in words, f"{path.relative_to(CONF)} is missing in docs/configuration.md"


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")], ids=str)
def test_every_link_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)# ]+)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110
    assert len(README.encode()) <= 9_000

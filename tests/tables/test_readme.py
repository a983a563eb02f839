"""The README: its numbers from records, every file of the configuration, links that lead somewhere."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, row, run, runs, study
from support import ROOT

from capsexp.config.searchpath import CONF
from capsexp.results import elsewhere
from capsexp.results.collect import Results, collect
from capsexp.results.runs import run_of
from capsexp.run.records import Record
from capsexp.study import studies
from capsexp.study.studies import Row, Study
from capsexp.tables import summary
from capsexp.tables.pages import Table, position, short_table
from capsexp.tables.readme import filled, foretold, has_references, index
from capsexp.tables.summary import stated
from capsexp.tables.texts import Verdict

NEAR = [98.9, 99.0, 99.1]  # s = 0.1
WHOLE = [*runs(PLAIN, NEAR), *runs(CBAM, [99.4, 99.5, 99.6])]
SHORT = f"{CBAM} budget.epochs=2"
TRAINING = "all 250 epochs, bf16"
SHORTER = [row("C", f"{PLAIN} routing.iterations=1 budget.epochs=2"), row("D", f"{SHORT} routing.iterations=1")]
SHORT_RUNS = [one for shorter in SHORTER for one in runs(shorter.run or "", NEAR)]


README = (ROOT / "README.md").read_text()


def several(*made: Study) -> list[Results]:
    """What the runs of WHOLE give for studies of one source."""
    return collect(made, [*map(run_of, WHOLE)])


def table_of(made: Results) -> Table:
    found = short_table(made)
    assert found is not None
    return found


def reference(number: str, title: str, page: str = "tables/made_table1") -> str:
    return f'[{number}](results/{page}.md "{title}")'


def test_numbers_of_a_readme_are_filled_from_the_claims_that_they_name(tmp_path: Path) -> None:
    claims = [claim(text="B is better (Table 1)", claimed="-0.10"), claim(text="shorter", pairs=[["C", "D"]])]
    made = [results(study(*study().rows, *SHORTER, claims=claims), [*WHOLE, *SHORT_RUNS])]
    text = "By {}, printed {}, on {}; of {} claims, {} after whole training, {} after shorter, {}.\n"
    called = "contradicted; no gain of that size"
    titles = [*(f"B is better: {field}" for field in (f"measured; {called}", "claimed", f"verdict; {called}"))]
    before = [reference("old", title) for title in titles]
    before += [reference("old", title, "README") for title in ("claims", "whole", "shorter")] + [
        '[a link](x.md "B is better")'
    ]
    (tmp_path / "README.md").write_text(text.format(*before))
    after, problems = filled(tmp_path / "README.md", made)
    numbers = ["+0.50 points (+0.25 to +0.75)", "−0.10", "old", "2", "1", "1"]
    assert after == text.format(
        *(old.replace("[old]", f"[{new}]") for old, new in zip(before, numbers, strict=False)), before[-1]
    )
    assert problems == []
    assert has_references(after)
    assert not has_references(before[-1])


@pytest.mark.parametrize(
    ("title", "problem"),
    [
        ("B is better: measured; open", "B is better: it is called open, and is supported; write the sentence and"),
        ("C is better: measured", "C is better: measured: no such claim or number"),
        ("B is better: claimd", "B is better: claimd: no such claim or number"),
    ],
)
def test_a_sentence_whose_verdict_has_changed_is_a_problem(tmp_path: Path, title: str, problem: str) -> None:
    (tmp_path / "README.md").write_text(reference("old", title))
    _, (found,) = filled(tmp_path / "README.md", [results(study(claims=[claim()]), WHOLE)])
    assert found.startswith(f"{tmp_path}/README.md: {problem}")


def test_every_number_of_the_readme_is_of_a_claim_and_a_field_that_there_is() -> None:
    """Without reading the records, with which `make check-results` also compares the verdicts."""
    titles = re.findall(r'\(results/tables/(\w+)\.md "([^"]+): (\w+)', README)
    assert len(titles) > 8
    for name, about, field in titles:
        assert field in ("measured", "claimed", "verdict")
        assert any(one.text.startswith(about) for one in studies.load(name).claims)


def test_the_answer_has_verdicts_after_correction() -> None:
    near = [*runs(PLAIN, [99.0, 99.1, 99.2]), *runs(CBAM, [99.3, 99.4, 99.5])]
    claims = [claim(), *(claim(claimed=size, text=f"By {size}") for size in ("+5", "+6", "+7"))]
    made = [results(study(claims=claims), near)]
    better = made[0].claims[0]
    assert (better.verdict, better.decided, better.holds) == ("supported", "open", False)
    assert "After training as long as the claims need: 4 open." in summary.answer(made)


def test_the_index_has_the_claims_each_study_and_what_was_run() -> None:
    made = [results(study(claims=[claim()]), [*WHOLE, *runs(SHORT, [9.0])]), results(study(name="made_table2"), [])]
    text = index(made, unassigned=4)
    lines = text.splitlines()
    assert lines[6] == (
        "7 runs, 7 minutes on NVIDIA H200. 6 of them were trained as long as the paper's, or its study's where it "
        "gives no epochs. Their records are in [runs](runs). Published accuracies and epochs with runs: 2 ours is "
        "lower, 1 open. Records of no study: 4."
    )
    assert "**[made_table1](tables/made_table1.md)** made, Table 1: A table. 7 runs, 7 minutes on NVIDIA H200." in lines
    assert (
        "| [made_table1](tables/made_table1.md) | made, Table 1 | A table | 2 of 2 | all 250 epochs "
        "| 1 of 1 claims tested: 1 supported; 3 published numbers: 2 ours is lower, 1 open |"
    ) in lines
    assert "| [made_table2](tables/made_table2.md) | made, Table 1 | A table | 0 of 2 |  | nothing to test |" in lines
    assert "of no study" not in index(made, unassigned=0)
    assert index(made[1:], unassigned=0).splitlines()[4:7] == ["No claim has been tested yet.", "", "No runs."]


def test_the_index_calls_no_open_number_so_far() -> None:
    long = "budget.epochs=200"
    text = index([results(study(), [*runs(f"{CBAM} {long}", NEAR), run(f"{PLAIN} {long}", 0)])], 0)
    assert "with runs: 1 ours is lower so far, 1 open, 1 open (one run)." in text
    assert "with runs" not in index([results(study(), runs(SHORT, NEAR))], 0)  # not comparable


def test_the_index_lists_tested_claims_by_verdict_with_their_readings() -> None:
    rows = [*study().rows, dataclasses.replace(row("C", f"{CBAM} routing.iterations=1"), reading_of="B")]
    claims = [
        claim(claimed="+0.10", text="Larger"),
        claim(claimed="decrease", text="Wrong"),
        claim(text="Right (in the source (so))"),
        claim(text="Read otherwise", pairs=[["A", "C"]]),
        claim(claimed="same", margin="0.1", text="No network", pairs=[["A", "D"]]),
    ]
    made = study(*rows, row("D", None), claims=claims)
    text = index([results(made, [*WHOLE, *runs(rows[2].run or "", NEAR)])], 0)
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| [made_table1](tables/")]
    listed = [(words[1], words[5].partition(",")[0]) for words in lines]
    assert listed[:4] == [
        *(("Larger", "supported"), ("Right", "supported")),
        *(("reading: Read otherwise", "open"), ("Wrong", "contradicted")),
    ]
    assert "No network" not in text


def test_without_a_column_to_lay_across_all_rows_stand_on_one_line() -> None:
    table = table_of(results(study(), WHOLE))
    assert table.columns == ["", "A", "B", "training"]
    assert table.rows == [
        ["maximum %", "99.80 → 99.00 ± 0.10 (3)", "99.90 → 99.50 ± 0.10 (3)", TRAINING],
        ["first epoch", "7 → ≥ 1 (3)", "→ ≥ 1 (3)", TRAINING],
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
    table = table_of(made)
    assert table.columns == ["", "A", "B", "training"]
    assert table.rows == [
        ["Net", "99.71 → 99.00 (1)", "99.9 → 8.00 (1) † 2/250 ep", TRAINING],
        ["Big net", "→ 99.00 (1)", "", TRAINING],
    ]


def test_what_shorter_training_would_have_said() -> None:
    """Of runs of all 250 epochs, the effect by the maximum until the 25th, 50th, 100th and the last epoch."""

    def whole(words: str, steps: Sequence[float]) -> list[Record]:
        curve = [step for step, count in zip(steps, (25, 25, 50, 150), strict=True) for _ in range(count)]
        return [run(words, seed, [*curve[:-1], curve[-1] + 1]) for seed in (0, 1)]

    found = [*whole(PLAIN, [60.0, 50.0, 70.0, 80.0]), *whole(CBAM, [40.0, 65.0, 64.0, 90.0]), *runs(SHORT, [9.0])]
    claims = [claim(), claim(measure="first_epoch", estimate="relative"), claim(text="later", pairs=[["A", "C"]])]
    made = results(study(*study().rows, row("C", f"{PLAIN} routing.iterations=1"), claims=claims), found)
    table = foretold(stated([made]))
    assert table.rows == [["B is better", "250", "−20.00", "+5.00", "−5.00", "+10.00"]]
    assert table.columns[2:] == ["after 10 %", "after 20 %", "after 40 %", "after 100 %"]


def test_nothing_is_foretold_of_runs_by_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "choices", lambda _: {"made_table1": Path("study/made_table1.yaml")})
    monkeypatch.setattr(elsewhere, "_accuracies", lambda _, row: {0: 90.0, 1: 90.0 + len(row.name)})
    rows = [Row([name], elsewhere="others.csv") for name in ("A", "BB")]
    made = results(study(*rows, claims=[claim(pairs=[["A", "BB"]])]), [])
    assert made.claims[0].measured is not None
    assert foretold(stated([made])).rows == []


@pytest.mark.parametrize(("measure", "printed"), [("memory", "not in our copy"), ("accuracy", "not reported")])
def test_a_study_whose_source_prints_no_accuracies_has_no_short_table(measure: str, printed: str) -> None:
    made = results(study(row("A", PLAIN, **{measure: printed}), measures=[measure]), runs(PLAIN, [9.0]))
    assert short_table(made) is None


def test_numbers_that_our_copy_has_lost_are_left_out() -> None:
    rows = [row(name, words, accuracy="not in our copy") for name, words in (("A", PLAIN), ("B", CBAM))]
    table = table_of(results(study(*rows, measures=["accuracy"]), runs(PLAIN, [9.0])))
    assert (table.columns, table.rows) == (["", "A", "training"], [["maximum %", "→ 9.00 (1)", TRAINING]])


# All studies together


def test_a_claim_of_two_studies_counts_once() -> None:
    made = several(study(claims=[claim()]), study(name="two", claims=[claim(), claim(claimed="+0.52")]))
    assert [(one.results.study.name, one.claim.claim.claimed) for one in summary.stated(made)] == [
        *(("made_table1", "increase"), ("two", "+0.52"))
    ]
    other = study(name="three", source="other, Table 1", claims=[claim()])
    assert len(summary.stated([*made, *several(other)])) == 3


def test_a_reading_is_listed_under_its_claim_and_a_claim_of_ours_is_left_out() -> None:
    rows = [*study().rows, dataclasses.replace(row("C", SWEPT.replace("1,2,3", "1")), reading_of="B")]
    reading, own = claim(text="Read otherwise", pairs=[["A", "C"]]), claim(text="Ours", ours=True)
    made = several(study(*rows, name="readings", claims=[reading, own]), study(claims=[claim()]))
    (one,) = summary.stated(made)
    assert (one.results.study.name, one.claim.reading) == ("made_table1", False)
    assert [found.claim.text for _, found in one.readings] == ["Read otherwise"]
    assert summary.answer(made)[0].startswith("Of 1 claims, 1 is tested")


def test_a_published_number_counts_once_without_readings() -> None:
    reading = dataclasses.replace(row("C", f"{CBAM} routing.iterations=1", accuracy="99.90"), reading_of="B")
    made = several(study(measures=["accuracy"]), study(*study().rows, reading, name="two", measures=["accuracy"]))
    assert [(cell.study, cell.row) for cell in summary.numbers(made)] == [
        *(("made_table1", "A"), ("made_table1", "A"), ("made_table1", "B"))  # of A an epoch too
    ]


def test_a_smaller_setting_and_parameters_are_no_published_numbers() -> None:
    rows = [row("A", PLAIN, accuracy="99.80", parameters="6.8"), dataclasses.replace(row("C", CBAM), reading_of="A")]
    rows[1] = dataclasses.replace(rows[1], published={"accuracy": "99.90"})
    made = results(study(*rows, measures=["accuracy", "parameters"]), [*WHOLE, *runs(SHORT, [9.0, 9.1])])
    assert [(number.row, number.measure, number.so_far) for number in summary.numbers([made])] == [
        ("A", "accuracy", "")
    ]


def test_the_whole_training_of_another_experiment_is_not_the_papers() -> None:
    made = [results(study(claims=[claim()], differs="our own maps"), WHOLE)]
    assert summary.answer(made)[-1].startswith("No training was as long as a paper's; ")


def test_the_answer_tells_counts_whole_and_shorter_trainings_apart() -> None:
    claims = [
        claim(),
        claim("relative", measure="parameters"),
        claim(text="Shorter", pairs=[["C", "D"]]),
        claim("difference", "", measure="accuracy", pairs=[], untested="No network."),
    ]
    made = results(study(*study().rows, *SHORTER, claims=claims), [*WHOLE, *SHORT_RUNS])
    assert summary.answer([made]) == [
        "Of 4 claims, 3 are tested. Verdicts are those after correction for all claims of a source with as long a "
        "training.",
        "By counting parameters: 1 supported.",
        "After training as long as the claims need: 1 supported.",
        "After shorter training, “so far”: 1 open.",
        "Training as long as a paper's, or its study's where it gives no epochs, was run on MNIST only; "
        "after shorter training accuracies are lower, and even their order can differ.",
    ]
    assert summary.answer([results(study(claims=claims[:1]), [])]) == ["No claim has been tested yet."]
    shorter = [results(study(*SHORTER, claims=claims[2:3]), SHORT_RUNS)]
    assert summary.answer(shorter)[-1].startswith("No training was as long as a paper's; ")


def test_verdicts_are_listed_in_their_order() -> None:
    so_far = Verdict("supported so far", "supported")
    counts = {"open": 2, "contradicted": 1, so_far: 3, "supported": 1200, "not run": 1}
    texts = summary.listed(Counter(counts).elements()).split(", ")
    assert set(texts[:2]) == {"1,200 supported", "3 supported so far"}
    assert texts[2:] == ["1 contradicted", "2 open", "1 not run"]
    assert summary.listed([]) == "none"


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
    assert f") | {short} | A table |" in index([results(study(source=source), [])], 0)


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
    links = re.findall(r"\]\(([^)# ]+)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110
    assert len(README.encode()) <= 9_000


def test_rows_that_nobody_can_run_are_not_counted() -> None:
    made = results(study(row("A", PLAIN), row("B", CBAM), row("C", None)), runs(PLAIN, NEAR))
    assert summary.rows_run([made]) == "1 of 2"

"""The pages of studies: the answer first, a table a setting, the claims; and what their texts say."""

import dataclasses
import re
from collections.abc import Sequence

import pytest
from made import CBAM, PLAIN, SHORT, SWEPT, claim, results, row, run, runs, study

from capsexp.results.claims import MeasuredClaim
from capsexp.results.runs import run_of
from capsexp.results.steps import Steps, name_of
from capsexp.results.study import StudyResults, measure
from capsexp.run.records import Record
from capsexp.study.selection import LAPTOP, PAPER, Block, select
from capsexp.study.studies import Claim, Row, Setting, Study, Training
from capsexp.tables import files, markdown, pages, texts
from capsexp.tables.pages import commands, page
from capsexp.tables.table import Table
from capsexp.tables.texts import decimal

NEAR = [98.9, 99.0, 99.1]  # s = 0.1
GAIN = [*runs(PLAIN, NEAR), *runs(CBAM, [99.4, 99.5, 99.6])]  # 0.5 points, half a width 3.012 · 0.1 · sqrt(2 / 3)
SHORTER = [*runs(f"{PLAIN} {SHORT}", NEAR), *runs(f"{CBAM} {SHORT}", [99.4, 99.5, 99.6])]
WRONG, ASKED = claim(text="Wrong", claimed="decrease"), claim(text="The question", question="?")
UNTESTED = dataclasses.replace(claim(), text="Nobody knows", claimed="", pairs=[], untested="No network\nhas it.")


def cells(made: Study, found: Sequence[Record], name: str, block: int = 0) -> dict[str, str]:
    """A row of a setting's table, by column."""
    return _row(page(results(made, found)).blocks[block], name)


def _row(table: Table, name: str) -> dict[str, str]:
    (found,) = (row for row in table.rows if row[0] == name)
    return dict(zip(table.columns, found, strict=True))


def test_a_page_answers_first() -> None:
    made = study(claims=[UNTESTED, claim()], title="Does it help?", figures={"huang_fig11": "Its figure"})
    shown = page(results(made, [*GAIN, *SHORTER]))
    text = markdown.document(shown, {"made_table1": False, "huang_fig11": False})
    assert "| +0.50 points (+0.25\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}+0.75) |" in text
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    order = [
        "# Does it help?\n",
        "made, Table 1. 12 runs, 12 minutes.\n",
        "**Yes: B is better (+0.50 points).** 2 claims: 1 supported, 1 not tested.\n",
        'made_table1_light.svg" width="100%" alt="The numbers of the table, a row a network: Does it help?">',
        "## The paper's training, 250 epochs of all images\n",
        "Best %: ",
        "## Shorter, 2 epochs of all images\n",
        "## Claims\n",
        "| ✓ supported | B is better |",
        "<details><summary>1 claim without an answer</summary>",
        "| ○ untested | Nobody knows |",
        "<details><summary>More pictures</summary>",
        'huang_fig11_light.svg" width="100%" alt="Its figure">',
        "<details><summary>Protocol and deviations</summary>",
        "- The batch size is not in the paper.\n",
        "<details><summary>Runs and commands</summary>",
    ]
    at = [text.index(part) for part in order]
    assert at == sorted(at)
    assert text.count("<details>") == text.count("</details>") == 4
    assert text.count("Best %: ") == 1


def test_each_setting_with_runs_has_a_table_the_papers_first() -> None:
    titles = [
        [table.title for table in page(results(study(), found)).blocks]
        for found in ([*SHORTER, *GAIN], SHORTER, GAIN, [])
    ]
    paper, shorter = "the paper's training, 250 epochs of all images", "shorter, 2 epochs of all images"
    assert titles == [[paper, shorter], [shorter], [paper], [paper]]


def test_numbers_are_printed_beside_measured_and_a_constant_number_of_seeds_is_in_the_caption() -> None:
    assert cells(study(), GAIN, "A") == {
        **{"network": "A", "best %, printed": "99.80", "best %, here": "99.00 ± 0.10", "verdict": "lower"},
        **{"first epoch, printed": "7", "first epoch, here": "≥ 1"},
    }
    assert page(results(study(), GAIN)).blocks[0].notes[-1] == "In each row the last epoch is as good as the best."
    assert cells(study(), [run(PLAIN, 0, [99.0, 98.0])], "A")["last epoch %"] == "98.00"
    assert "3 seeds a row." in page(results(study(), GAIN)).blocks[0].notes
    table = page(results(study(), GAIN[:4])).blocks[0]
    assert "In brackets the number of seeds." in table.notes
    assert [_row(table, name)["best %, here"] for name in "AB"] == ["99.00 ± 0.10 (3)", "99.40 (1)"]


def test_a_number_is_shown_as_printed_but_for_the_digits_of_single_precision() -> None:
    texts_of = {"99.70999908": "99.71", "99.8": "99.8", "99.80": "99.80", "not in our copy": "–"}
    other = row("B", CBAM, accuracy="99.90")
    shown = [cells(study(row("A", PLAIN, accuracy=text), other), [], "A")["best %, printed"] for text in texts_of]
    assert shown == [*texts_of.values()]
    assert "best %, printed" not in cells(study(row("A", PLAIN, accuracy="not in our copy")), GAIN, "A")


@pytest.mark.parametrize(
    ("firsts", "epochs", "shown"),
    [([4, 6, 5], 9, "5.0 ± 1.0"), ([4], 9, "4"), ([2], 2, "≥ 2"), ([2, 2], 2, "≥ 2"), ([2, 1], 2, "≥ 2, 1")],
)
def test_the_first_epoch_is_a_lower_bound_where_it_is_the_last(firsts: list[int], epochs: int, shown: str) -> None:
    curves = [[1.0] * (first - 1) + [9.0] + [1.0] * (epochs - first) for first in firsts]
    one = cells(study(), [run(PLAIN, seed, curve) for seed, curve in enumerate(curves)], "A")
    assert (one["first epoch, printed"], one["first epoch, here"]) == ("7", shown)


def test_a_row_is_blank_without_runs_in_a_setting_of_the_study() -> None:
    made = results(study(), [*runs(PLAIN, [99.0]), *runs(f"{CBAM} budget.epochs=7", NEAR)])
    found = _row(page(made).blocks[0], "B")
    assert {name: text for name, text in found.items() if text} == {"network": "B", "best %, printed": "99.90"}
    assert len(made.runs) == 1


def test_files_that_are_not_the_published_ones_are_named() -> None:
    found = runs(f"{PLAIN} {SHORT}", NEAR, note="a part of the images")
    (table,) = page(results(study(), found)).blocks
    assert table.title == "shorter, 2 epochs of all images, a part of the images"


def test_failed_runs_and_those_that_did_not_learn_are_counted() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), run(PLAIN, 3, failed=True), run(CBAM, 3, failed=True)]
    assert cells(study(), found, "A")["best %, here"] == "99.80 ± 0.10, failed (1 of 4)"
    assert cells(study(), found, "B")["best %, here"] == "failed (1 of 1)"
    unlearned = runs(PLAIN, [10.0], chance_accuracy=9.8)
    assert cells(study(), unlearned, "A")["best %, here"] == "10.00, didn't learn (1 of 1)"
    one, *others = (run(SWEPT.replace("1,2,3", str(i)), 0, [99.0 / i], chance_accuracy=40.0) for i in (1, 2, 3))
    text = "99.00, of those tried, didn't learn (2 of 3)"
    assert cells(study(row("A", SWEPT)), [one, *others], "A")["best %, here"] == text
    (told,) = page(results(study(claims=[claim()]), [*unlearned, *GAIN[3:], *found[3:4]])).other_claims.rows
    assert "1 of 4 runs didn't learn, 1 failed" in told[-1]


def test_a_setting_of_held_out_images_has_their_accuracies_and_effects() -> None:
    found = [
        run(f"{words} protocol=heldout", seed, [90.0], tested=tested + seed / 10)
        for words, tested in ((PLAIN, 97.0), (CBAM, 98.0))
        for seed in range(3)
    ]
    measured = results(study(claims=[claim()]), [*found, *GAIN], ["protocol=heldout"])
    shown = page(measured)
    assert [table.title for table in shown.blocks] == ["protocol=heldout"]
    assert _row(shown.blocks[0], "A")["test %, here"] == "97.10 ± 0.10"
    assert shown.blocks[0].notes[0].startswith("Test %: the accuracy after the epoch chosen on held-out images; ")
    assert shown.claims.rows[0][3].startswith("+1.00 points (")


def test_the_mean_of_the_first_five_epochs() -> None:
    made = study(row("A", PLAIN, first_five="99.10"), measures=["accuracy", "first_five"])
    found = [run(PLAIN, seed, [98.9 + seed / 10] * 5) for seed in range(3)]
    one = cells(made, found, "A")
    assert (one["epochs 1–5 %, printed"], one["epochs 1–5 %, here"]) == ("99.10", "99.00 ± 0.10")


def test_labels_that_stand_in_the_names_have_no_column() -> None:
    rows = [Row([f"CapsNet{n}", n, "no"], PLAIN, {"accuracy": "99"}) for n in ("1", "2")]
    table = page(results(study(*rows, columns=["network", "iterations", "CBAM"]), [])).blocks[0]
    assert table.columns[:2] == ["network", "CBAM"]


def test_costs_stand_where_the_source_prints_some() -> None:
    made = study(
        row("A", PLAIN, parameters="6.8", memory="not reported", inference="2.5"),
        row("B", CBAM, parameters="6.9"),
        measures=["accuracy", "parameters", "memory", "inference"],
    )
    table = page(results(made, runs(PLAIN, [99.0, 99.0], load=1.0, threads=2))).costs
    assert _row(table, "A") == {
        **{"row": "A", "parameters, printed": "6.8M", "parameters": "6,804,224", "verdict": "equal"},
        "MB of the process": "2,000 ± 0",
        **{"MB on the device": "1,000 ± 0", "ms / 128 images": "128.00 ± 0.00"},
    }
    counted = _row(table, "B")  # without a run
    assert (counted["parameters"], counted["verdict"], counted["MB of the process"]) == ("6,812,788", "different", "")
    assert page(results(study(), GAIN)).costs.rows == []


def test_of_a_study_of_costs_the_table_is_of_costs_with_the_times_of_steps() -> None:
    made = study(measures=["inference"], claims=[claim("relative", measure="inference")])
    seconds = {"A": [1.0, 2.0, 9.0], "B": [2.0, 4.0, 18.0]}
    measured = Steps("a processor", {name_of(made.claims[0], select(made).blocks[0]): seconds})
    shown = page(measure([made], [], steps=measured)[0])
    (table,) = shown.blocks
    assert table.columns == ["row", "s a batch, inference"]
    assert table.rows == [["A", "2.00"], ["B", "4.00"]]
    assert table.notes == ["Time: median processor time of 3 rounds on a processor."]
    assert shown.answer == ["Yes, so far: B is better (+100.0 %)."]
    assert shown.costs.rows == []


def test_the_best_of_several_is_named_with_how_it_was_selected() -> None:
    made = study(row("A", SWEPT, accuracy="99"))
    found = [run(SWEPT.replace("1,2,3", str(i)), 0, [90.0 + i]) for i in (1, 2, 3)]
    assert page(results(made, found)).selection == ["A: best of 3 combinations, selected on the test set"]
    assert page(results(made, found[:2])).selection == ["A: best of 2 of 3 combinations, selected on the test set"]
    assert cells(made, found[:2], "A")["best %, here"] == "92.00"


def test_a_rows_note_is_among_the_deviations() -> None:
    made = study(row("A", PLAIN, "Printed\ntwice.", accuracy="99"))
    assert page(results(made, [])).deviations == ["The batch size is not in the paper.", "A: Printed twice."]


def test_the_hours_of_each_run_count_once() -> None:
    both = study(row("A", PLAIN), row("again", f"{PLAIN} model.squash_constant=1.0"))
    found = runs(PLAIN, [99.0]), [run(PLAIN, 0, [99.0] * 120)], []
    abouts = [page(results(both, one)).about.removeprefix("made, Table 1. ") for one in found]
    assert abouts == ["1 run, 1 minute.", "1 run, 2.0 hours.", "No runs yet."]


def test_commands_are_those_of_the_study_and_never_of_records() -> None:
    """Which anybody can have written."""
    found = runs(PLAIN, [99.0, 99.0], command="python -m capsexp +hydra.callbacks.x=y")
    made = study(paper=Setting("in single precision", words="trainer.precision=float32"))
    assert commands(results(made, found)) == [
        "capsexp reproduce made_table1",
        "capsexp reproduce made_table1 --budget=laptop",
        f"capsexp -m trainer.precision=float32 {PLAIN} seed=0,1,2",
    ]
    typed = ["data=fashion_mnist", "paths.results=/elsewhere"]
    assert commands(results(made, [], typed)) == [
        "capsexp reproduce made_table1 data=fashion_mnist",
        "capsexp -m trainer.precision=float32 model=capsnet data=fashion_mnist attention=none seed=0,1,2",
    ]
    made = study(paper=Setting("", words="budget.epochs=9", data={"mnist": Training(words="budget.epochs=5")}))
    assert commands(results(made, []))[-1] == f"capsexp -m budget.epochs=5 {PLAIN} seed=0,1,2"


# What is typed


def test_what_is_typed_is_in_the_title() -> None:
    titles = [
        page(results(study(), [], typed)).title
        for typed in (["data=fashion_mnist", "paths.logs=x"], ["attention=cbam"], ["budget=paper"])
    ]
    assert titles == ["A table – data=fashion_mnist", "A table – only attention=cbam", "A table"]


def test_another_training_than_the_sources_has_effects_and_no_verdict() -> None:
    words = [f"{words} budget.epochs=3" for words in (PLAIN, CBAM)]
    found = [*runs(words[0], NEAR), *runs(words[1], [99.4, 99.5, 99.6])]
    shown = page(results(study(claims=[claim()]), found, ["budget.epochs=3"]))
    assert shown.answer == [pages.ANOTHER]
    assert [table.title for table in shown.blocks] == ["budget.epochs=3"]
    assert shown.claims.rows == [["○ no verdict", "B is better", "an increase", "+0.50 points (+0.25 to +0.75)"]]
    assert "verdict" not in shown.blocks[0].columns


# Claims


def told(made: Study, found: Sequence[Record]) -> texts.ClaimTexts:
    """What a page says of the study's only claim."""
    (one,) = results(made, found).claims
    return texts.claim_texts(one)


def test_claims_without_an_answer_are_folded_and_the_others_ordered_by_it() -> None:
    claims = [claim(text="Open", pairs=[["A", "C"]]), UNTESTED, claim(text="Wrong", claimed="decrease"), claim()]
    made = study(*study().rows, row("C", f"{PLAIN} routing.iterations=1"), claims=claims)
    shown = page(results(made, [*GAIN, *runs(f"{PLAIN} routing.iterations=1", NEAR)]))
    assert [row[:2] for row in shown.claims.rows] == [["✓ supported", "B is better"], ["✗ contradicted", "Wrong"]]
    assert [row[:2] for row in shown.other_claims.rows] == [["○ open", "Open"], ["○ untested", "Nobody knows"]]
    assert shown.other_claims.title == "2 claims without an answer"


def test_a_claim_has_its_printed_and_measured_effect_and_p_value() -> None:
    assert told(study(claims=[claim(claimed="+0.52")]), GAIN) == (
        *("✓ supported", "B is better", "+0.52", "+0.50 points (+0.25 to +0.75)"),
        "as much measured, size open, p 0.006",
    )


@pytest.mark.parametrize(
    ("size", "share"),
    [("+1.50", "33 % of it"), ("+1.00", "half as much"), ("+0.50", "as much, compatible")],
)
def test_a_supported_claim_has_how_much_of_its_size_was_measured(size: str, share: str) -> None:
    many = [*runs(PLAIN, NEAR * 4), *runs(CBAM, [99.4, 99.5, 99.6] * 4)]
    assert told(study(claims=[claim(claimed=size)], printed_runs=12), many).remark.startswith(f"{share}, p")


def test_the_last_epochs_effect_stands_beside_that_of_the_maximum() -> None:
    found = [*(run(PLAIN, seed, [99.0, 98.0]) for seed in range(2)), *runs(CBAM, [99.5, 99.5])]
    assert "last epoch +1.50" in told(study(claims=[claim()]), found).remark


def test_an_open_claim_has_the_seeds_that_would_decide_it() -> None:
    wide = [*runs(PLAIN, [97.0, 98.0, 99.0]), *runs(CBAM, [97.5, 98.5, 99.5])]
    assert told(study(claims=[claim(claimed="+0.9")]), wide).remark.endswith("22 seeds would probably decide it")


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (claim("slope"), ["an increase", "points per row"]),
        (claim("spread", "decrease"), ["a decrease", "%"]),
        (claim("relative", "-50"), ["−50 %", "%"]),
        (claim("factor", "2"), ["2 times", "times"]),
        (claim(claimed="no decrease", margin="0.1"), ["no decrease (margin 0.1 points)", "points"]),
        (claim(claimed="same", margin="0.1"), ["no difference (margin 0.1 points)", "points"]),
        (claim(claimed="+0.50"), ["+0.50", "points"]),
    ],
)
def test_a_claims_unit_is_that_of_its_estimate(made: Claim, shown: list[str]) -> None:
    one = told(study(claims=[made]), GAIN)
    assert [one.printed, re.sub(r"^[+−]?[\d.]+ | \(.*$", "", one.measured)] == shown


def test_a_verdict_that_correction_takes_back_is_named() -> None:
    weak = [*runs(PLAIN, NEAR), *runs(CBAM, [99.2, 99.3, 99.4])]
    made = results(study(claims=[claim(), claim(text="Two", claimed="+0.52")]), weak)
    one = texts.claim_texts(made.claims[0])
    assert (one.verdict, one.remark.partition(", p")[0]) == ("○ open", "supported before correction")


def test_a_claim_after_shorter_training_is_so_far() -> None:
    assert told(study(claims=[claim()]), SHORTER)[0] == "✓ supported so far"
    alone = told(study(claims=[claim()]), [SHORTER[0], SHORTER[3]])
    assert (alone.verdict, alone.remark) == ("○ open", "one run of A, B")


def test_a_claim_without_a_measurement_has_its_reason() -> None:
    made = study(claims=[claim()])
    assert told(made, []) == ("○ not run", "B is better", "an increase", "", "")
    assert told(made, runs(PLAIN, [1.0])).remark == "1 of 2 rows without runs"
    assert told(study(claims=[UNTESTED]), GAIN) == ("○ untested", "Nobody knows", "", "", "No network has it.")


@pytest.mark.parametrize(
    ("claims", "found", "first"),
    [
        ([claim()], GAIN, "Yes: B is better (+0.50 points)."),
        ([claim(), WRONG], GAIN, "In part: B is better (+0.50 points); “Wrong” is contradicted, +0.50 points."),
        ([WRONG], GAIN, "No: “Wrong” is contradicted, +0.50 points."),
        ([claim()], SHORTER, "Yes, so far: B is better (+0.50 points)."),
        ([claim(), ASKED], [GAIN[0], GAIN[3]], "Not known: “The question” is open, +0.50 points, one run of A, B."),
        (
            [claim(), claim(text="Unsure", pairs=[["A", "C"]])],
            [*GAIN, *runs(f"{PLAIN} routing.iterations=1", NEAR)],
            "In part: B is better (+0.50 points); “Unsure” is open, 0.00 points (−0.23 to +0.23).",
        ),
        ([dataclasses.replace(WRONG, counted=False)], GAIN, "No: “Wrong” is contradicted, +0.50 points."),  # a reading
        ([UNTESTED], GAIN, "Not known: the runs test no claim."),
        ([claim()], [], "Not known: no runs in these settings yet."),
    ],
)
def test_the_answer_is_made_of_the_verdicts(claims: list[Claim], found: list[Record], first: str) -> None:
    made = study(*study().rows, row("C", f"{PLAIN} routing.iterations=1"), claims=claims)
    assert pages.answer(results(made, found))[0] == first


def test_counting_parameters_does_not_answer_a_question_on_training() -> None:
    counted = claim("relative", text="B is larger", measure="parameters")
    found = [*GAIN[:1], *runs(CBAM, [99.4], parameters=6_812_788)]
    made, more = study(claims=[counted, claim()]), "By counting, B is larger (+0.1 %)."
    assert pages.answer(results(made, []))[:2] == ["Not known: no runs in these settings yet.", more]
    assert pages.answer(results(made, found))[1:] == [more, "2 claims: 1 supported, 1 open."]


def test_in_the_answer_a_claim_of_a_shorter_training_says_so_beside_others() -> None:
    plain, cbam = (words.replace("=mnist", "=fashion_mnist") for words in (PLAIN, CBAM))
    later = [claim(text=f"D: {text}", claimed=claimed, pairs=[["C", "D"]]) for text, claimed in (
        ("better", "increase"), ("worse", "decrease"))]  # fmt: skip
    made = study(*study().rows, row("C", plain), row("D", cbam), claims=[claim(), *later])
    shorter = [*runs(f"{plain} {SHORT}", [80.0, 80.1, 80.2]), *runs(f"{cbam} {SHORT}", [90.0, 90.1, 90.2])]
    assert pages.answer(results(made, [*GAIN, *shorter]))[0] == (
        "In part: B is better (+0.50 points); D: better (+10.00 points, so far); "
        "“D: worse” is contradicted so far, +10.00 points."
    )


def test_typed_words_change_the_setting_of_the_runs() -> None:
    found = runs(f"{PLAIN} {SHORT} optim.lr=0.5", [90.0, 91.0])
    (made,) = measure([study()], [*map(run_of, found)], ["optim.lr=0.5"], setting="laptop")
    assert [line.cells["accuracy"].n for line in made.blocks[0].lines] == [2, 0]
    assert page(made).title == "A table – --budget=laptop optim.lr=0.5"
    repeat, first = commands(made)
    assert repeat == "capsexp reproduce made_table1 --budget=laptop optim.lr=0.5"
    assert SHORT in first


def test_the_answer_names_at_most_three_supported_and_two_contradicted_claims() -> None:
    claims = [claim(text=f"{text}yes {n}", claimed=f"+0.5{n}") for n, text in enumerate(["", "both: ", "both: ", ""])]
    claims += [claim(text=f"no {n}", claimed=f"-0.5{n}") for n in range(3)]
    strong = [*runs(PLAIN, [90.0, 90.1, 90.2]), *GAIN[3:]]
    first, number = pages.answer(results(study(claims=claims), strong))
    named = "In part: yes 0; both: yes 1, yes 2; “no 0” is contradicted, +9.40 points, claimed −0.50; “no 1” is "
    assert re.sub(r" \([^)]*\)", "", first).startswith(named)  # what a colon follows stands once
    assert number == "7 claims: 4 supported, 3 contradicted."
    readings = [dataclasses.replace(one, counted=False) for one in claims]
    assert pages.answer(results(study(claims=readings), strong))[1].startswith("7 claims, none counted: ")


def made_claim(verdict: str, setting: str = PAPER, *, claimed: str = "increase", so_far: bool = False) -> MeasuredClaim:
    block = Block(setting, Setting("", "2 epochs"), {})
    return MeasuredClaim(claim(claimed=claimed), (), verdict, block=block, so_far=so_far)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "verdict", "answer"),
    [
        (made_claim("supported"), "✓ supported", "yes"),
        (made_claim("supported", LAPTOP, so_far=True), "✓ supported so far", "so far yes"),
        (made_claim("contradicted"), "✗ contradicted", "no, worse"),
        (made_claim("contradicted", claimed="decrease"), "✗ contradicted", "no"),
        (made_claim("open", LAPTOP, so_far=True), "○ open", "open (2 epochs)"),
        (made_claim("open", so_far=True), "○ open", "open"),  # one seed of the paper's training
        (made_claim("ceiling"), "○ ceiling", "no room below 100 %"),
        (made_claim("untested"), "○ untested", "not tested"),
        (made_claim("not run"), "○ not run", "not run yet"),
    ],
)
def test_a_verdict_and_the_answer_to_a_question(one: MeasuredClaim, verdict: str, answer: str) -> None:
    assert (texts.verdict(one), texts.answer(one, "mnist")) == (verdict, answer)


# Any page


def test_decimals() -> None:
    assert [decimal(value, 2, signed=True) for value in (-0.001, 0.126, -1.25)] == ["0.00", "+0.13", "−1.25"]
    assert [decimal(value, 1) for value in (-0.04, -1.25)] == ["0.0", "−1.3"]
    assert decimal(94.925, 2) == decimal(94.92499999999998, 2) == "94.93"  # as the CSV's six digits round
    assert decimal(1234.5, 0) == "1,235"


def test_every_table_of_a_page_has_equal_rows() -> None:
    made = study(claims=[claim(), UNTESTED], measures=["accuracy", "first_epoch", "first_five", "parameters"])
    text = markdown.document(page(results(made, [*GAIN, *SHORTER, run(f"{CBAM} protocol=heldout", 0)])))
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 5
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_the_same_records_give_the_same_bytes_in_any_order() -> None:
    found = [*GAIN, *SHORTER, *runs(PLAIN, [5.0], precision="float32")]

    def made(found: Sequence[Record]) -> StudyResults:
        return results(study(claims=[claim()]), found)

    assert page(made(found)) == page(made(found[::-1]))
    assert files.csv(made(found)) == files.csv(made(found[::-1]))

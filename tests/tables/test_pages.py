"""The pages of studies, printed as Markdown, CSV and TeX."""

import dataclasses
import io
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
from made import CBAM, GPU, PLAIN, SWEPT, claim, results, row, run, runs, study
from support import ROOT

from capsexp.results.claims import MeasuredClaim
from capsexp.results.runs import MEASURES
from capsexp.run.records import Record
from capsexp.study.studies import PrintedTwice, Row, Study
from capsexp.tables import latex, markdown, pages
from capsexp.tables.generate import csv
from capsexp.tables.pages import HELDOUT_NOTE, LEARNED_NOTE, Table, commands, page
from capsexp.tables.texts import decimal, verdict

SHORT = f"{PLAIN} budget.epochs=2"
WHOLE = "all 250 epochs, bf16"
NEAR = [98.9, 99.0, 99.1]  # s = 0.1


def cells(text: str, name: str, section: str = "Accuracy") -> dict[str, str]:
    """A row of one of a page's tables, by column."""
    part = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    header, _, *rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in part.splitlines() if line.startswith("|")]
    (found,) = (row for row in rows if row[0] == name)
    return dict(zip(header, found, strict=True))


def printed(made: Study, found: Sequence[Record], typed: Sequence[str] = ()) -> str:
    return markdown.document(page(results(made, found, typed)))


def test_a_number_has_its_seeds_its_standard_deviation_and_its_prediction_interval() -> None:
    found = [*runs(PLAIN, [99.70, 99.72, 99.74]), *runs(CBAM, [98.5])]
    assert cells(printed(study(), found), "A") == {
        **{"network": "A", "published": "99.80", "maximum": "99.72 ± 0.02 (3)", "last epoch": "99.72 ± 0.02 (3)"},
        **{"one more run": "99.59 to 99.85", "difference": "−0.08", "verdict": "reproduced", "training": WHOLE},
    }
    alone = cells(printed(study(), found[3:]), "B")
    assert (alone["maximum"], alone["difference"], alone["verdict"]) == ("98.50 (1)", "−1.40", "open (one run)")
    assert "one more run" not in alone


def test_the_first_epoch_has_its_own_table() -> None:
    found = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0, 1.0]) for seed, first in enumerate((4, 6, 5))]
    one = cells(printed(study(), found), "A", "First epoch to the maximum")
    assert (one["published"], one["first epoch"], one["within 0.1 point"]) == ("7", "5.0 ± 1.0 (3)", "5.0 ± 1.0 (3)")
    assert (one["difference"], one["verdict"]) == ("−29 %", "compatible, imprecise")
    assert cells(printed(study(), found[:1]), "A", "First epoch to the maximum")["first epoch"] == "4 (1)"


@pytest.mark.parametrize(
    ("curves", "text"),
    [
        ([[1.0, 9.0]], "≥ 2 (1)"),
        ([[1.0, 9.0], [2.0, 8.0]], "≥ 2 (2)"),
        ([[1.0, 9.0], [9.0, 1.0]], "≥ 2, 1"),
    ],
)
def test_a_maximum_in_the_last_epoch_is_a_lower_bound(curves: list[list[float]], text: str) -> None:
    found = [run(PLAIN, seed, curve) for seed, curve in enumerate(curves)]
    one = cells(printed(study(), found), "A", "First epoch to the maximum")
    assert (one["first epoch"], one["verdict"], one.get("difference", "")) == (text, "open", "")


def test_an_unstable_cell_lists_its_seeds_and_shows_the_median() -> None:
    text = printed(study(), [*runs(PLAIN, [97.0, 10.0, 96.0]), *runs(CBAM, NEAR)])
    found = cells(text, "A")
    assert found["maximum"] == found["last epoch"] == "median 96.00 of 97.00, 10.00, 96.00"
    assert (found["one more run"], found["difference"], found["verdict"]) == ("", "", "unstable")
    assert cells(text, "B")["maximum"] == "99.00 ± 0.10 (3)"


def test_a_row_without_runs_is_empty() -> None:
    found = cells(printed(study(), runs(PLAIN, [99.0])), "B")
    assert {name: text for name, text in found.items() if text} == {"network": "B", "published": "99.90"}


def test_a_shorter_training_is_named_and_judged_so_far() -> None:
    long = f"{PLAIN} budget.epochs=200"
    found = [*runs(long, NEAR), *runs(CBAM, NEAR), *runs(CBAM, [9.0], note="a part")]
    text = printed(study(), found)
    reduced, whole = cells(text, "A"), cells(text, "B")
    assert (reduced["training"], reduced["verdict"]) == ("200 of 250 epochs, bf16", "ours is lower so far")
    assert cells(printed(study(), runs(SHORT, NEAR)), "A")["verdict"] == "not comparable"
    assert (whole["training"], whole["verdict"]) == (WHOLE, "ours is lower")
    assert cells(text, "B", "Also measured")["training"] == "a part, bf16"
    assert "So far: after another" in text
    assert "So far: after another" not in printed(study(), found[3:6])


def test_two_precisions_of_the_whole_training_are_told_apart() -> None:
    text = printed(study(), [*runs(PLAIN, [99.0]), *runs(CBAM, [99.0], precision="float32")])
    assert cells(text, "A")["training"] == WHOLE
    assert cells(text, "B")["training"] == "all 250 epochs, float32"


def test_failed_runs_are_counted() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9, 99.8]), run(PLAIN, 4, failed=True), run(CBAM, 3, failed=True)]
    text = printed(study(), found)
    assert [cells(text, "A")[name] for name in ("maximum", "verdict")] == [
        "99.80 ± 0.08 (4), failed (1 of 5)",
        "reproduced",
    ]
    assert cells(text, "B")["maximum"] == "failed (1 of 1)"
    assert cells(text, "A", "First epoch to the maximum")["first epoch"].endswith(", failed (1 of 5)")
    assert told(study(claims=[claim()]), [*found, *runs(CBAM, NEAR)])[5].startswith("7 runs, 2 failed, all 250 epochs")


def test_runs_that_did_not_learn_count_and_are_named() -> None:
    found = [*runs(PLAIN, [10.0], chance_accuracy=9.8), *runs(CBAM, [98.0, 98.1, 98.2])]
    made = study(claims=[claim()])
    text = printed(made, found)
    assert cells(text, "A")["maximum"] == "10.00 (1), didn't learn (1 of 1)"
    assert cells(text, "B")["maximum"] == "98.10 ± 0.10 (3)"
    assert told(made, found)[5] == "4 runs, 1 didn't learn, all 250 epochs, bf16"
    assert text.count(LEARNED_NOTE.text) == 1
    assert LEARNED_NOTE.text not in printed(made, found[1:])


def test_the_best_of_several_has_a_remark() -> None:
    made = study(row("A", SWEPT, accuracy="99"))
    found = [run(SWEPT.replace("1,2,3", str(i)), 0, [90.0 + i]) for i in (1, 2, 3)]
    remark = "\n- A: best of {} (routing.iterations=1,2,3), selected on the test set.\n"
    assert remark.format("3") in printed(made, found)
    fewer = printed(made, found[:2])
    assert cells(fewer, "A")["maximum"] == "92.00 (1)"
    assert remark.format("2 of 3") in fewer


def test_a_rows_note_is_a_remark() -> None:
    assert "\n- A: Printed twice.\n" in printed(study(row("A", PLAIN, "Printed twice.", accuracy="99")), [])


def test_the_held_out_column_is_there_when_there_are_such_runs() -> None:
    plain = runs(PLAIN, [99.0])
    without = printed(study(), plain)
    assert "held-out" not in cells(without, "A")
    assert HELDOUT_NOTE.text not in without
    heldout = [run(f"{PLAIN} protocol=heldout", seed, [98.0], tested=97.0 + seed) for seed in (0, 1)]
    text = printed(study(), [*plain, *heldout])
    assert cells(text, "A")["held-out"] == "97.50 ± 0.71 (2)"
    assert cells(text, "A")["maximum"] == "99.00 (1)"
    assert HELDOUT_NOTE.text in text


def test_costs() -> None:
    made = study(
        row("A", PLAIN, parameters="6.8", memory="not reported", inference="2.5"),
        row("B", CBAM, parameters="6.9"),
        measures=["parameters", "memory", "inference"],
    )
    text = printed(made, runs(PLAIN, [99.0, 99.0], load=1.0, threads=2))
    assert cells(text, "A", "Cost") == {
        **{"network": "A", "published parameters": "6.8M", "parameters": "6,804,224", "verdict": "equal"},
        **{"published ms / 128 images": "2.5", "ms / 128 images": "128.00 ± 0.00 (2)", "published MB": "not reported"},
        **{"MB, device / host": "1,000 / 2,000", "s / epoch": "60.0 ± 0.0 (2)", "device": "NVIDIA H200"},
    }
    counted = cells(text, "B", "Cost")  # without a run
    assert (counted["parameters"], counted["verdict"], counted["s / epoch"]) == ("6,812,788", "different", "")
    for load, device in ((9.0, "NVIDIA H200, loaded"), (None, "NVIDIA H200")):
        assert cells(printed(made, runs(PLAIN, [99.0, 99.0], load=load, threads=2)), "A", "Cost")["device"] == device


def test_the_mean_of_the_first_five_epochs() -> None:
    made = study(row("A", PLAIN, first_five="99.10"), measures=["accuracy", "first_five"])
    found = [run(PLAIN, seed, [98.9 + seed / 10] * 5) for seed in range(3)]
    one = cells(printed(made, found), "A", "First epoch to the maximum")
    assert (one["published, epochs 1–5"], one["epochs 1–5"]) == ("99.10", "99.00 ± 0.10 (3)")
    assert (one["difference"], one["verdict"]) == ("−0.10", "reproduced")


def test_what_a_source_prints_twice_has_a_table() -> None:
    checks = [
        PrintedTwice("The CNN's parameters", ["34.4", "35.4"]),
        PrintedTwice("CapsNet on CIFAR-10", ["82.95", "83"]),
        PrintedTwice("The gain", ["+0.50", ".50"]),
    ]
    text = printed(study(checks=checks), [])
    assert cells(text, "The CNN's parameters", "Printed twice") == {
        **{"what": "The CNN's parameters", "first": "34.4", "second": "35.4", "verdict": "different"},
    }
    assert [cells(text, one.text, "Printed twice")["verdict"] for one in checks[1:]] == ["equal", "equal"]
    assert "Printed twice" not in printed(study(), [])


def test_the_claims_come_first() -> None:
    assert re.findall("## (.*)", printed(study(claims=[claim()]), []))[:2] == ["Claims", "Accuracy"]
    assert "Claims" not in printed(study(), [])


def test_the_hours_of_each_run_count_once() -> None:
    found = [*runs(PLAIN, [99.0] * 3), run(CBAM, 0, [99.0] * 120, device="AMD EPYC")]
    assert "4 runs, 2.0 hours on AMD EPYC, 3 minutes on NVIDIA H200." in printed(study(), found)
    both = study(row("A", PLAIN), row("again", f"{PLAIN} model.squash_constant=1.0"))
    assert "1 run, 1 minute on NVIDIA H200." in printed(both, runs(PLAIN, [99.0]))


def test_commands_are_the_rows_with_their_setting_and_seeds() -> None:
    """And never those of records, which anybody can have written, or made where an option had another default."""
    forged = "python -m capsexp +hydra.callbacks.x=y"
    found = [*runs(PLAIN, [99.0, 99.0], command=forged), run(f"{CBAM} budget.epochs=2", 7, command=None)]
    found += [run(f"{CBAM} budget.epochs=2 protocol=heldout", 8, [9.0], command=None)]
    third = row("C", f"{PLAIN} routing.iterations=1,2")
    assert commands(results(study(*study().rows, third), found)) == {
        f"python -m capsexp -m {PLAIN} trainer.precision=bf16 seed=0,1": ["A"],
        f"python -m capsexp {CBAM} budget.epochs=2 trainer.precision=bf16 seed=7": ["B"],
        f"python -m capsexp {CBAM} budget.epochs=2 trainer.precision=bf16 protocol=heldout seed=8": ["B"],
        f"python -m capsexp -m {PLAIN} routing.iterations=1,2 seed=0,1,2": ["C"],
    }
    typed = ["data=fashion_mnist", "paths.results=/elsewhere", "seed=5"]
    assert list(commands(results(study(row("A", PLAIN)), [], typed))) == [
        "python -m capsexp -m model=capsnet attention=none data=fashion_mnist seed=0,1,2"
    ]


def test_a_typed_precision_stands_once_in_the_command() -> None:
    typed = f"{PLAIN} trainer.precision=float32"
    found = [run(typed, 3, precision="float32", command=f"python -m capsexp {typed} seed=3")]
    assert list(commands(results(study(row("A", typed)), found))) == [f"python -m capsexp {typed} seed=3"]


# Claims


def claimed(made: Study, found: Sequence[Record], *typed: str) -> list[list[str]]:
    """The rows of the table of claims."""
    table = page(results(made, found, typed)).claims
    return table.rows if table else []


def told(made: Study, found: Sequence[Record], *typed: str) -> list[str]:
    """What the page says of the study's only claim: claimed, printed, measured, verdict, p, from."""
    return claimed(made, found, *typed)[0][1:]


GAIN = [*runs(PLAIN, NEAR), *runs(CBAM, [99.4, 99.5, 99.6])]  # 0.5 points, half a width 3.012 · 0.1 · sqrt(2 / 3)
PRINTED = "+0.10 points (−0.33 to +0.53)"  # 99.80 and 99.90 %: half a width 3.012 · 0.1 · sqrt(2)


def test_a_claim_has_its_printed_and_measured_effect_and_its_p_value() -> None:
    assert told(study(claims=[claim(claimed="+0.52")]), GAIN) == [
        *("+0.52 points", PRINTED, "+0.50 points (+0.25 to +0.75)", "supported", "0.006 (0.006)"),
        "6 runs, all 250 epochs, bf16",
    ]
    ours = "supported; smaller than printed"
    assert told(study(claims=[claim(claimed="+1.5")], epochs_given=[]), GAIN)[3:] == [
        *(ours, "0.006 (0.006)", "6 runs, all 250 epochs, the source gives none, bf16")
    ]


def test_the_last_epochs_effect_stands_beside_that_of_the_maximum() -> None:
    found = [*(run(PLAIN, seed, [99.0, 98.0]) for seed in range(2)), *runs(CBAM, [99.5, 99.5])]
    assert told(study(claims=[claim()]), found)[2].endswith("; in the last epoch +1.50")


def test_an_open_claim_has_the_seeds_that_would_decide_it() -> None:
    wide = [*runs(PLAIN, [97.0, 98.0, 99.0]), *runs(CBAM, [97.5, 98.5, 99.5])]
    assert told(study(claims=[claim(claimed="+0.9")]), wide)[-1].endswith("bf16, 22 seeds per network would decide it")


@pytest.mark.parametrize(
    ("estimate", "claimed", "margin", "texts"),
    [
        ("slope", "increase", None, ["an increase", "points/row"]),
        ("relative", "-50", None, ["−50 %", "%"]),
        ("factor", "2", None, ["2 times", "times"]),
        ("difference", "no decrease", "0.1", ["no decrease", "points"]),
        ("difference", "same", "0.1", ["no difference", "points"]),
    ],
)
def test_a_claims_unit_is_that_of_its_estimate(
    estimate: str, claimed: str, margin: str | None, texts: list[str]
) -> None:
    wanted, printed, measured, *_ = told(study(claims=[claim(estimate, claimed, margin=margin)]), GAIN)
    assert [wanted, re.sub(r"^[+−]?[\d.]+ | \(.*$", "", measured)] == texts
    assert texts[1] in printed


def test_p_values_of_several_claims_are_corrected_together() -> None:
    claims = [claim(text="One"), claim(text="Two", claimed="+0.52")]
    rows = claimed(study(claims=claims), GAIN)
    assert [one[4:6] for one in rows] == [["supported", "0.006 (0.013)"]] * 2
    weak = [*runs(PLAIN, NEAR), *runs(CBAM, [99.2, 99.3, 99.4])]
    rows = claimed(study(claims=claims), weak)
    assert rows[0][4] == "open (supported before correction)"


def test_a_claim_after_shorter_training_is_so_far() -> None:
    found = [*runs(SHORT, NEAR), *runs(f"{CBAM} budget.epochs=2", [99.4, 99.5, 99.6])]
    *_, verdict, p_value, origin = told(study(claims=[claim()]), found)
    assert (verdict, p_value, origin) == ("supported so far", "0.006 (0.006)", "6 runs, 2 of 250 epochs, bf16")
    *_, verdict, p_value, origin = told(study(claims=[claim()]), [found[0], found[3]])
    assert (verdict, p_value, origin) == ("open (one run)", "", "2 runs, 2 of 250 epochs, bf16")


def test_a_count_shows_each_of_several_pairs() -> None:
    counted = claim("relative", measure="parameters")
    assert told(study(claims=[counted]), [])[2:] == ["+0.1 %", "supported", "", "a count, no run"]
    rows = [*study().rows, row("C", "model=sabour_cnn data=mnist")]
    several = dataclasses.replace(counted, pairs=[["A", "B"], ["A", "C"]])
    assert told(study(*rows, claims=[several]), [])[2] == "+128.4 % (+0.1, +420.9)"


def test_a_count_of_rows_without_a_network_is_not_run() -> None:
    rows = [row("A", PLAIN), row("B", "model=sabour_cnn data=mnist"), row("C", None)]
    counted = claim("relative", measure="parameters")
    assert told(study(*rows, claims=[counted]), [], "routing.iterations=2")[2:] == ["", "not run", "", "no runs of B"]
    without = dataclasses.replace(counted, pairs=[["A", "C"]])
    assert told(study(*rows, claims=[without]), [])[2:] == ["", "not run", "", "no runs of C"]


def test_a_claim_without_a_measurement_has_its_reason() -> None:
    made = study(claims=[claim()])
    assert told(made, []) == ["an increase", "+0.10 points", "", "not run", "", ""]
    assert told(made, runs(PLAIN, [1.0])) == ["an increase", "+0.10 points", "", "not run", "", "no runs of B"]
    apart = [run(PLAIN, 0), run(CBAM, 1, precision="float32")]
    assert told(made, apart)[3:] == ["open", "", "no two rows in one setting"]
    untested = claim("difference", "", measure="accuracy", pairs=[], untested="No network\nhas it.")
    assert told(study(claims=[untested]), GAIN) == ["", "", "", "untested", "", "No network has it."]


# Other forms


def test_the_csv_has_unrounded_numbers() -> None:
    found = [*runs(PLAIN, [99.70, 99.71, 99.73]), *runs(SHORT, [1.0])]
    made = results(study(Row(["A", "MNIST"], PLAIN, {"accuracy": "99.80"}), columns=["network", "data"]), found)
    read = pd.read_csv(io.StringIO(csv(made)), keep_default_na=False, dtype=str)
    accuracy = read[read.measure == "accuracy"]
    assert list(read.columns[:6]) == ["study", "row", "data", "setting", "main", "protocol"]
    assert accuracy.row.tolist() == ["A", "A"]
    assert accuracy["mean"].tolist() == ["99.71333333333334", "1.0"]
    assert accuracy.seeds.tolist() == ["0 1 2", "0"]
    assert accuracy["values"].tolist() == ["99.7 99.71 99.73", "1.0"]
    assert accuracy.setting.tolist() == ["all 250 epochs, bf16", "2 of 250 epochs, bf16"]
    assert accuracy["keys"].tolist() == [" ".join(sorted(r.key for r in found[:3])), found[3].key]
    assert set(read.measure) == {*MEASURES, "parameters"}
    assert "\r" not in csv(made)
    made = results(study(Row(["A", "a GPU"], PLAIN, {}), columns=["network", "device"]), found)
    read = pd.read_csv(io.StringIO(csv(made)))
    assert (set(read["device (label)"]), set(read.device.dropna())) == ({"a GPU"}, {GPU})


def test_tex_is_balanced_and_escaped() -> None:
    label = r"50% of A_1 & {B}* #2 ~^\ [c] <d> ±−×…"
    made = study(row(label, PLAIN, accuracy="99.80"), row("[B]", CBAM), title=r"Costs $5 & 100%")
    tex = latex.document(page(results(made, [*runs(PLAIN, [99.7] * 3), *runs(SHORT, [1.0])])))
    assert r"50\% of A\_\allowbreak{}1 \& \{B\}{*} \#2 \textasciitilde{}\textasciicircum{}\textbackslash{}" in tex
    assert r"{[}c{]} \textless{}d\textgreater{} $\pm$$-$$\times$\ldots{}" in tex
    assert r"Costs \$5 \& 100\%" in tex
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 2
    for part in tex.split(r"\end{table}")[:-1]:
        alignment = re.search(r"\\begin\{tabularx\}\{\\linewidth\}\{(.*)\}\n", part)
        assert alignment is not None
        columns = alignment[1].replace(r">{\raggedright\arraybackslash}X", "l")
        assert set(columns) == {"l", "r"}
        rows = [line for line in part.splitlines() if line.endswith(r" \\")]
        assert len(rows) >= 2
        for line in rows:
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
            assert not line.lstrip().startswith(("[", "*"))
    bare = re.sub(r"\\[\\{}%&#_$]", "", tex)
    assert bare.count("{") == bare.count("}")
    assert re.sub(r"\$[^$]*\$", "", bare).count("$") == 0
    assert tex.isascii()


def test_numbers_after_shorter_training_are_marked_where_they_stand_below_others() -> None:
    made = study(row("A", PLAIN), row("B", CBAM), columns=["network"])
    accuracy, epochs, _ = page(results(made, [*runs(SHORT, [1.0]), *runs(CBAM, [2.0])])).tables
    place = accuracy.columns.index("maximum")
    assert [one[place] for one in accuracy.rows] == ["1.00 (1) † 2/250 ep", "2.00 (1)"]
    assert [one[epochs.columns.index("first epoch")] for one in epochs.rows] == ["≥ 1 (1) † 2/250 ep", "≥ 1 (1)"]
    assert all(any(note.text.startswith("†") for note in table.notes) for table in (accuracy, epochs))
    whole = page(results(made, runs(CBAM, [2.0]))).tables
    assert not any(
        "†" in text for table in whole for text in (*(note.text for note in table.notes), *chain(*table.rows))
    )


def test_a_printed_table_has_the_training_in_its_caption() -> None:
    made = study(row("A", PLAIN, accuracy="99.80"), row("B", CBAM), columns=["network"])
    one = latex.document(page(results(made, runs(SHORT, [1.0]))))
    assert "Training: 2 of 250 epochs, bf16." in one.partition(r"\label")[0]
    assert "network & published & maximum" in one
    assert "training" not in one.partition("toprule")[2].partition("midrule")[0]
    left_out = ("last epoch", "one more run", "verdicts.md")
    assert not any(name in one.partition(r"\end{table}")[0].lower() for name in left_out)
    two = latex.document(page(results(made, [*runs(SHORT, [1.0]), *runs(CBAM, [2.0])])))
    assert "Training: a: 2 of 250 epochs, bf16; b: all 250 epochs, bf16." in two
    assert r"1.00 (1) $\dagger$ 2/250 ep &" in two
    assert re.search(r"^A .* a \\\\$", two, re.MULTILINE)
    assert re.search(r"^B .* b \\\\$", two, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_the_committed_tables_are_tex_and_fit_a_page(tmp_path: Path) -> None:
    """In their own size, 7 points: nothing shrinks them."""
    tables = sorted((ROOT / "results" / "tables").glob("*.tex"))
    assert tables
    lines = [r"\documentclass{article}", r"\usepackage{booktabs,tabularx}", r"\begin{document}"]
    lines += [rf"\input{{{path}}}\clearpage" for path in tables]
    (tmp_path / "all.tex").write_text("\n".join([*lines, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout


@pytest.mark.parametrize(
    ("value", "places", "signed", "text"),
    [
        (-0.001, 2, True, "0.00"),
        (-1.25, 1, True, "−1.2"),
        (1234.5, 0, False, "1,234"),
        (0.126, 2, True, "+0.13"),
        (-0.04, 1, False, "0.0"),
    ],
)
def test_decimals(value: float, places: int, signed: bool, text: str) -> None:
    assert decimal(value, places, signed) == text


def test_a_cell_cannot_break_its_table() -> None:
    table = Table("", ["a|b", "c"], "lr", [["CapsNet*", "x\ny"], ["<b>", ""]])
    assert markdown.table(table) == "| a\\|b | c |\n| --- | --: |\n| CapsNet\\* | x y |\n| &lt;b> |  |"


def test_every_table_of_a_page_has_equal_rows() -> None:
    made = study(claims=[claim()], measures=["accuracy", "first_epoch", "first_five", "parameters"])
    text = printed(made, [*runs(PLAIN, [99.7] * 3), *runs(SHORT, [1.0]), run(f"{CBAM} protocol=heldout", 0)])
    for section in text.split("\n## ")[1:]:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in section.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, section


def test_a_substitution_is_in_the_title() -> None:
    assert "# A table, on data=fashion_mnist instead\n" in printed(study(), [], ["data=fashion_mnist", "paths.logs=x"])
    assert "# A table, only attention=cbam\n" in printed(study(), [], ["attention=cbam"])
    assert "# A table\n" in printed(study(), [], ["budget=paper"])


def test_the_same_records_give_the_same_bytes_in_any_order() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9]), *runs(SHORT, [1.0, 2.0]), *runs(PLAIN, [5.0], precision="float32")]
    made = study(claims=[claim()])
    assert page(results(made, found)) == page(results(made, found[::-1]))
    assert csv(results(made, found)) == csv(results(made, found[::-1]))


def test_another_experiment_is_called_so_first() -> None:
    assert f"# A table, on data=fashion_mnist instead\n\n**{pages.CAUTION}**" in printed(
        study(), [], ["data=fashion_mnist"]
    )
    assert pages.CAUTION not in printed(study(), [], ["budget=short"])


@pytest.mark.parametrize(
    ("word", "shown"),
    [("open", "open"), ("unstable", "unstable"), ("ceiling", "ceiling"), ("contradicted", "contradicted so far")],
)
def test_only_what_more_training_can_change_is_so_far(word: str, shown: str) -> None:
    assert verdict(MeasuredClaim(claim(), (), False, word, so_far="2 of 250 epochs")) == shown
    assert verdict(MeasuredClaim(claim(), (), False, word)) == word

"""The pages of studies, printed as Markdown, CSV and TeX."""

import io
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from made import CBAM, PLAIN, SWEPT, claim, results, row, run, runs, study
from support import ROOT

from capsexp.results import latex, markdown
from capsexp.results.collect import Results
from capsexp.results.page import Footnotes, Table, claim_sentence, decimal
from capsexp.results.pages import commands, page
from capsexp.results.runs import MEASURES
from capsexp.results.tables import csv
from capsexp.run.records import Record
from capsexp.study.studies import Row, Study

SHORT = f"{PLAIN} budget.epochs=2"


def cells(text: str, name: str, section: str = "Accuracy") -> dict[str, str]:
    """A row of one of a page's tables, by column."""
    part = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    header, _, *rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in part.splitlines() if line.startswith("|")]
    (found,) = (row for row in rows if row[0].partition(" [")[0] == name)
    return dict(zip(header, found, strict=True))


def printed(made: Study, found: Sequence[Record], typed: Sequence[str] = ()) -> str:
    return markdown.document(page(results(made, found, typed)))


def test_a_number_has_its_seeds_and_its_standard_deviation() -> None:
    found = cells(printed(study(), [*runs(PLAIN, [99.70, 99.72, 99.74]), *runs(CBAM, [98.5])]), "A")
    assert (found["published"], found["maximum"], found["difference"], found["verdict"]) == (
        *("99.80", "99.72 ± 0.02 (3)"),
        *("−0.08", "reproduced"),
    )
    one = cells(printed(study(), runs(CBAM, [98.5])), "B")
    assert (one["maximum"], one["last epoch"], one["verdict"]) == ("98.50 (1)", "98.50 (1)", "undecided")


def test_the_first_epoch_has_its_own_table() -> None:
    found = [run(PLAIN, seed, [0.0] * (first - 1) + [9.0]) for seed, first in enumerate((4, 6, 5))]
    one = cells(printed(study(), found), "A", "First epoch to the maximum")
    assert (one["published"], one["first epoch"], one["within 0.1 point"]) == ("7", "5.0 ± 1.0 (3)", "5.0 ± 1.0 (3)")
    assert (one["difference"], one["verdict"]) == ("−2.0", "reproduced")
    assert cells(printed(study(), found[:1]), "A", "First epoch to the maximum")["first epoch"] == "4 (1)"


def test_a_row_without_runs_is_empty() -> None:
    found = cells(printed(study(), runs(PLAIN, [99.0])), "B")
    assert found == {
        **{"network": "B", "published": "99.90", "maximum": "", "last epoch": ""},
        **{"difference": "", "verdict": ""},
    }


def test_every_cell_of_a_reduced_setting_has_a_footnote_that_is_explained() -> None:
    found = [*runs(SHORT, [99.0]), *runs(CBAM, [99.0]), *runs(CBAM, [9.0], note="a part")]
    text = printed(study(), found)
    reduced, whole = cells(text, "A"), cells(text, "B")
    assert [reduced[name] for name in ("maximum", "last epoch", "difference")] == [
        *("99.00 (1) [a]", "99.00 (1) [a]"),
        "−0.80 [a]",
    ]
    assert whole["maximum"] == "99.00 (1)"
    assert "\n- [a] 2 of 250 epochs, bf16\n" in text
    assert "\n- Unmarked: the paper's whole training, bf16" in text
    assert cells(text, "B", "Also measured")["maximum"] == "9.00 (1) [b]"
    for section in text.split("\n## ")[1:]:
        table_lines = [line for line in section.splitlines() if line.startswith("|")]
        used = {
            mark for line in table_lines for marks in re.findall(r"\[([a-z, ]+)\]", line) for mark in marks.split(", ")
        }
        assert used == set(re.findall(r"^- \[([a-z])\] ", section, re.MULTILINE))


def test_two_precisions_of_the_whole_training_both_have_footnotes() -> None:
    text = printed(study(), [*runs(PLAIN, [99.0]), *runs(CBAM, [99.0], precision="float32")])
    assert (cells(text, "A")["maximum"], cells(text, "B")["maximum"]) == ("99.00 (1) [a]", "99.00 (1) [b]")
    assert "[b] the paper's whole training, float32" in text


def test_failed_runs_are_counted() -> None:
    found = [*runs(PLAIN, [99.7, 99.8, 99.9, 99.8]), run(PLAIN, 4, failed=True), run(CBAM, 0, failed=True)]
    text = printed(study(), found)
    assert cells(text, "A")["maximum"] == "99.80 ± 0.08 (4), failed (1 of 5)"
    assert cells(text, "B")["maximum"] == "failed (1 of 1)"
    assert cells(text, "A", "First epoch to the maximum")["first epoch"].endswith(", failed (1 of 5)")


def test_the_best_of_several_has_a_footnote() -> None:
    made = study(row("A", SWEPT, accuracy="99"))
    found = [run(SWEPT.replace("1,2,3", str(i)), 0, [90.0 + i]) for i in (1, 2, 3)]
    assert "[a] best of 3 (routing.iterations=1,2,3), selected on the test set" in printed(made, found)
    fewer = printed(made, found[:2])
    assert cells(fewer, "A")["maximum"] == "92.00 (1) [a]"
    assert "[a] best of 2 of 3 (routing.iterations=1,2,3), selected on the test set" in fewer


def test_the_held_out_column_is_there_when_there_are_such_runs() -> None:
    plain = runs(PLAIN, [99.0])
    assert "held-out" not in cells(printed(study(), plain), "A")
    heldout = [run(f"{PLAIN} protocol=heldout", seed, [98.0], tested=97.0 + seed) for seed in (0, 1)]
    text = printed(study(), [*plain, *heldout])
    assert cells(text, "A")["held-out"] == "97.50 ± 0.71 (2)"
    assert cells(text, "A")["maximum"] == "99.00 (1)"


def test_a_rows_note_is_a_footnote() -> None:
    text = printed(study(row("A", PLAIN, "Printed twice.", accuracy="99")), [])
    assert "| A [a] |" in text
    assert "[a] Printed twice." in text


def test_costs() -> None:
    made = study(
        row("A", PLAIN, parameters="6.8", memory="not reported", inference="2.5"),
        measures=["parameters", "memory", "inference"],
    )
    found = [
        *runs(PLAIN, [99.0, 99.0]),
        run(f"{PLAIN} budget.width=0.5", 0, parameters=1_000_000),
    ]
    text = printed(made, found)
    assert cells(text, "A", "Cost") == {
        **{"network": "A", "published parameters": "6.8M", "parameters": "6,804,224", "verdict": "equal"},
        **{"published ms / 128 images": "2.5", "ms / 128 images": "128.00 ± 0.00 (2)", "published MB": "not reported"},
        **{"MB, device / host": "1,000 / 2,000", "s / epoch": "60.0 ± 0.0 (2)", "device": "NVIDIA H200"},
    }
    narrow = cells(printed(made, found[2:]), "A", "Cost")
    assert (narrow["parameters"], narrow["verdict"]) == ("1,000,000 [a]", "")
    short = cells(printed(made, [run(SHORT, 0)]), "A", "Cost")
    assert (short["parameters"], short["verdict"], short["s / epoch"]) == ("6,804,224", "equal", "60.0 (1) [a]")


def test_the_mean_of_the_first_five_epochs() -> None:
    made = study(row("A", PLAIN, first_five="99.10"), measures=["accuracy", "first_five"])
    found = [run(PLAIN, seed, [99.0 + seed] * 5) for seed in range(3)]
    one = cells(printed(made, found), "A", "First epoch to the maximum")
    assert (one["published, epochs 1–5"], one["epochs 1–5"]) == ("99.10", "100.00 ± 1.00 (3)")
    assert (one["difference"], one["verdict"]) == ("+0.90", "reproduced")


def test_the_hours_of_each_run_count_once() -> None:
    found = [*runs(PLAIN, [99.0] * 3), run(CBAM, 0, [99.0] * 120, device="AMD EPYC")]
    assert "4 runs, 2.0 hours on AMD EPYC, 3 minutes on NVIDIA H200." in printed(study(), found)
    both = study(row("A", PLAIN), row("again", f"{PLAIN} model.squash_constant=1.0"))
    assert "1 run, 1 minute on NVIDIA H200." in printed(both, runs(PLAIN, [99.0]))


def test_commands_are_those_of_the_records_or_of_the_row() -> None:
    found = [*runs(PLAIN, [99.0, 99.0]), run(f"{CBAM} budget.epochs=2", 7, command=None)]
    found += [run(f"{CBAM} budget.epochs=2 protocol=heldout", 8, [9.0], command=None)]
    third = row("C", f"{PLAIN} routing.iterations=1,2")
    assert list(commands(results(study(*study().rows, third), found))) == [
        f"python -m capsexp -m {PLAIN} trainer.precision=bf16 seed=0,1",
        f"python -m capsexp {CBAM} budget.epochs=2 trainer.precision=bf16 seed=7",
        f"python -m capsexp {CBAM} budget.epochs=2 trainer.precision=bf16 protocol=heldout seed=8",
        f"python -m capsexp -m {PLAIN} routing.iterations=1,2 seed=0,1,2",
    ]
    typed = ["data=fashion_mnist", "paths.results=/elsewhere", "seed=5"]
    assert list(commands(results(study(row("A", PLAIN)), [], typed))) == [
        "python -m capsexp -m model=capsnet attention=none data=fashion_mnist seed=0,1,2"
    ]


def test_a_command_has_the_names_of_its_rows() -> None:
    same = [row("A", PLAIN), row("again", f"{PLAIN} model.squash_constant=1.0"), row("B", CBAM)]
    assert list(commands(results(study(*same), runs(PLAIN, [99.0, 98.0]))).values()) == [["A", "again"], ["B"]]


def test_records_with_different_commands_are_repeated_by_the_row() -> None:
    found = [run(PLAIN, 0), run(PLAIN, 1, command="python -m capsexp data=mnist seed=1")]
    repeated = [f"python -m capsexp -m {PLAIN} trainer.precision=bf16 seed=0,1"]
    assert list(commands(results(study(row("A", PLAIN)), found))) == repeated


def test_a_typed_precision_stands_once_in_the_command() -> None:
    typed = f"{PLAIN} trainer.precision=float32"
    found = [run(typed, 3, precision="float32", command=f"python -m capsexp {typed} seed=3")]
    assert list(commands(results(study(row("A", PLAIN)), found))) == [f"python -m capsexp {typed} seed=3"]


# Claims


def sentences(made: Results) -> list[str]:
    """The claims as on the page, without footnotes."""
    claims = page(made).claims
    assert claims is not None
    return [re.sub(r" \[[a-z]\]$", "", "".join(claim_sentence(*row))) for row in claims.rows]


def test_claims_as_sentences() -> None:
    found = [*runs(PLAIN, [1.0, 2.0, 3.0]), *runs(CBAM, [2.0, 4.0, 6.0])]
    assert sentences(results(study(claims=[claim(claimed="+2.52")]), found)) == [
        "B is better: claimed +2.52 points, measured +2.00 ± 2.48 points (95 %, n = 3): not reproduced"
    ]
    assert sentences(results(study(claims=[claim("relative", "-50")]), found)) == [
        "B is better: claimed −50 %, measured +100.0 ± 0.0 % (95 %, n = 3): contradicted"
    ]
    assert sentences(results(study(claims=[claim("slope", "same")]), found[:5])) == [
        "B is better: claimed no difference, measured +1.50 ± 6.35 points a row (95 %, n = 2): undecided"
    ]


def test_a_claim_without_a_measurement_has_its_reason() -> None:
    made, short = study(claims=[claim()]), "budget.epochs=2"
    assert sentences(results(made, [])) == ["B is better: claimed an increase: not run"]
    assert sentences(results(made, runs(PLAIN, [1.0]))) == ["B is better: claimed an increase: not run (B)"]
    apart = [run(PLAIN, 0), run(CBAM, 1)]
    assert sentences(results(made, apart))[0].endswith("an increase: no seed that its rows have in one setting")
    text = printed(made, [*runs(f"{PLAIN} {short}", [1.0]), *runs(f"{CBAM} {short}", [2.0])])
    assert "claimed an increase, measured +1.00 points (n = 1): **undecided** (reduced training) [a]\n" in text


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
    assert accuracy.setting.tolist() == ["the paper's whole training, bf16", "2 of 250 epochs, bf16"]
    assert accuracy["keys"].tolist() == [" ".join(sorted(r.key for r in found[:3])), found[3].key]
    assert set(read.measure) == {*MEASURES, "parameters"}
    assert "\r" not in csv(made)


def test_tex_is_balanced_and_escaped() -> None:
    label = r"50% of A_1 & {B}* #2 ~^\ [c] <d> ±−×…"
    made = study(row(label, PLAIN, accuracy="99.80"), row("[B]", CBAM), title=r"Costs $5 & 100%")
    tex = latex.document(page(results(made, [*runs(PLAIN, [99.7] * 3), *runs(SHORT, [1.0])])))
    assert r"50\% of A\_1 \& \{B\}{*} \#2 \textasciitilde{}\textasciicircum{}\textbackslash{}" in tex
    assert r"{[}c{]} \textless{}d\textgreater{} $\pm$$-$$\times$\ldots{}" in tex
    assert r"Costs \$5 \& 100\%" in tex
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 2
    for part in tex.split(r"\end{table}")[:-1]:
        alignment = re.search(r"\\begin\{tabular\}\{([lr]+)\}", part)
        assert alignment is not None
        rows = [line for line in part.splitlines() if line.endswith(r" \\")]
        assert len(rows) >= 2
        for line in rows:
            assert len(re.findall(r"(?<!\\)&", line)) == len(alignment[1]) - 1
            assert not line.lstrip().startswith(("[", "*"))
    bare = re.sub(r"\\[\\{}%&#_$]", "", tex)
    assert bare.count("{") == bare.count("}")
    assert re.sub(r"\$[^$]*\$", "", bare).count("$") == 0
    assert tex.isascii()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_the_committed_tables_are_tex_and_fit_a_page(tmp_path: Path) -> None:
    tables = sorted((ROOT / "results" / "tables").glob("*.tex"))
    assert tables
    lines = [r"\documentclass{article}", r"\usepackage{booktabs,graphicx}", r"\begin{document}"]
    lines += [rf"\input{{{path}}}\clearpage" for path in tables]
    (tmp_path / "all.tex").write_text("\n".join([*lines, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_letters_go_on_after_z() -> None:
    notes = Footnotes([])
    texts = [notes.mark("1", f"meaning {index}") for index in range(27)]
    assert (texts[0], texts[22:]) == ("1 [a]", ["1 [w]", "1 [y]", "1 [z]", "1 [aa]", "1 [ab]"])
    assert [line.split()[0] for line in notes.texts()][-2:] == ["[aa]", "[ab]"]
    assert notes.texts() == []


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
    assert markdown.table(table) == "| a\\|b | c |\n| --- | --: |\n| CapsNet\\* | x y |\n| \\<b> |  |"


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

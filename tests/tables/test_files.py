"""scripts/aggregate.py: which files it writes, what it escapes, and what it refuses."""

import csv
import html
import io
import os
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from made import CBAM, GPU, PLAIN, SHORT, claim, project, results, row, run, runs, study, write
from markdown_it import MarkdownIt
from support import Program

from capsexp.results.measures import MEASURES
from capsexp.study.studies import Claim, Row
from capsexp.tables import files, index, markdown
from capsexp.tables.files import regenerate
from capsexp.tables.index import BEGIN, END

SCRIPT = "scripts/aggregate.py"
ROWS = {"A": PLAIN, "B": CBAM}
BEFORE, AFTER = "# Before\n\n", "\n\nafter\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two small studies and three runs of the first, as the present folder."""
    monkeypatch.setattr(files, "ROOT", tmp_path)
    write(tmp_path / "results", runs(PLAIN, [99.7, 99.8, 99.9]))
    (tmp_path / "README.md").write_text(f"{BEFORE}{BEGIN}\nstale\n{END}{AFTER}")
    return project(tmp_path, monkeypatch, one=PLAIN, two=CBAM)


def contents(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("results/tables/*"), *folder.glob("results/*.md"), folder / "README.md"]
    return {str(path.relative_to(folder)).removeprefix("results/tables/"): path.read_bytes() for path in paths}


def test_it_writes_two_files_a_study_the_index_and_the_readmes_block(folder: Path, program: Program) -> None:
    write(folder / "results", [run(PLAIN.replace("mnist", "fashion_mnist"), 0), run(f"{PLAIN} budget=smoke", 0)])
    code, printed, _ = program(SCRIPT)
    names = {f"{name}.{suffix}" for name in ("one", "two") for suffix in ("md", "csv")}
    assert code == 0
    assert set(contents(folder)) == {*names, "results/README.md", "README.md"}
    readme = (folder / "README.md").read_text()
    assert readme.startswith(f"{BEFORE}{BEGIN}\n\n**No claims.**\n\n[All claims](results/README.md); ")
    assert readme.endswith(f"\n\n{END}{AFTER}")
    assert "stale" not in readme
    written = ["README.md", "results/README.md", *(f"results/tables/{name}" for name in names)]
    assert sorted(printed[:-1]) == sorted(f"wrote {name}" for name in written)
    assert printed[-1] == "results/runs: 2 records in no table"


def test_the_second_time_nothing_is_written(folder: Path, program: Program) -> None:
    program(SCRIPT)
    before = contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    code, printed, _ = program(SCRIPT)
    assert (code, len(printed)) == (0, 1)
    assert (contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}) == before
    (page := folder / "results" / "tables" / "one.csv").unlink()
    os.mkfifo(page)  # to which nobody writes
    assert (program(SCRIPT)[0], contents(folder)) == (0, before[0])


def test_a_readme_without_the_block_is_left_alone(folder: Path) -> None:
    readme = folder / "README.md"
    for text in ("# Mine\n", f"{BEGIN} without an end", f"{END} before {BEGIN}"):
        readme.write_text(text)
        regenerate(results=folder / "results", readme=readme)
        assert readme.read_text() == text
    readme.unlink()
    regenerate(results=folder / "results", readme=readme)
    assert not readme.exists()


@pytest.mark.parametrize("names", [[], ["one"]])
def test_empty_tables_say_which_folder_was_read_and_what_it_has(
    names: list[str], folder: Path, program: Program
) -> None:
    (folder / "demo").mkdir()
    code, _, errors = program(SCRIPT, *names, "--results=demo")
    assert (code, errors) == (0, ["demo/runs: 0 records"])
    write(folder / "demo", [run(PLAIN.replace("mnist", "mnist_sample"), 0)])
    code, _, (line,) = program(SCRIPT, *names, "--results=demo")
    hint = "; none belongs to these tables (with data=mnist_sample they may)"
    assert (code, line) == (0, f"demo/runs: 1 record{hint}")
    assert program(SCRIPT, *names, "data=mnist_sample", "--results=demo")[2] == []


def test_a_check_finds_what_differs_and_writes_nothing(folder: Path, program: Program) -> None:
    program(SCRIPT)
    assert program(SCRIPT, "--check")[0] == 0
    (folder / "results" / "tables" / "one.csv").write_text("edited")
    write(folder / "results", runs(CBAM, [99.0]))
    before = contents(folder)
    code, _, errors = program(SCRIPT, "--check")
    changed = [*(f"results/tables/{name}" for name in ("one.csv", "two.csv", "two.md")), "results/README.md"]
    assert code == 1
    assert sorted(errors) == sorted(f"error: {name}: not what the records give; make tables" for name in changed)
    assert contents(folder) == before


def test_a_damaged_record_is_named_and_the_rest_is_written(folder: Path, program: Program) -> None:
    (folder / "results" / "runs" / "a.json").write_text("[1, 2]")
    code, _, (error,) = program(SCRIPT)
    assert code == 1
    assert error.startswith("error: results/runs/a.json: not a record")
    assert "99.80\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.10" in (folder / "results" / "tables" / "one.md").read_text()
    assert program(SCRIPT, "--check")[0] == 1


def test_a_page_of_a_study_outside_this_search_path_stays(folder: Path, program: Program) -> None:
    program(SCRIPT)
    (folder / "conf" / "study" / "two.yaml").unlink()
    assert program(SCRIPT)[0] == 0
    assert {"two.md", "two.csv"} < set(contents(folder))
    assert program(SCRIPT, "--check")[0] == 0


def test_one_study_is_printed_and_leaves_the_others_alone(folder: Path, program: Program) -> None:
    code, printed, _ = program(SCRIPT, "one")
    assert code == 0
    assert set(contents(folder)) == {"one.md", "one.csv", "README.md"}
    assert "stale" in (folder / "README.md").read_text()
    assert printed[:2] == ["A table", "made, Table 1. 3 runs, 12.5 hours."]


def test_latex_has_the_table_with_its_training(folder: Path) -> None:
    made = study(row("[B] ±", PLAIN, accuracy="99.80"), row("B", CBAM), title=r"Costs $5 & 100%")
    tex = files.latex(results(made, [*runs(PLAIN, [99.7, 99.8]), *runs(CBAM, [1.0])]))
    assert r"\caption{Costs \$5 \& 100\% made, Table 1. 3 runs, 3 minutes. Trained: the paper's training, " in tex
    assert r"{[}B] $\pm$ & 99.80 & 99.75 $\pm$ 0.07 &" in tex


def test_latex_is_printed_and_nothing_written(folder: Path, program: Program) -> None:
    code, printed, _ = program(SCRIPT, "one", "--latex")
    assert (code, printed[0], printed[-1]) == (0, r"\begin{table}", r"\end{table}")
    assert set(contents(folder)) == {"README.md"}


def test_what_is_typed_is_printed_and_written_only_to_a_named_folder(folder: Path, program: Program) -> None:
    write(folder / "results", runs(PLAIN.replace("mnist", "fashion_mnist"), [88.0]))
    program(SCRIPT)
    before = contents(folder)
    code, printed, _ = program(SCRIPT, "one", "data=fashion_mnist")
    assert code == 0
    assert [line for line in printed if "88.00" in line]
    assert contents(folder) == before
    assert program(SCRIPT, "one", "data=fashion_mnist", "--output", "there")[0] == 0
    assert "88.00" in Path("there/one.md").read_text()


def test_a_selection_of_rows_is_written_where_it_is_told_alone(folder: Path, program: Program) -> None:
    rows = [{"labels": [name], "run": words, "published": {"accuracy": "99.80"}} for name, words in ROWS.items()]
    path = folder / "conf" / "study" / "two.yaml"
    content = yaml.safe_load(path.read_text())
    content["rows"] = rows
    path.write_text(yaml.safe_dump(content))
    code, printed, _ = program(SCRIPT, "two", "attention=none", "--output", "there")
    assert (code, printed[0]) == (0, "A table – only attention=none")
    assert "only attention=none" in Path("there/two.md").read_text()
    assert program(SCRIPT, "two", "attention=none")[0] == program(SCRIPT, "two:A")[0] == 0
    assert not (folder / "results" / "tables" / "two.md").exists()


def test_other_results_have_tables_of_their_own_of_studies_with_runs(folder: Path, program: Program) -> None:
    (folder / "results").rename(folder / "others")
    assert program(SCRIPT, "--results", "others")[0] == 0
    assert {path.name for path in (folder / "others" / "tables").iterdir()} == {"one.md", "one.csv"}
    assert "stale" in (folder / "README.md").read_text()
    assert program(SCRIPT, "--results", "others", "--output", "here")[0] == 0
    assert {path.name for path in (folder / "here").iterdir()} == {"one.md", "one.csv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["oen"], "oen: no such study; did you mean one?"),
        (["one", "dta=mnist"], "did you mean data?"),
        (["--results=nowhere"], "nowhere: no such folder"),
        (["--latex"], "--latex: for one study"),
        (["--latex", "one", "two"], "--latex: for one study"),
        (["--latex", "one", "--output=here"], "--latex: writes nothing"),
    ],
)
def test_wrong_input(folder: Path, program: Program, arguments: list[str], message: str) -> None:
    code, printed, (error,) = program(SCRIPT, *arguments)
    assert (code, printed) == (2, [])
    assert message in error
    assert set(contents(folder)) == {"README.md"}


def test_an_index_that_somebody_wrote_is_left_alone_and_elsewhere_there_is_none(folder: Path) -> None:
    """`--output tables` must not replace the README beside that folder."""
    mine = folder / "results" / "README.md"
    mine.write_text("mine")
    regenerate(results=folder / "results", output=folder / "results" / "tables")
    assert mine.read_text() == "mine"
    mine.unlink()
    (folder / "README.md").unlink()
    regenerate(results=folder / "results", output=folder / "tables")
    assert not list(folder.rglob("README.md"))


def test_a_page_has_the_pictures_that_were_drawn(folder: Path) -> None:
    (folder / "results" / "figures").mkdir()
    (folder / "results" / "figures" / "two_light.svg").touch()
    regenerate(results=folder / "results", output=folder / "results" / "tables")
    pages = [(folder / "results" / "tables" / f"{name}.md").read_text() for name in ("one", "two")]
    assert ["../figures/" in text for text in pages] == [False, True]
    assert '<img src="../figures/two_light.svg"' in pages[1]


# Texts of studies and records, which anybody can have written

HOSTILE = [
    "<script>alert(1)</script>",
    "[here](javascript:alert(1)) ![](http://localhost/x.png) &lt;b&gt;",
    r"\input{/etc/passwd}",
    "=cmd|'/C calc'!A0",
    "here](http://localhost) [there",
    f"x {END} {BEGIN} <!-- a comment --> y </details>",
    "-2+3+cmd|' /C calc'!A0",
    "\t@SUM(1+1)*cmd|' /C calc'!A0",
    r"\\ \end{tabular} \write18{x} ^^41",
    "$x$ 100% of A & B_1_ #2 ~~z~~ {",
    "*bold* __bold__ `code` a|b",
    "```\n\n# a heading\n\n<img src=x>\n\n- a list\n\n---\n",
    "1. a list",
    "> a quotation",
    "\x1b]0;title\x07\x1b[31m\u202e red",
]


def shown(text: str) -> str:
    """A text as pages have it: on one line, control characters as escapes."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in " ".join(text.split()))


@pytest.mark.parametrize("text", [*HOSTILE[:5], *(pytest.param(text, marks=pytest.mark.slow) for text in HOSTILE[5:])])
def test_texts_are_escaped_for_where_they_are_shown(text: str, tmp_path: Path) -> None:
    rows = [Row([text], PLAIN, {"accuracy": "99.80"}, text), row("B", CBAM)]
    claims = [claim(text=text, question=text, pairs=[[text, "B"]]), Claim(text, untested=text)]
    fields = dict.fromkeys(("title", "source", "table", "protocol", "remark"), text)
    made = study(*rows, claims=claims, deviations=[text], **fields)
    found = [*runs(PLAIN, [9.0, 9.1], note=text, device=text), run(CBAM, 8, failed=True, error=text, note=text)]
    measured = results(made, [*found, *runs(f"{CBAM} {SHORT}", [8.0])])
    (tmp_path / "README.md").write_text(f"{BEGIN}{END}")
    readme = index.filled(tmp_path / "README.md", [measured])
    texts = {"page": markdown.document(measured), "index": index.index([measured], 0), "README": readme}

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    own = re.compile(r"</?(details|sup)>|<!-- (made by|until here)[^>]*-->|<summary>[\w ]*</summary>|\n")
    for name, document in texts.items():
        tokens = parser.parse(document)
        tokens += [child for token in tokens for child in token.children or []]
        assert {own.sub("", token.content) for token in tokens if token.type.startswith("html")} <= {""}
        links = [str(token.attrs["href"]) for token in tokens if token.type == "link_open"]
        ours = ("..", "#", "docs/", "results/", "tables/", "runs", "made_table1")
        assert [link for link in links if not link.startswith(ours)] == []
        assert not {"image", "code_inline", "em_open", "s_open", "blockquote_open"} & {token.type for token in tokens}
        assert not [token for token in tokens if token.type in ("ordered_list_open", "hr")]
        assert shown(text) in html.unescape(parser.render(document)), name
    assert readme.count(END) == 1

    for line in csv.DictReader(files.csv(measured).splitlines()):
        assert None not in line
        cells = [cell for cell in line.values() if not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell)]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]

    tex = files.latex(measured)
    assert not re.search(r"\\(input|write)", tex)
    assert tex.count(r"\end{tabular}") == tex.count(r"\begin{tabular}") == 1
    assert not re.search(r"(?<!\\)(\\\\)*[%#~]", tex)


def test_the_csv_has_six_digits_of_each_number_of_each_setting() -> None:
    found = [*runs(PLAIN, [99.70, 99.71, 99.73]), *runs(f"{PLAIN} {SHORT}", [1.0])]
    made = results(study(Row(["A", "MNIST"], PLAIN, {"accuracy": "99.80"}), columns=["network", "data"]), found)
    read = pd.read_csv(io.StringIO(files.csv(made)), keep_default_na=False, dtype=str)
    columns = ["row", "data", "setting", "training", "mean", "seeds", "values", "keys"]
    keys = [" ".join(sorted(one.key for one in found[:3])), found[3].key]
    assert read[read.measure == "accuracy"][columns].to_numpy().tolist() == [
        ["A", "MNIST", "paper", "250 epochs, bf16", "99.7133", "0 1 2", "99.7 99.71 99.73", keys[0]],
        ["A", "MNIST", "laptop", "2 of 250 epochs, bf16", "1.0", "0", "1.0", keys[1]],
    ]
    assert set(read.measure) <= {*MEASURES}
    assert "\r" not in files.csv(made)
    made = results(study(Row(["A", "a GPU"], PLAIN, {}), columns=["network", "device"]), found)
    read = pd.read_csv(io.StringIO(files.csv(made)))
    assert (set(read["device (label)"]), set(read.device.dropna())) == ({"a GPU"}, {GPU})


@pytest.mark.parametrize(
    ("new", "same"), [("99.7134,121.0", True), ("99.7135,121.0", False), ("99.7133,122.0", False), ("99.7133,", False)]
)
def test_a_check_compares_the_numbers_of_a_csv_file_as_numbers(new: str, same: bool, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("99.7133,121.0")
    assert files.update({path: new}, check=False) == [path] * (not same)
    assert path.read_text() == ("99.7133,121.0" if same else new)

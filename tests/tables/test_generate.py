"""scripts/aggregate.py: which files it writes, what it escapes, and what it refuses."""

import csv
import html
import re
from pathlib import Path

import pytest
from made import CBAM, PLAIN, project, run, runs, write
from markdown_it import MarkdownIt
from support import Program

from capsexp.tables.generate import regenerate

SCRIPT = "scripts/aggregate.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small studies and three runs of the first, as the present one."""
    write(tmp_path / "results", runs(PLAIN, [99.7, 99.8, 99.9]))
    (tmp_path / "README.md").write_text('# Before\n\nOf [old](results/README.md "claims") claims [none](docs/x)\n')
    return project(tmp_path, monkeypatch, one=PLAIN, two=CBAM)


def contents(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("results/tables/*"), *folder.glob("results/*.md"), folder / "README.md"]
    return {str(path.relative_to(folder)).removeprefix("results/tables/"): path.read_bytes() for path in paths}


def test_it_writes_three_files_a_study_the_index_and_the_readme(folder: Path, program: Program) -> None:
    write(folder / "results", [run(PLAIN.replace("mnist", "fashion_mnist"), 0), run(f"{PLAIN} budget=smoke", 0)])
    code, printed, _ = program(SCRIPT)
    names = {f"{name}.{suffix}" for name in ("one", "two") for suffix in ("md", "csv", "tex")}
    assert code == 0
    assert set(contents(folder)) == {*names, "results/README.md", "README.md"}
    assert (
        folder / "README.md"
    ).read_text() == '# Before\n\nOf [0](results/README.md "claims") claims [none](docs/x)\n'
    assert "Records of no study: 1." in (folder / "results" / "README.md").read_text()
    written = ["README.md", "results/README.md", *(f"results/tables/{name}" for name in names)]
    assert sorted(printed[:-1]) == sorted(f"wrote {name}" for name in written)
    assert printed[-1] == "results/runs: 1 record of no study, 1 trial of a few steps"


def test_the_second_time_nothing_is_written(folder: Path, program: Program) -> None:
    program(SCRIPT)
    before = contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    code, printed, _ = program(SCRIPT)
    assert (code, len(printed)) == (0, 1)
    assert (contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}) == before


@pytest.mark.parametrize("names", [[], ["one"]])
def test_empty_tables_say_which_folder_was_read_and_what_it_has(
    names: list[str], folder: Path, program: Program
) -> None:
    words = PLAIN.replace("mnist", "mnist_sample")
    write(folder / "demo", [run(f"{words} budget=smoke", 0)])
    left_out = "without 1 trial of a few steps"
    code, _, errors = program(SCRIPT, *names, "--results=demo")
    assert (code, errors) == (0, [f"demo/runs: 0 records, {left_out}"])
    write(folder / "demo", [run(words, 0)])
    code, _, (line,) = program(SCRIPT, *names, "--results=demo")
    hint = "; none belongs to these tables (with data=mnist_sample they may)"
    assert (code, line) == (0, f"demo/runs: 1 record, {left_out}{hint}")
    assert program(SCRIPT, *names, "data=mnist_sample", "--results=demo")[2] == []


def test_a_check_finds_what_differs_and_writes_nothing(folder: Path, program: Program) -> None:
    program(SCRIPT)
    assert program(SCRIPT, "--check")[0] == 0
    (folder / "results" / "tables" / "one.csv").write_text("edited")
    write(folder / "results", runs(CBAM, [99.0]))
    before = contents(folder)
    code, _, errors = program(SCRIPT, "--check")
    changed = [
        *(f"results/tables/{name}" for name in ("one.csv", "two.csv", "two.md", "two.tex")),
        "results/README.md",
    ]
    assert code == 1
    assert sorted(errors) == sorted(f"error: {name}: not what the records give; make tables" for name in changed)
    assert contents(folder) == before


def test_a_damaged_record_is_named_and_the_rest_is_written(folder: Path, program: Program) -> None:
    (folder / "results" / "runs" / "a.json").write_text("[1, 2]")
    code, _, (error,) = program(SCRIPT)
    assert code == 1
    assert error.startswith("error: results/runs/a.json: not a record")
    assert "99.80 ± 0.10 (3)" in (folder / "results" / "tables" / "one.md").read_text()
    assert program(SCRIPT, "--check")[0] == 1


def test_records_of_another_machine_are_taken_in_before_the_tables(folder: Path, program: Program) -> None:
    (sent,) = write(folder / "there", runs(CBAM, [98.7]))
    code, printed, errors = program(SCRIPT, "--take-in", "there")
    assert (code, errors) == (0, [])
    assert printed[:2] == [
        f"took results/runs/{sent.name}",
        "1 record taken in from there, 0 were here, 0 refused",
    ]
    assert "98.70 (1)" in (folder / "results" / "tables" / "two.md").read_text()
    sent.write_text("[1, 2]")
    code, printed, (error,) = program(SCRIPT, "--take-in", "there")
    assert (code, printed[0]) == (1, "0 records taken in from there, 0 were here, 1 refused")
    assert error.startswith(f"error: there/runs/{sent.name}: not a record")


def test_files_of_removed_studies_are_removed_and_no_others(folder: Path, program: Program) -> None:
    program(SCRIPT)
    (folder / "results" / "tables" / "notes.md").write_text("not generated\n")
    (folder / "conf" / "study" / "two.yaml").unlink()
    assert program(SCRIPT, "--check")[0] == 1
    assert (folder / "results" / "tables" / "two.md").exists()
    assert program(SCRIPT)[0] == 0
    assert set(contents(folder)) == {"one.md", "one.csv", "one.tex", "notes.md", "results/README.md", "README.md"}
    assert program(SCRIPT, "--check")[0] == 0


def test_one_study_is_printed_and_leaves_the_others_alone(folder: Path, program: Program) -> None:
    code, printed, _ = program(SCRIPT, "one")
    assert code == 0
    assert set(contents(folder)) == {"one.md", "one.csv", "one.tex", "README.md"}
    assert "old" in (folder / "README.md").read_text()
    assert (folder / "results" / "tables" / "one.md").read_text() in "\n".join(printed)


def test_other_data_is_printed_and_written_only_to_a_named_folder(folder: Path, program: Program) -> None:
    write(folder / "results", runs(PLAIN.replace("mnist", "fashion_mnist"), [88.0]))
    code, printed, _ = program(SCRIPT, "one", "data=fashion_mnist")
    assert code == 0
    assert "| A | 99.80 | 88.00 (1) | 88.00 (1) | −11.80 | open (one run) | all 250 epochs, bf16 |" in printed
    assert set(contents(folder)) == {"README.md"}
    assert program(SCRIPT, "one", "data=fashion_mnist", "--output", "elsewhere")[0] == 0
    assert "88.00 (1)" in Path("elsewhere/one.md").read_text()


def test_other_results_have_tables_of_their_own(folder: Path, program: Program) -> None:
    (folder / "results").rename(folder / "others")
    assert program(SCRIPT, "--results", "others")[0] == 0
    assert (folder / "others" / "tables" / "one.md").exists()
    assert "old" in (folder / "README.md").read_text()
    assert program(SCRIPT, "--results", "others", "--output", "here")[0] == 0
    assert (folder / "here" / "one.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["oen"], "oen: no such study; did you mean one?"),
        (["one", "dta=mnist"], "did you mean data?"),
        (["--take-in", "nowhere"], "nowhere: no such folder"),
        (["--take-in", ".", "--check"], "--check writes nothing: leave --take-in out"),
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


HOSTILE = [
    "<script>alert(1)</script>",
    "x <!-- a comment --> y",
    "=cmd|'/C calc'!A0",
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
    r"\input{/etc/passwd}",
    r"\\ \end{tabular} \write18{x} ^^41",
    "$x$ 100% of A & B_1_ #2 ~~z~~ {",
    "[here](javascript:alert(1)) ![](http://localhost/x.png) &lt;b&gt;",
    "*bold* __bold__ `code` a|b",
    "```\n\n# a heading\n\n<img src=x>\n\n- a list\n\n---\n",
    "# a heading",
    "1. a list",
    "> a quotation",
    "\x1b]0;title\x07\x1b[31m\u202e red",
]


def shown(text: str) -> str:
    """A text as pages have it: on one line, control characters as escapes."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in " ".join(text.split()))


@pytest.mark.parametrize("text", [*HOSTILE[:3], *(pytest.param(text, marks=pytest.mark.slow) for text in HOSTILE[3:])])
def test_texts_of_records_are_escaped_for_where_they_are_shown(text: str, folder: Path, program: Program) -> None:
    command = f"python -m capsexp {CBAM} 'x={text.replace(chr(39), '')}' seed=9"
    found = run(CBAM, 9, [10.0], note=text, device=text, command=command)
    write(folder / "results", [found, run(CBAM, 8, failed=True, error=text, note=text, device=text)])
    assert program(SCRIPT)[0] == 0
    once = contents(folder)
    assert program(SCRIPT)[0] == 0
    assert contents(folder) == once
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    own = re.compile(r"<br>|</?details>|<!-- [^>]*-->|<summary>[\w ]*</summary>|\n")
    for name in ("two.md", "results/README.md", "README.md"):
        tokens = parser.parse(once[name].decode())
        tokens += [child for token in tokens for child in token.children or []]
        assert {own.sub("", token.content) for token in tokens if token.type.startswith("html")} <= {""}
        links = [str(token.attrs["href"]) for token in tokens if token.type == "link_open"]
        assert [link for link in links if not link.startswith(("..", "docs/", "results/", "tables/", "runs"))] == []
        assert not {"image", "code_inline", "em_open", "s_open", "blockquote_open"} & {token.type for token in tokens}
        assert not [token for token in tokens if token.type in ("ordered_list_open", "hr")]
    assert shown(text) in html.unescape(parser.render(once["two.md"].decode()))
    for line in csv.DictReader(once["two.csv"].decode().splitlines()):
        assert None not in line
        cells = [cell for cell in line.values() if not re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", cell)]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    tex = once["two.tex"].decode()
    assert "all 250 epochs" not in tex  # the training's name is the text
    assert not re.search(r"\\(input|write)", tex)
    assert tex.count(r"\end{tabular}") == tex.count(r"\begin{tabular}")
    assert not re.search(r"(?<!\\)(\\\\)*[%#~]", tex.replace("{%\n", "{\n"))

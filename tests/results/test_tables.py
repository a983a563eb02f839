"""scripts/aggregate.py: which files it writes, and what it refuses."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made import CBAM, PLAIN, run, runs, write
from support import ROOT

from capsexp.errors import InputError
from capsexp.results import readme
from capsexp.study import studies

SCRIPT = ROOT / "scripts" / "aggregate.py"

STUDY = """
mode: MULTIRUN
sweeper:
  study:
    title: A table
    source: made, Table 1
    protocol: Their words
    columns: [network]
    measures: [accuracy]
    rows:
      - {{labels: [A], run: "{a}", published: {{accuracy: "99.80"}}}}
"""


def main(*arguments: str | Path) -> int:
    """The script, in this process."""
    spec = importlib.util.spec_from_file_location("aggregate_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    code: int = module.main(list(map(str, arguments)))
    return code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small studies and three runs of the first, as the present one."""
    (tmp_path / "conf" / "study").mkdir(parents=True)
    for name, words in (("one", PLAIN), ("two", CBAM)):
        (tmp_path / "conf" / "study" / f"{name}.yaml").write_text(STUDY.format(a=words))
    monkeypatch.setattr(studies, "CONF", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "results", runs(PLAIN, [99.7, 99.8, 99.9]))
    (tmp_path / "README.md").write_text(f"# Before\n\n{readme.BEGIN}\nold\n{readme.END}\n\nafter\n")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*folder.glob("results/tables/*"), folder / "README.md"]}


def test_it_writes_three_files_a_study_and_the_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "results", [run(PLAIN.replace("mnist", "fashion_mnist"), 0), run(f"{PLAIN} budget=smoke", 0)])
    assert main() == 0
    names = {f"{name}.{suffix}" for name in ("one", "two") for suffix in ("md", "csv", "tex")}
    assert set(contents(folder)) == {*names, "README.md"}
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# Before\n\n{readme.BEGIN}\n\n3 runs")
    assert text.endswith(f"\n\n{readme.END}\n\nafter\n")
    assert "99.80 ± 0.10 (3)" in text
    assert "old" not in text
    printed = capsys.readouterr().out.splitlines()
    assert sorted(line.removeprefix("wrote ") for line in printed[:-1]) == sorted(
        ["README.md", *(f"results/tables/{name}" for name in names)]
    )
    assert printed[-1] == "1 records belong to no study, 1 are trials of a few steps"


def test_the_second_time_nothing_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main()
    before = contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}
    capsys.readouterr()
    assert main() == 0
    assert "wrote" not in capsys.readouterr().out
    assert (contents(folder), {path: path.stat().st_mtime_ns for path in folder.rglob("*.md")}) == before


def test_a_check_finds_what_differs_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert main("--check") == 0
    (folder / "results" / "tables" / "one.csv").write_text("edited")
    write(folder / "results", runs(CBAM, [99.0]))
    before = contents(folder)
    capsys.readouterr()
    assert main("--check") == 1
    errors = capsys.readouterr().err
    assert [name for name in before if f"{name}: not what the records give" in errors] == [
        name for name in before if name in ("one.csv", "two.md", "two.csv", "two.tex", "README.md")
    ]
    assert "one.md" not in errors
    assert contents(folder) == before


def test_a_damaged_record_is_named_and_the_rest_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results" / "runs" / "a.json").write_text("[1, 2]")
    assert main() == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: results/runs/a.json: not a record")
    assert "99.80 ± 0.10 (3)" in (folder / "results" / "tables" / "one.md").read_text()
    assert main("--check") == 1


def test_files_of_studies_that_are_no_more_are_removed_and_no_others(folder: Path) -> None:
    main()
    mine = folder / "results" / "tables" / "notes.md"
    mine.write_text("not generated\n")
    (folder / "conf" / "study" / "two.yaml").unlink()
    assert main("--check") == 1
    assert (folder / "results" / "tables" / "two.md").exists()
    assert main() == 0
    assert set(contents(folder)) == {"one.md", "one.csv", "one.tex", "notes.md", "README.md"}
    assert main("--check") == 0


def test_one_study_is_printed_and_leaves_the_others_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("one") == 0
    assert set(contents(folder)) == {"one.md", "one.csv", "one.tex", "README.md"}
    assert "old" in (folder / "README.md").read_text()
    assert (folder / "results" / "tables" / "one.md").read_text() in capsys.readouterr().out


def test_a_substitution_is_printed_and_written_only_where_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "results", runs(PLAIN.replace("mnist", "fashion_mnist"), [88.0]))
    assert main("one", "data=fashion_mnist") == 0
    assert "| A | 99.80 | 88.00 (1) | 88.00 (1) | −11.80 | undecided |" in capsys.readouterr().out
    assert set(contents(folder)) == {"README.md"}
    assert main("one", "data=fashion_mnist", "--output", "elsewhere") == 0
    assert "88.00 (1)" in Path("elsewhere/one.md").read_text()


def test_other_results_have_tables_of_their_own(folder: Path) -> None:
    (folder / "results").rename(folder / "others")
    assert main("--results", "others") == 0
    assert (folder / "others" / "tables" / "one.md").exists()
    assert "old" in (folder / "README.md").read_text()
    assert main("--results", "others", "--readme", "none", "--output", "here") == 0
    assert (folder / "here" / "one.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["oen"], "oen: no such study; did you mean one?"),
        (["one", "dta=mnist"], "did you mean data?"),
        (["--results", "nowhere"], "nowhere: no such folder"),
        (["--readme", "nothing.md"], "nothing.md: must have a line <!-- tables: begin -->"),
    ],
)
def test_wrong_input(folder: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        main(*arguments)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert set(contents(folder)) == {"README.md"}


def test_wrong_input_is_one_line_and_exit_code_2() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "jiao_tabel2"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: jiao_tabel2: no such study; did you mean jiao_table2?")
    assert done.stderr.count("\n") == 1

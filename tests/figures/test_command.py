"""`python -m capsexp.figures` as a user meets it; the committed figures are what the committed records give."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from drawing import seeds, sources
from support import ROOT, committed, committed_records

from capsexp.errors import InputError, RunError
from capsexp.figures import catalogue
from capsexp.figures.__main__ import main

LIMIT = 300_000  # bytes of a committed file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A results folder with one run of huang's Table 2."""
    sources(tmp_path, *seeds("huang_table2", "CapsNet SVHN", [[10.0, 20.0]]))
    return tmp_path


def paths(folder: Path) -> list[str]:
    return [f"paths.results={folder}/results", f"paths.logs={folder}/logs"]


def test_a_named_figure_is_two_files_and_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["huang_fig13", *paths(folder)])
    files = sorted((folder / "results" / "figures").iterdir())
    assert [file.name for file in files] == ["huang_fig13.png", "huang_fig13.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in files[1].read_bytes()
    wrote, missing = capsys.readouterr().out.splitlines()
    assert wrote == f"huang_fig13: wrote {files[0]} {files[1]}"
    assert missing == (
        "huang_fig13: no finished runs of CapsNet+Conv SVHN, CapsNet+Caps SVHN, DA-CapsNet SVHN: python -m capsexp "
        f"+study=huang_table2 data=svhn seed=0,1,2 {' '.join(paths(folder))}"
    )


def test_without_a_name_what_can_be_drawn_is_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = ("huang_fig3", "huang_fig8", "huang_fig13", "ou_traversal_mnist")
    monkeypatch.setattr(catalogue, "FIGURES", {name: catalogue.FIGURES[name] for name in some})
    main(paths(folder))
    assert {file.stem for file in (folder / "results" / "figures").iterdir()} == {"huang_fig3", "huang_fig13"}
    lines = capsys.readouterr().out.splitlines()
    left = [line.split(":")[0] for line in lines if ": not drawn: no finished runs of " in line]
    assert left == ["huang_fig8", "ou_traversal_mnist"]


def test_a_named_figure_that_cannot_be_drawn_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match=r"^not drawn: huang_fig10$"):
        main(["huang_fig10", "huang_fig13", *paths(folder)])
    assert (folder / "results" / "figures" / "huang_fig13.svg").exists()
    assert "huang_fig10: not drawn: no finished runs of CapsNet, CapsNet+Conv, " in capsys.readouterr().out


def test_a_damaged_record_is_an_error_and_the_others_are_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = folder / "results" / "runs" / "a-b-c.json"
    bad.write_text("{}")
    with pytest.raises(RunError, match=r"^1 records can't be used$"):
        main(["huang_fig13", *paths(folder)])
    captured = capsys.readouterr()
    assert captured.err == f"error: {bad}: not a record ('digest')\n"
    assert (folder / "results" / "figures" / "huang_fig13.svg").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["huang_fig31"], "huang_fig31: no such figure; did you mean huang_fig3"),
        (["--seeds"], "unrecognized arguments: --seeds"),
        (["seed=3"], "seed: not used here; paths.results and paths.logs are"),
        (["paths.result=x"], "paths.result: no such key; did you mean results"),
        (["huang_fig13", "paths.results=/nowhere"], "/nowhere: no such folder; the records are in results/runs"),
    ],
)
def test_wrong_words_are_a_line(words: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        main(words)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_the_list_has_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(catalogue.FIGURES)


def test_the_program_ends_with_a_code_and_a_line(folder: Path) -> None:
    words = ["huang_fig3", "huang_fig14", *paths(folder)]
    ended = subprocess.run(
        [sys.executable, "-m", "capsexp.figures", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert (ended.returncode, ended.stderr) == (1, "error: not drawn: huang_fig14\n")
    assert ended.stdout.startswith("huang_fig3: wrote ")


def test_a_folder_that_cannot_be_written_is_a_line(folder: Path) -> None:
    (folder / "results" / "figures").write_text("a file")
    with pytest.raises(OSError, match="figures"):
        main(["huang_fig3", *paths(folder)])


def test_the_committed_figures_are_what_the_committed_records_give(tmp_path: Path) -> None:
    pictures = {path.stem: path for path in committed("results/figures/*.svg")}
    if not pictures or not committed_records():
        pytest.skip("not a checkout")
    (tmp_path / "results" / "runs").mkdir(parents=True)
    for path in committed_records():
        shutil.copy(path, tmp_path / "results" / "runs")
    made = sources(tmp_path)
    drawn = {name for name in catalogue.FIGURES if catalogue.draw(name, made, tmp_path)[0]}
    assert drawn <= pictures.keys() <= catalogue.FIGURES.keys()  # others need checkpoints
    assert all(path.stat().st_size < LIMIT for path in committed("results/figures/*"))
    for name in drawn:
        text = pictures[name].read_text()
        if f"Matplotlib v{matplotlib.__version__}," in text:  # another version sets type and ticks otherwise
            assert text == (tmp_path / f"{name}.svg").read_text(), f"{name}: make figures"
        else:
            assert re.search(r"Matplotlib v[\d.]+,", text)

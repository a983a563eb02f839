"""python -m capsexp.figures: files, lines and exit codes; the committed figures' names and sizes."""

from pathlib import Path

import matplotlib
import pytest
from drawing import seeds, sources
from support import Program, committed, folders, refused

from capsexp.errors import RunError
from capsexp.figures import catalogue
from capsexp.figures.__main__ import main

LIMIT = 300_000  # bytes of a committed file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A results folder with one run of huang's Table 2."""
    sources(tmp_path, *seeds("huang_table2", "CapsNet SVHN", [[10.0, 20.0]]))
    return tmp_path


@pytest.fixture
def four_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of four figures, of which one needs no runs."""
    some = ("huang_fig3", "huang_fig8", "huang_fig10", "ou_traversal_mnist")
    monkeypatch.setattr(catalogue, "FIGURES", {name: catalogue.FIGURES[name] for name in some})


def test_a_named_figure_is_three_files_and_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["huang_fig13", *folders(folder)])
    files = sorted((folder / "results" / "figures").iterdir())
    assert [file.name for file in files] == ["huang_fig13.png", "huang_fig13.svg", "huang_fig13.txt"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in files[1].read_bytes()
    alt, caption = files[2].read_text().splitlines()
    assert alt.endswith(
        "CapsNet: 10.0 % after epoch 1, 20.0 % after epoch 100 (1 seed); published 91.36. "
        "CapsNet+Conv: published 94.37. CapsNet+Caps: published 94.26. DA-CapsNet: published 94.82."
    )
    assert "Training: all 100 epochs, bf16." in caption
    wrote, missing = capsys.readouterr().out.splitlines()
    assert wrote == f"huang_fig13: wrote {files[0]} {files[1]} {files[2]}"
    assert missing == (
        "huang_fig13: no finished runs of CapsNet+Conv SVHN, CapsNet+Caps SVHN, DA-CapsNet SVHN: python -m capsexp "
        f"+study=huang_table2 data=svhn seed=0,1,2 {' '.join(folders(folder))}"
    )


@pytest.mark.usefixtures("four_figures")
def test_without_a_name_all_that_can_be_drawn_is_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*folders(folder)])
    assert {file.stem for file in (folder / "results" / "figures").iterdir()} == {"huang_fig3"}
    lines = capsys.readouterr().out.splitlines()
    missing = [line.split(":")[0] for line in lines if ": not drawn: no finished runs of " in line]
    assert missing == ["huang_fig8", "huang_fig10", "ou_traversal_mnist"]


@pytest.mark.usefixtures("four_figures")
def test_a_damaged_record_is_an_error_after_drawing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "results" / "runs" / "a-b-c.json"
    bad.write_text("{}")
    for words in ([], ["--check", "huang_fig3"]):
        with pytest.raises(RunError, match=r"^1 record can't be used$"):
            main([*words, *folders(folder)])
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {bad}: not a record ('digest')")
    assert (folder / "results" / "figures" / "huang_fig3.svg").exists()


def test_a_check_compares_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, svg = ["--check", "huang_fig3", "huang_fig10", *folders(folder)], folder / "results/figures/huang_fig3.svg"
    with pytest.raises(RunError, match=r"^not what the records give: huang_fig3; make figures$"):
        main(words)
    assert not svg.exists()
    main(["huang_fig3", *folders(folder)])
    capsys.readouterr()
    main(words)
    assert capsys.readouterr().out == ""
    svg.with_suffix(".txt").write_text("another")
    with pytest.raises(RunError, match="huang_fig3"):
        main(words)
    main(["huang_fig3", *folders(folder)])
    svg.write_text(svg.read_text().replace("constant 0.5", "constant 0.7"))
    with pytest.raises(RunError, match="huang_fig3"):
        main(words)
    assert "constant 0.7" in svg.read_text()
    svg.write_text(svg.read_text().replace(f"Matplotlib v{matplotlib.__version__},", "Matplotlib v0.1,"))
    main(words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["huang_fig31"], "huang_fig31: no such figure; did you mean huang_fig3"),
        (["--seeds"], "unrecognized arguments: --seeds"),
        (["paths.result=x"], "paths.result: no such key; did you mean results"),
        (["huang_fig13", "paths.results=/nowhere"], "/nowhere: no such folder; the records are in results/runs"),
    ],
)
def test_wrong_input_is_one_line(words: list[str], line: str) -> None:
    assert refused(main, words).startswith(line)


def test_the_list_has_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(catalogue.FIGURES)


def test_a_named_figure_that_cannot_be_drawn_ends_the_program_with_1_and_one_line(
    folder: Path, program: Program
) -> None:
    code, (line,), errors = program("capsexp.figures", "huang_fig14", *folders(folder))
    assert (code, errors) == (1, ["error: not drawn: huang_fig14"])
    assert line.startswith("huang_fig14: not drawn: no finished runs of CapsNet, DA-CapsNet: ")


def test_the_committed_figures_are_in_the_catalogue_and_small() -> None:
    files = committed("results/figures/*")
    if not files:
        pytest.skip("not a checkout")
    themes = {f"answer{width}_{theme}" for width in ("", "_narrow") for theme in ("light", "dark")}
    assert {path.stem for path in files} <= catalogue.FIGURES.keys() | themes
    assert all(path.stat().st_size < LIMIT for path in files)

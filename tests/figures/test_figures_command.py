"""python -m capsexp figures: files, lines and exit codes; the committed figures' names and sizes."""

from pathlib import Path

import matplotlib
import pytest
from drawing import inputs, seeds
from support import committed, folders

from capsexp.errors import RunError
from capsexp.figures import catalogue
from capsexp.figures.command import main
from capsexp.study import studies

LIMIT = 300_000  # bytes of a committed file
STUDIES = ("huang_fig8", "huang_table2", "ou_traversal")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with one run of huang's Table 2, which is one of three studies that there are."""
    some = {name: path for name, path in studies.choices("study").items() if name in STUDIES}
    monkeypatch.setattr(studies, "choices", lambda group: some)
    inputs(tmp_path, *seeds("huang_table2", "CapsNet CIFAR-10", [[10.0, 20.0]]))
    return tmp_path


def test_without_a_name_all_that_can_be_drawn_is_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: catalogue.every()[name] for name in ("huang_fig11", "huang_fig8", "ou_traversal")}
    monkeypatch.setattr(catalogue, "every", lambda: few)
    main([*folders(folder)])
    files = sorted((folder / "results" / "figures").iterdir())
    kinds = ("dark", "light", "narrow_dark", "narrow_light")
    assert [file.name for file in files] == [f"huang_fig11_{kind}.svg" for kind in kinds]
    wrote, lacks, *missing = capsys.readouterr().out.splitlines()
    assert wrote == f"huang_fig11: wrote {files[1]} {files[0]} {files[3]} {files[2]}"
    assert lacks.startswith(
        "huang_fig11: no finished runs of CapsNet+Conv CIFAR-10, CapsNet+Caps CIFAR-10, DA-CapsNet CIFAR-10:"
    )
    assert lacks.endswith(f": capsexp reproduce huang_table2 --budget=laptop {' '.join(folders(folder))}")
    assert [line.split(" finished runs of ")[0] for line in missing] == [
        "huang_fig8: not drawn: no",
        "ou_traversal: not drawn: no",
    ]


def test_a_damaged_record_is_an_error_after_drawing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "results" / "runs" / "a-b-c.json"
    bad.write_text("{}")
    for words in (["huang_fig11"], ["--check", "huang_fig11"]):
        with pytest.raises(RunError, match=r"^1 record can't be used$"):
            main([*words, *folders(folder)])
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {bad}: not a record ('digest')")
    assert (folder / "results" / "figures" / "huang_fig11_dark.svg").exists()


def test_a_check_compares_and_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, svg = ["--check", "huang_fig11", *folders(folder)], folder / "results/figures/huang_fig11_dark.svg"
    with pytest.raises(RunError, match=r"^not what the records give: huang_fig11; make figures$"):
        main(words)
    assert not svg.exists()
    main(words[1:])
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)  # whatever the user's are
    monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", None)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    main(words)
    assert b'clip-path="url(#clip1)"' in svg.read_bytes()  # matplotlib's own ids differ from process to process
    svg.write_text(svg.read_text().replace("CIFAR-10", "SVHM"))
    with pytest.raises(RunError, match="huang_fig11"):
        main(words)
    assert "SVHM" in svg.read_text()
    svg.write_text(svg.read_text().replace(f"Matplotlib v{matplotlib.__version__},", "Matplotlib v0.1,"))
    main(words)


def test_the_committed_figures_are_in_the_catalogue_and_small() -> None:
    files = committed("results/figures/*")
    if not files:
        pytest.skip("not a checkout")
    names = {path.stem.removesuffix("_light").removesuffix("_dark").removesuffix("_narrow") for path in files}
    assert names <= catalogue.every().keys()
    assert all(path.stat().st_size < LIMIT for path in files)

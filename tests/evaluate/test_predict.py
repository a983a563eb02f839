"""capsexp predict: the classes of images in files."""

import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image, ImageOps
from support import Program, Trained, composed_config

import capsexp
from capsexp.data import source
from capsexp.evaluate.evaluation import evaluate, predictions
from capsexp.run.restore import restore


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first packaged test images, each in a file; the last one is in colour."""
    folder = tmp_path_factory.mktemp("digits")
    images = source.load(composed_config("data=mnist_sample").data).test_images[:5, 0].numpy()
    files = [folder / f"{number}.png" for number in range(5)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).convert("RGB" if file == files[-1] else "L").save(file)
    return files


def test_predictions_are_the_networks_two_best_classes(trained: Trained, digits: list[Path]) -> None:
    restored = restore(trained.folder)
    images = source.load(restored.config.data).test_images[:5]
    scores = restored(images.float() / 255).scores
    table = predictions(restored, digits)
    assert table.file.tolist() == digits
    for name, score, place in (("class", "score", 1), ("next", "next_score", 2)):
        expected, label = scores.kthvalue(scores.shape[1] + 1 - place, dim=1)
        assert table[name].tolist() == [str(one) for one in label.tolist()]
        assert table[score].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_command_prints_and_writes_the_table(
    trained: Trained, digits: list[Path], tmp_path: Path, program: Program
) -> None:
    output = tmp_path / "new" / "classes.csv"
    words = [str(trained.folder), *map(str, digits), f"--output={output}"]
    code, lines, _ = program("capsexp", "predict", *words)
    written = pd.read_csv(output, dtype={"class": str, "next": str})
    table = predictions(restore(trained.folder), digits)
    assert (code, lines[-1]) == (0, f"wrote {output}")
    assert written.columns.tolist() == ["file", "class", "score", "next", "next_score"]
    assert lines[0].split() == ["file", "class", "length", "next", "next_length"]  # what the scores are
    assert [line.split()[:2] for line in lines[1:-1]] == table[["file", "class"]].astype(str).to_numpy().tolist()
    assert written["class"].tolist() == table["class"].tolist()
    assert torch.allclose(torch.tensor(written.score), torch.tensor(table.score.tolist()).double())


def test_the_images_of_a_folder_are_classified_and_other_files_named(
    trained: Trained, digits: list[Path], tmp_path: Path, program: Program
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "0.png").hardlink_to(digits[0])
    (tmp_path / "new" / "notes.doc").write_text("some text")
    code, lines, errors = program("capsexp", "predict", str(trained.folder), str(tmp_path / "new"))
    assert (code, len(lines)) == (0, 2)
    assert errors == [f"left out: {tmp_path}/new/notes.doc: not a PNG, JPEG, BMP, GIF, TIFF, WEBP or PPM image"]


def test_the_pictures_of_a_table_are_classified_row_by_row(
    trained: Trained, digits: list[Path], tmp_path: Path, program: Program
) -> None:
    for file in digits:
        (tmp_path / file.name).hardlink_to(file)
    names = [digits[number].name for number in (3, 0, 3)]
    (tmp_path / "new.csv").write_text("\n".join(["patient;file", *(f"p;{name}" for name in names)]))
    words = [str(trained.folder), f"{tmp_path}/new.csv", f"--output={tmp_path}/classes.csv"]
    assert program("capsexp", "predict", *words)[0] == 0
    written = pd.read_csv(tmp_path / "classes.csv", dtype={"class": str})
    assert [Path(file).name for file in written.file] == names
    assert (
        written["class"].tolist()
        == predictions(restore(trained.folder), [digits[3], digits[0], digits[3]])["class"].tolist()
    )
    (tmp_path / "new.csv").write_text("file\n0.png\nnone.png\n")
    code, _, (error,) = program("capsexp", "predict", *words[:2])
    assert (code, error.rpartition(": ")[2]) == (2, "none.png is not there")


def test_names_are_harmless_in_the_csv(
    trained: Trained, digits: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["=cmd().png", "\udcff.png", "\x1b[2J.png"]
    for name in names:
        Path(name).write_bytes(digits[0].read_bytes())
    code, _, _ = program("capsexp", "predict", str(trained.folder), *names, "--output=a.csv")
    assert code == 0
    assert pd.read_csv("a.csv").file.tolist() == ["'=cmd().png", "\\udcff.png", "\\x1b[2J.png"]


@pytest.mark.parametrize("form", ["paper", "transparent ink", "transparent chalk"])
def test_ink_on_paper_is_said_and_taken_by_an_option(
    digits: list[Path], form: str, tmp_path: Path, program: Program
) -> None:
    for file in digits:
        white = Image.open(file).convert("L")
        image = ImageOps.invert(white)
        if "transparent" in form:
            image = Image.new("L", white.size, 0 if "ink" in form else 255)
            image.putalpha(white)
        image.save(tmp_path / file.name)
    inverted = form != "transparent chalk"
    _, right, _ = program("capsexp", "predict", "sample", *map(str, digits))
    _, _, said = program("capsexp", "predict", "sample", str(tmp_path))
    _, taken, unsaid = program("capsexp", "predict", "sample", str(tmp_path), *["--invert"] * inverted)
    assert ([line.split()[1] for line in taken], unsaid) == ([line.split()[1] for line in right], [])
    line = "images lighter than those that the network was trained on"
    assert [one.partition(" (")[0] for one in said] == [line] * inverted
    _, _, wrong = program("capsexp", "predict", "sample", *map(str, digits), "--invert")
    assert [line.rpartition("? ")[2] for line in wrong] == ["leave out --invert"]
    network = capsexp.load("sample")
    with warnings.catch_warnings(record=True, action="always") as warned:
        pixels = network.preprocess(tmp_path / "0.png")
    assert len(warned) == inverted
    negative = capsexp.load("sample", invert=True).preprocess(tmp_path / "0.png") if inverted else pixels
    assert torch.allclose(negative, network.preprocess(digits[0]), atol=1 / 255)


def test_an_evaluation_of_ink_on_paper_is_said_and_inverted(
    trained: Trained, digits: list[Path], tmp_path: Path
) -> None:
    for number in range(20):
        file = tmp_path / f"{number % 10}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        ImageOps.invert(Image.open(digits[0])).point(lambda value: value - number).save(file)  # noqa: B023
    for invert in ("false", "true"):
        words, lines = ["data=folder", f"data.path={tmp_path}", f"data.reader.invert={invert}"], list[str]()
        evaluate(restore(trained.folder, overrides=[*words, "data.size=28"]), lines.append)
        assert ("inverted? data.reader.invert=true" in lines[-1]) == (invert == "false")

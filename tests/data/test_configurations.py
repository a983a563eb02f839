"""Every conf/data/*.yaml, and scripts/prepare_data.py."""

from pathlib import Path

import pytest
from data_formats import Svhn

from capsexp.config.searchpath import choices
from capsexp.data import command as prepare_data

NAMES = [name for name in choices("data") if name not in prepare_data.OWN]


@pytest.mark.parametrize("name", NAMES)
def test_configuration(name: str, monkeypatch: pytest.MonkeyPatch):
    assert prepare_data.configuration(name).root == "data"
    monkeypatch.setenv("CAPSEXP_DATA", "/somewhere")
    data = prepare_data.configuration(name)
    assert (data.name, data.root) == (name, "/somewhere")
    assert len(data.mean) == len(data.std) == data.channels
    assert any(version.note is None for version in data.versions.values()) or name == "mnist_sample"
    for version in data.versions.values():
        assert version.files.keys() == set(data.reader.make().keys)
        assert all(len(md5) == 32 for md5 in version.files.values())


def test_the_sample_needs_no_data_folder_and_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    images = prepare_data.load(prepare_data.configuration("mnist_sample"), lines.append)
    assert images.note == "sample of 5,000 training and 1,000 test images"
    assert (images.train_images.shape, images.test_images.shape) == ((5000, 1, 28, 28), (1000, 1, 28, 28))
    assert images.train_images.double().mean().item() / 255 == pytest.approx(0.1306, abs=1e-4)
    assert lines == list(tmp_path.iterdir()) == []


def test_prepare_data_continues_after_a_set_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    Svhn(tmp_path)
    code = prepare_data.main(["svhn", "mnist_sample", "--root", str(tmp_path), "--no-download"])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == (
        "mnist_sample: 5,000 training and 1,000 test images, 1×28×28, sample of 5,000 training and 1,000 test images\n"
        "mnist_sample: 10 classes: 0 494 + 98, 1 562 + 114, 2 496 + 103, 3 511 + 101, 4 487 + 98, 5 452 + 89, "
        "6 493 + 96, 7 522 + 103, 8 487 + 97, 9 496 + 101 (training + test images)\n"
    )
    assert "train_32x32.mat: its md5" in err.splitlines()[-1]


def test_prepare_data_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]):
    assert prepare_data.main(["minst"]) == 2
    start = "error: minst: no such data set; did you mean mnist? (there are affine_mnist, "
    assert capsys.readouterr().err.startswith(start)
    assert prepare_data.main(["folder"]) == 2
    assert capsys.readouterr().err.startswith("error: folder: is checked when a run reads it: ")


def test_prepare_data_processes_all_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert prepare_data.main(["--root", str(tmp_path), "--no-download"]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert len(err.splitlines()) == len(NAMES) - 1
    assert list(tmp_path.iterdir()) == []

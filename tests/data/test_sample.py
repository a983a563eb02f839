"""The packaged sample of MNIST."""

from pathlib import Path

import pytest
from support import composed_config

from capsexp.data import command as prepare_data
from capsexp.data import sample
from capsexp.data.source import identify
from capsexp.errors import InputError


def test_the_sample_needs_no_data_folder_and_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    images = prepare_data.load(prepare_data.configuration("mnist_sample"), lines.append)
    assert images.note == "sample of 5,000 training and 1,000 test images"
    assert (images.train_images.shape, images.test_images.shape) == ((5000, 1, 28, 28), (1000, 1, 28, 28))
    assert images.train_images.double().mean().item() / 255 == pytest.approx(0.1306, abs=1e-4)
    assert lines == list(tmp_path.iterdir()) == []


def test_a_damaged_sample_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    damaged = tmp_path / sample.FILE.name
    damaged.write_bytes(sample.FILE.read_bytes()[:1000])
    monkeypatch.setattr(sample, "FILE", damaged)
    with pytest.raises(InputError, match=f"{damaged}: damaged or edited; install capsexp again"):
        identify(composed_config("data=mnist_sample").data)

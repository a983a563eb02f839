"""The packaged sample of MNIST."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from data_formats import pixels
from support import composed_config

from capsexp.data import __main__ as prepare_data
from capsexp.data import sample
from capsexp.data.reader import Images
from capsexp.data.source import identify
from capsexp.errors import InputError


def test_stratified_takes_the_first_of_each_class_in_proportion():
    labels = np.array([1, 1, 0, 1, 2, 0, 1, 1, 1, 2])  # 2, 6 and 2 of each
    assert sample.stratified(labels, 5).tolist() == [0, 1, 2, 3, 4]
    assert sample.stratified(labels, 10).tolist() == list(range(10))


def test_remainders_go_to_the_largest_and_then_the_first_class():
    labels = np.array([0, 1, 2, 2])  # 3 of them: 0.75, 0.75 and 1.5 of each
    assert sample.stratified(labels, 3).tolist() == [0, 1, 2]


def test_the_file_is_reproducible(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sample, "TRAIN_IMAGES", 10)
    monkeypatch.setattr(sample, "TEST_IMAGES", 5)
    full = Images(pixels(30, 28, 28), np.arange(30) % 10)
    first, second = BytesIO(), BytesIO()
    sample.write(first, full, full)
    sample.write(second, full, full)
    assert first.getvalue() == second.getvalue()


def test_the_sample_needs_no_data_folder_and_writes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    images = prepare_data.load(prepare_data.configuration("mnist_sample"), lines.append)
    assert images.note == "sample of 5,000 training and 1,000 test images"
    assert images.train_images.shape == (5000, 1, 28, 28)
    assert images.test_images.shape == (1000, 1, 28, 28)
    assert torch.bincount(images.train_labels).tolist() == [494, 562, 496, 511, 487, 452, 493, 522, 487, 496]
    assert torch.bincount(images.test_labels).tolist() == [98, 114, 103, 101, 98, 89, 96, 103, 97, 101]
    assert images.train_images.double().mean().item() / 255 == pytest.approx(0.1306, abs=1e-4)
    assert lines == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_sample_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    damaged = tmp_path / sample.FILE.name
    damaged.write_bytes(sample.FILE.read_bytes()[:1000])
    monkeypatch.setattr(sample, "FILE", damaged)
    with pytest.raises(InputError, match=f"{damaged}: damaged or edited; install capsexp again"):
        identify(composed_config("data=mnist_sample").data)

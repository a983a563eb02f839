"""Classes, splits and groups from a table or from names of files; folders that are no classes."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_formats import idx, pixels, write
from photos import config, data, numbered, save, splits_of, two, values
from support import composed_config, refused

from capsexp.config import compose
from capsexp.data.reader import part_of_each
from capsexp.data.source import identify, load, summary

ROWS = [(f"{number:03}.png", ["even", "odd"][number % 2], f"p{number // 4}") for number in range(40)]


def table(place: Path, *rows: tuple[str, ...], header: str = "file,label,patient") -> Path:
    """The folder of 40 pictures of one value each, ten patients with four each, with a table."""
    numbered(place / "images", 0, 40)
    delimiter = re.findall("[,;\t]", header)[0]
    (place / "labels.csv").write_text("\n".join([header, *(delimiter.join(row) for row in rows or ROWS)]) + "\n")
    return place


@pytest.mark.parametrize(
    "header", ["file,label,patient", "Image Name,CLASS,patient", "id;species;x", "label\tpatient\tpath"]
)
def test_the_classes_of_a_table_are_those_of_folders(header: str, tmp_path: Path) -> None:
    rows = [(name.removesuffix(".png") if "id" in header else name, label, patient) for name, label, patient in ROWS]
    if "\t" in header:
        rows = [(label, patient, f"./images/{name}") for name, label, patient in rows]
    place = table(tmp_path / "flat", *reversed(rows), header=header)
    for name, label, _ in ROWS:
        (tmp_path / "sorted" / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(place / "images" / name, tmp_path / "sorted" / label)
    found, sorted_ones = data(place, "data.labels=labels.csv"), data(tmp_path / "sorted")
    assert found.class_names == ["even", "odd"]
    assert identify(found) == identify(sorted_ones)
    assert values(load(found)) == values(load(sorted_ones))
    assert identify(data(place / "images", f"data.labels={place}/labels.csv")) == identify(found)


def test_a_split_in_a_table_is_kept(tmp_path: Path) -> None:
    rows = [(name, label, "Test" if int(name[:3]) < 10 else "train") for name, label, _ in ROWS]
    images = load(data(table(tmp_path, *rows, header="file,label,split"), "data.labels=labels.csv"))
    assert sorted(value for value, _ in values(images)[1]) == [*range(10)]
    assert images.note == "own images"


def test_pictures_without_a_class_are_left_out_and_said(tmp_path: Path) -> None:
    lines: list[str] = []
    rows = [(name, label if number > 2 else "", group) for number, (name, label, group) in enumerate(ROWS[:30])]
    images = load(data(table(tmp_path, *rows), "data.labels=labels.csv"), lines.append)
    assert len(images.train_labels) + len(images.test_labels) == 27
    assert lines[1:] == ["left out: 13 pictures without a class in labels.csv"]


@pytest.mark.parametrize(
    ("rows", "words", "line"),
    [
        ([("x.png", "a", "")], ["data.labels=labels.csv"], "labels.csv: names pictures in .*: x.png is not there"),
        (ROWS, ["data.labels=none.csv"], "data.labels=none.csv: no such file in "),
        (
            ROWS,
            ["data.labels=labels.csv", "data.columns=[file,kind]"],
            "no column kind, which data.columns names .*; has file, label, patient",
        ),
        (ROWS, ["data.labels=labels.csv", "data.group=scan"], "labels.csv: has no column scan, which data.group names"),
        ([*ROWS, ("000.png", "odd", "")], ["data.labels=labels.csv"], "has 000.png twice, differently"),
        ([("009.png", "odd", "")], ["data.labels=labels.csv", "data.group=patient"], ".*/009.png has none; must be"),
        (ROWS, ["data.labels='(x'"], r"\(x: no pattern with one pair of brackets"),
        (ROWS, ["data.labels='(x)'"], r"\(x\): nothing in .*/images/000.png matches this pattern"),
        (ROWS, ["data.group=patient"], "data.group=patient: .*/000.png has none; must be"),
        (ROWS, [], "must have images of two classes at least; data.labels=labels.csv takes the classes from a table"),
    ],
)
def test_other_tables_are_one_line(rows: list[Any], words: list[str], line: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=line):
        data(table(tmp_path / "flat", *rows), *map(compose.for_hydra, words))


def test_unknown_columns_are_typed(tmp_path: Path) -> None:
    place = table(tmp_path, *ROWS, header="scan_file,finding,patient")
    line = "labels.csv: none of the columns scan_file, finding, patient is known as file; rename one, or"
    assert line in refused(data, place, "data.labels=labels.csv")
    (place / "labels (1).csv").write_bytes((place / "labels.csv").read_bytes())  # as a browser names a second one
    found = data(place, compose.for_hydra("data.labels=labels (1).csv"), "data.columns=[scan_file,finding]")
    assert (found.class_names, str(identify(found).note)[:10]) == (["even", "odd"], "own images")


def test_the_class_and_the_group_of_a_name_are_matched_by_patterns(tmp_path: Path) -> None:
    for number in range(24):
        save(tmp_path / "named" / f"{'cat' if number % 2 else 'dog'}.p{number // 4}.{number}.png", pixels(2, 2))
    words = [compose.for_hydra(word) for word in ("data.labels=^([a-z]+)", r"data.group=(p\d+)")]
    found = data(tmp_path / "named", *words)
    assert found.class_names == ["cat", "dog"]
    assert load(found).note == r"own images, 16.7 % drawn for the test with seed 0, (p\d+) kept together"


def test_a_group_is_on_one_side_of_each_split(tmp_path: Path) -> None:
    place = table(tmp_path, *ROWS)
    drawn = set()
    for seed in range(5):
        words = ("data.labels=labels.csv", "data.group=patient", f"data.reader.split_seed={seed}", f"seed={seed}")
        splits = splits_of(config(place, *words))
        parts = [
            {int(value) // 4 for value in part[0][:, 0, 0, 0]} for part in (splits.train, splits.evaluated, splits.test)
        ]
        assert sum(map(len, parts)) == 10 == len(set.union(*parts))
        drawn.add(tuple(parts[2]))
    assert len(drawn) > 1
    assert identify(data(place, *words)).checksum != identify(data(place, "data.labels=labels.csv")).checksum
    line = "folder: images of one patient aren't independent: intervals are too narrow"
    assert line in summary(data(place, *words), load(data(place, *words)))


def test_a_group_in_two_given_splits_is_refused(tmp_path: Path) -> None:
    for other in ("train", "val"):
        parts = {"000.png": "test", "001.png": "test", "002.png": other, "003.png": other}
        rows = [(name, label, group, parts.get(name, "train")) for name, label, group in ROWS]
        place = table(tmp_path / other, *rows, header="file,label,patient,split")
        line = refused(data, place, "data.labels=labels.csv", "data.group=patient")
        assert line.endswith("p0 of data.group has test and other images")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("file,label\n000.png,für", "labels.csv: must be in UTF-8; a spreadsheet saves it as CSV UTF-8"),
        ("file,label", "labels.csv: has no rows below its first line"),
        ("file,label,split\n000.png,a,", "labels.csv: 000.png has the split nothing; must be train, val or test"),
    ],
)
def test_a_table_without_rows_or_splits_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    place = table(tmp_path)
    (place / "labels.csv").write_text(text, encoding="latin-1")
    assert line in refused(data, place, "data.labels=labels.csv")


@pytest.mark.parametrize("words", [["data.labels=labels.csv", "data.columns=[file,label,x]"], ["data.columns=[x,y]"]])
def test_columns_without_effect_are_refused(words: list[str], tmp_path: Path) -> None:
    two(tmp_path / "photos", 0, 8)
    place = tmp_path / "photos" if len(words) == 1 else table(tmp_path / "table")
    assert refused(lambda: identify(data(place, *words))).startswith("data.columns: must be two columns of a table")


def test_groups_are_drawn_whole_and_no_class_is_left_without_images() -> None:
    random = np.random.RandomState(0)
    for _ in range(50):
        groups = random.randint(0, 12, 60)
        labels = (groups + random.randint(0, 2, 60)) % 3
        chosen = np.isin(np.arange(60), part_of_each(labels, random.permutation(60), 12, groups))
        assert not set(groups[chosen]) & set(groups[~chosen])
        assert set(labels[chosen]) == set(labels[~chosen]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (["no/1", "yes/1", "brain/no/1", "brain/yes/1"], "brain has the folders no and yes, as .* has: move one"),
        (["no/1", "yes/1", "old/brain/no/1", "old/brain/yes/1"], "old has the folders no and yes"),
        (["cat/1", "dog/1", "train/cat/1", "train/dog/1"], "train has the folders cat and dog"),
        (["x_train/a/1", "x_train/b/1", "x_test/a"], "x_test: has no class folders"),
        (["x_train/a/1", "x_test/a/1", "x_more/a/1"], "x_train; must have train, test and val, each"),
        (["images/1", "masks/1"], "photos: must have images of two classes at least; data.labels="),
        ([], "photos: has no folders; must have one for each class"),
        (["a/1"], "photos: must have images of two classes at least"),
        (["a/1", "b/"], "photos/b: a class without images"),
        (["a/1", "b/1"], "photos: must have a class with two images at least"),
        (["train/a/1", "test/a/1", "more/a/1"], "has more, test, train; must have train, test and val, each at most"),
        (["train/a/1", "Training/b/1"], "has Training, train; must have train, test and val, each at most once"),
        (["1/a/1", "1/b/1", "2/a/1", "2/b/1"], r"1 and 2 have the same folders \(a, b\): splits must be named train, "),
        (["train/a/1", "train/b/1", "test/c/1"], "photos: class c has test images, but no training images"),
        (["train/a/1", "train/b/1", "test/"], "photos/test: has no class folders"),
    ],
)
def test_folders_that_are_no_classes_are_refused(files: list[str], line: str, tmp_path: Path) -> None:
    for name in ["", *files]:
        place = tmp_path / "photos" / name
        place.mkdir(parents=True) if name[-1:] in "/" else save(place.with_suffix(".png"), pixels(4, 4))
    assert re.search(line, refused(data, tmp_path / "photos"))


@pytest.mark.parametrize(
    ("files", "classes", "train"),
    [
        (["Final_Training/Images/a/1", "Final_Training/Images/b/1", "Final_Test/Images/a/1"], ["a", "b"], 2),
        (["x_train/x_train/a/1", "x_train/x_train/b/1", "x_test/a/1"], ["a", "b"], 2),
        (["covid/images/1", "covid/masks/1", "well/images/1"], ["covid", "well"], 2),
        (["images/a/1", "images/b/1", "masks/a/1", "masks/b/1"], ["a", "b"], 2),
        (["train station/1", "bus station/1"], ["bus station", "train station"], 2),
        (["test_high/1", "test_low/1"], ["test_high", "test_low"], 2),
        (["photo/1", "label/1", "poster/1"], ["label", "photo", "poster"], 3),
        (["left/near/1", "right/far/1", "right/left/1"], ["left", "right"], 3),
        (["__MACOSX/p/c/1", "p/ant/left/1", "p/bee/left/1", "p/ant/right/1"], ["ant", "bee"], 3),
        ([f"{number}/1" for number in range(12)], [str(number) for number in range(12)], 12),
    ],
)
def test_splits_and_classes_are_read_right(files: list[str], classes: list[str], train: int, tmp_path: Path) -> None:
    for name in files:
        for copy in ("", "x"):
            save(tmp_path / "photos" / f"{name}{copy}.png", pixels(4, 4))
    found = data(tmp_path / "photos")
    assert found.class_names == classes
    assert sum(found.images) == 2 * (train + (len(files) > train and "est" in files[-1]))


def test_idx_files_are_read_with_the_title_of_their_folder(tmp_path: Path) -> None:
    for name, count in (("train", 20), ("test", 10)):
        for kind, array in {"images-idx3": pixels(count, 28, 28), "labels-idx1": np.arange(count) % 5}.items():
            write(tmp_path / "KMNIST" / "raw" / f"emnist-x-{name}-{kind}-ubyte", idx(array.astype(np.uint8)))
    found = composed_config("data=idx", f"data.path={tmp_path}/KMNIST/raw").data
    assert (found.title, found.size, found.classes, found.images) == ("KMNIST", 28, 5, [20, 10])
    assert torch.equal(load(found).train_images[:, 0], torch.from_numpy(pixels(20, 28, 28)))
    moved = shutil.copytree(tmp_path / "KMNIST", tmp_path / "moved")
    write(moved / "raw" / "emnist-x-test-labels-idx1-ubyte", idx(np.zeros(10, np.uint8)))
    assert identify(composed_config("data=idx", f"data.path={moved}/raw").data).checksum != identify(found).checksum


def test_a_folder_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two(tmp_path / "photos", 0, 10)
    walk, folders = os.walk, list[Path]()
    monkeypatch.setattr(os, "walk", lambda path, **options: (folders.append(path), walk(path, **options))[1])
    identify(data(tmp_path / "photos"))
    load(data(tmp_path / "photos"))
    assert [folder.name for folder in folders] == ["ant", "bee"]

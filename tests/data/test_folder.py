"""Somebody's own images: class folders and .npz files, their split, size, channels and identity."""

import os
import shutil
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_formats import pixels
from photos import COLOUR, config, data, numbered, save, splits_of, two, values
from support import TINY, composed_config, folders, refused

from capsexp.compare.comparison import compare
from capsexp.config import compose
from capsexp.data.listing import listing
from capsexp.data.module import CapsuleData
from capsexp.data.source import identify, load, normalization, summary
from capsexp.errors import InputError
from capsexp.evaluate.evaluation import evaluate
from capsexp.run import keys, records
from capsexp.run.execute import run
from capsexp.run.plan import plan
from capsexp.run.restore import restore
from capsexp.study.identity import trained
from capsexp.study.selection import combination
from capsexp.tables.sweep import measure_sweep


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten grey images of each of two classes; of `ant` they are lighter than 100, of `bee` darker."""
    two(tmp_path / "photos", 0, 10)
    return tmp_path / "photos"


def test_a_tenth_is_drawn_for_the_test_by_a_constant_seed(photos: Path) -> None:
    images = load(data(photos))
    train, test = values(images)
    assert images.note == "own images, 10 % of each class drawn for the test with seed 0"
    assert (len(train), len(test)) == (18, 2)
    assert sorted(train + test) == [(value, value // 100) for value in (*range(10), *range(100, 110))]
    assert values(load(data(photos)))[1] == test
    assert values(load(data(photos, "data.reader.split_seed=1")))[1] != test
    assert len(values(load(data(photos, "data.reader.test_fraction=0.5")))[1]) == 10


def test_more_images_than_there_are_means_all_of_them(photos: Path) -> None:
    assert (config(photos).optim.batch_size, config(photos).protocol) == (18, "heldout")
    for batch, train, test in ((18, 18, 2), (19, 19, 2000)):
        more = f"optim.batch_size={batch}", f"budget.train_images={train}", f"budget.test_images={test}"
        assert config(photos, *more) == config(photos)
    part = config(photos, "optim.batch_size=17", "budget.train_images=17", "budget.test_images=1")
    assert (part.optim.batch_size, part.budget.train_images, part.budget.test_images) == (17, 17, 1)
    assert composed_config("data=mnist").protocol == "paper"


def test_a_part_of_the_images_is_of_all_classes(photos: Path) -> None:
    words = "budget.train_images=8", "protocol=paper"
    whole, again = (splits_of(config(photos, *words, f"seed={seed}")) for seed in (0, 1))
    assert whole.train[1].tolist() == [0] * 4 + [1] * 4
    assert torch.equal(again.train[0], whole.train[0])


def test_a_set_is_described_by_its_classes_and_what_is_equal_in_it(photos: Path) -> None:
    (line,) = summary(data(photos), load(data(photos)))
    assert line == "folder: 2 classes: ant 9 + 1, bee 9 + 1 (training + test images)"
    numbered(photos / "cow", 3, 1)
    for number in range(5):
        shutil.copy(photos / "cow" / "003.png", photos / "cow" / f"{number}.png")
    fresh = photos.rename(photos.with_name("fresh"))
    first, known, twice, equal = summary(data(fresh), load(data(fresh)))
    assert first.startswith("folder: 3 classes: ant 9 + 1, bee 9 + 1, cow 5 + 1 (training")
    assert known == "folder: 1 of the 3 test images are among the training images, too"
    assert twice == "folder: 7 images are equal to one of another class"
    assert equal == "folder: all training images of class cow are equal"
    for number in range(21):
        numbered(fresh / "many" / "train" / f"c{number}", number, 2)
        numbered(fresh / "many" / "test" / f"c{number}", number, 1)
    line, *_ = summary(data(fresh / "many"), load(data(fresh / "many")))
    assert line == "folder: 21 classes: 2 + 1 in each (training + test images)"


def test_a_leak_belongs_to_the_record_and_to_each_number_made_of_it(photos: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        shutil.copytree(photos, tmp_path / "set" / split)
    shutil.copy(photos / "ant" / "003.png", tmp_path / "set" / "train" / "bee")
    two(tmp_path / "set" / "val", 8, 4)
    words = [*of_photos(tmp_path), f"data.path={tmp_path}/set"]
    first, second = (run(composed_config(*words, "budget.test_images=10", *more)) for more in ((), ["seed=1"]))
    tested = "10 of 10 test images are training images"
    leak = f"{tested}, 4 held-out images are training images, 3 images are of two classes"
    assert (first.data["repeated"], first.leak) == (10, leak)
    assert records.result_line(first).endswith(f"; {leak}")
    _, _, held, _ = summary(data(tmp_path / "set"), load(data(tmp_path / "set")))
    assert held == "folder: 4 of the 8 validation images are among the training images, too"
    (block,) = measure_sweep(
        [[*words, "budget.test_images=10", f"seed={seed}"] for seed in (0, 1)], tmp_path / "results"
    ).blocks
    assert leak in block.files
    table, _ = compare((first.key, second.key), tmp_path / "results")
    assert f"In {keys.name_of(first.identity)} {leak}." in table.notes


def test_a_name_in_two_unicode_forms_is_one_class(tmp_path: Path) -> None:
    for split, form in (("train", "NFC"), ("test", "NFD")):
        numbered(tmp_path / "photos" / split / unicodedata.normalize(form, "Café"), 0, 3)
        numbered(tmp_path / "photos" / split / "bee", 100, 3)
    found = data(tmp_path / "photos")
    assert found.class_names == ["Café", "bee"]
    assert load(found).test_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_hidden_folder_is_left_out_a_linked_one_entered_once_and_a_parent_never(photos: Path) -> None:
    before = identify(data(photos)).checksum
    numbered(photos / "ant" / ".ipynb_checkpoints", 50, 3)
    (photos / "ant" / "parent").symlink_to(photos)
    (photos / "ant" / "itself").symlink_to(photos / "ant")
    assert identify(data(photos)).checksum == before


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda file: file.symlink_to("nowhere"), "can't be read (No such file or directory)"),
        (lambda file: (file.touch(), os.truncate(file, 2_000_000_000)), "has 2,000 MB; must have at most 256"),
    ],
)
def test_what_is_no_regular_file_is_not_opened(make: Callable[[Path], Any], line: str, photos: Path) -> None:
    make(photos / "ant" / "odd.png")
    assert refused(data, photos).endswith(f"/ant/odd.png: {line}")


def test_runs_of_other_images_are_not_taken_for_these(photos: Path) -> None:
    found = identify(data(photos, "data.size=28"))
    moved = shutil.copytree(photos, photos.parent / "moved")
    (moved / "ant" / "009.png").rename(moved / "bee" / "009.png")
    before = trained(keys.identity(config(photos, "data.size=28"), "auto", found.note, found.unlisted))
    again = [combination.__wrapped__(("data=folder", f"data.path={at}", "data.size=28")) for at in (photos, moved)]
    assert [one.trained == before for one in again] == [True, False]


@pytest.mark.parametrize(
    "names",
    [("train", "test", "val"), ("Training", "Testing", "Validation"), ("in/seg_train/x", "in/seg_test", "in/dev")],
)
def test_a_given_split_is_kept_and_validation_images_are_held_out(names: Sequence[str], tmp_path: Path) -> None:
    for split, first, count in zip(names, (0, 20, 10), (3, 4, 2), strict=True):
        two(tmp_path / "photos" / split, first, count)
    images = load(data(tmp_path / "photos"))
    train, test = values(images)
    assert images.note == "own images"
    assert sorted(train) == [(value + 100 * label, label) for label in (0, 1) for value in (0, 1, 2, 10, 11)]
    assert test == [(value + 100 * label, label) for label in (0, 1) for value in range(20, 24)]
    assert splits_of(config(tmp_path / "photos")).evaluated[0][:, 0, 0, 0].tolist() == [10, 11, 110, 111]
    words = "budget.train_images=7", "protocol=paper"
    assert len(splits_of(config(tmp_path / "photos", *words)).train[1]) == 7
    line = refused(splits_of, config(tmp_path / "photos", words[0]))
    assert line.startswith("budget.train_images=7: folder has 6 training images")
    line = refused(identify, data(tmp_path / "photos", "data.reader.split_seed=1"))
    assert line.startswith("data.reader: test_fraction and split_seed draw test images, but ")


def test_validation_images_are_not_trained_on_and_for_the_test_where_there_are_no_others(tmp_path: Path) -> None:
    for place, first in (("none/test", 0), ("none/valid", 10), ("photos/train", 0), ("photos/valid", 10)):
        two(tmp_path / place, first, 3)
    for protocol in ("paper", "heldout"):
        line = refused(splits_of, config(tmp_path / "none", f"protocol={protocol}"))
        assert line.endswith("no training images; capsexp evaluate RUN takes test images")
    train, test = values(load(data(tmp_path / "photos")))
    assert [value % 100 for value, _ in test] == [10, 11, 12] * 2
    assert len(train) == 6


def test_each_class_is_trained_tested_and_held_out(tmp_path: Path) -> None:
    labels = [0] * 190 + [1] * 10 + [2] * 2 + [3]
    np.savez(tmp_path / "a.npz", images=np.arange(203 * 64).reshape(203, 8, 8).astype(np.uint8), labels=labels)
    for seed in range(5):
        splits = splits_of(config(tmp_path / "a.npz", f"seed={seed}", f"data.reader.split_seed={seed}"))
        counts = [part[1].bincount(minlength=4).tolist() for part in (splits.train, splits.evaluated, splits.test)]
        assert [sum(of_class) for of_class in zip(*counts, strict=True)] == [190, 10, 2, 1]
        assert all(counts[0])
        assert counts[1][:2] + counts[2][:3] == [17, 1, 18, 1, 1]


@pytest.mark.parametrize("labels", [["ant", "bee"], [10, 9]])
def test_an_npz_has_the_images_of_folders(tmp_path: Path, labels: list[Any]) -> None:
    images, test = pixels(6, 9, 12, 3), pixels(2, 9, 12, 3)
    several = {"images": images, "labels": labels * 3, "test_images": test, "test_labels": labels}
    np.savez(tmp_path / "a.npz", **several, validation_images=test)
    found = data(tmp_path / "a.npz", "data.classes=2")
    lines: list[str] = []
    load(found, lines.append)
    assert "left out: the arrays validation_images: none of images, labels, val_…, test_…" in lines
    assert (found.class_names, found.channels) == ([str(label) for label in sorted(labels)], 3)
    loaded = load(found)
    assert loaded.train_labels.tolist() == [sorted(labels).index(label) for label in labels * 3]
    assert loaded.test_labels.tolist() == [sorted(labels).index(label) for label in labels]
    for number in range(6):
        save(tmp_path / "photos" / f"{number % 2}" / f"{number}.png", images[number])
    every = load(data(tmp_path / "photos", "data.reader.test_fraction=0.2")).train_images
    assert {image.numpy().tobytes() for image in every} <= {image.numpy().tobytes() for image in loaded.train_images}


def test_channels_are_those_of_the_files(photos: Path) -> None:
    assert (data(photos).channels, data(photos, "data.channels=3").channels) == (1, 3)
    numbered(photos / "cow", 200, 9)
    numbered(photos / "cow", 209, 1, COLOUR)  # the last one of all
    fresh = photos.rename(photos.with_name("fresh"))
    assert data(fresh).channels == load(data(fresh)).train_images.shape[1] == 3
    assert load(data(fresh, "data.channels=1")).train_images.shape[1] == 1  # made grey


def test_what_does_not_fit_into_memory_is_not_decoded(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photos / "ant" / "000.png").write_text("no image")
    monkeypatch.setattr(os, "sysconf", lambda name: 3 * 20 * 8 * 8 - 1 if "PAGES" in name else 1)
    with pytest.raises(InputError, match=r"^data.size=8: 20 images take 0.0 GB of memory, and this machine has 0.0; "):
        load(data(photos))


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("data.classes=3", "data.classes=3: .* has 2"),
        ("data.class_names=[bee,ant]", "has .*ant"),
        ("data.class_names=[1,2]", r"data.class_names\[0\]=1: must be text"),
        ("data.class_names=5", "data.class_names=5: must be a list, each text"),
        ("data.title=5", "data.title=5: must be text or null"),
    ],
)
def test_typed_classes_must_be_those_of_the_files(word: str, line: str, photos: Path) -> None:
    with pytest.raises(InputError, match=line):
        identify(data(photos, word))


def test_the_identity_is_of_contents_and_classes_not_of_names_and_places(photos: Path) -> None:
    checksum = identify(data(photos)).unlisted
    found = {checksum}
    for number, (old, new, same) in enumerate(
        [
            ("ant/000.png", "ant/000-first.png", True),
            ("ant", "aphid", False),
            ("ant/003.png", "ant/004.png", False),
            ("ant/009.png", "bee/000.png", False),
            ("ant/000.png", "ant/010.png", False),
        ]
    ):
        moved = shutil.copytree(photos, photos.parent / str(number))
        (moved / old).rename(moved / new)
        assert (identify(data(moved)).unlisted in found) == same
        found.add(identify(data(moved)).unlisted)
    for name, first, same in (("a", 0, False), ("b", 1, False), ("c", 0, True)):
        np.savez(photos.parent / f"{name}.npz", images=pixels(8, 8, 8) + np.uint8(first), labels=[0, 1] * 4)
        assert (identify(data(photos.parent / f"{name}.npz")).unlisted in found) == same
        found.add(identify(data(photos.parent / f"{name}.npz")).unlisted)


def test_all_files_that_are_no_images_are_named_in_one_line(photos: Path) -> None:
    (photos / "ant" / "notes.doc").write_text("some text")
    (photos / "ant" / "labels.csv").write_text("texts are left out")
    (photos / "ant" / ".DS_Store").write_text("hidden files are left out")
    (photos / "ant" / "empty.png").touch()
    save(photos / "bee" / "100.png", pixels(64, 64))
    (photos / "bee" / "100.png").write_bytes((photos / "bee" / "100.png").read_bytes()[:2000])
    line = refused(load, data(photos))
    doc = f"{photos}/ant/notes.doc: not a PNG, JPEG, BMP, GIF, TIFF, WEBP or PPM image"
    assert line.startswith(
        f"{photos}/ant/empty.png: can't be used: empty; {doc}; {photos}/bee/100.png: can't be used: "
    )
    assert line.endswith("; data.reader.skip_damaged=true leaves them out")
    lines: list[str] = []
    images = load(data(photos, "data.reader.skip_damaged=true"), lines.append)
    assert len(images.train_labels) + len(images.test_labels) == 19
    assert [line.partition(": ")[0] for line in lines] == ["left out"] * 3
    save(photos / "beside.png", pixels(64, 64))
    listing.cache_clear()
    load(data(photos, "data.reader.skip_damaged=true"), lines.append)
    assert "left out: 1 file beside the class folders" in lines
    CapsuleData(images, config(photos))  # the batch is lowered


def test_validation_arrays_are_held_out(tmp_path: Path) -> None:
    kinds = {"images": pixels(4, 8, 8), "labels": [0, 1] * 2}
    parts = {f"{part}{kind}": value for part in ("", "val_", "test_") for kind, value in kinds.items()}
    np.savez(tmp_path / "a.npz", **parts | {"val_images": pixels(4, 8, 8) // 2})
    held, labels = splits_of(config(tmp_path / "a.npz")).evaluated
    assert (held[:, 0].tolist(), labels.tolist()) == ((pixels(4, 8, 8) // 2).tolist(), [0, 1] * 2)


def test_a_folder_with_two_images_a_class_has_none_to_hold_out(tmp_path: Path) -> None:
    two(tmp_path / "photos", 0, 2)
    line = refused(run, composed_config(*of_photos(tmp_path), f"data.path={tmp_path}/photos"))
    assert line == "protocol=heldout: some class must have two training images, one of them held out"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"labels": None}, "has images, not labels; must have images and labels"),
        ({"images": None, "labels": None, "x": [0], "y": [0]}, "has x, y, not images and labels"),
        ({"labels": np.array(["a", 1, "b", 2], object)}, "labels.astype(str) makes texts"),
        ({"images": pixels(4, 0, 0)}, "they are uint8 [4, 0, 0]"),
        ({"labels": [0, 1, 0]}, "labels must be [N] whole numbers or texts, one an image; they are int64 [3]"),
        ({"labels": [0.5, 1, 0, 1]}, "labels must be"),
        ({"images": pixels(4, 8, 8) / 255}, "images must be uint8"),
        ({"images": pixels(4, 8, 8, 2)}, "images must be uint8"),
        ({"test_images": pixels(1, 8, 8), "test_labels": [2]}, "class 2 has"),
    ],
)
def test_other_arrays_are_one_line(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    arrays = {"images": pixels(4, 8, 8), "labels": [0, 1, 0, 1]} | changes
    np.savez(tmp_path / "a.npz", **{name: array for name, array in arrays.items() if array is not None})
    assert line in refused(data, tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["data=folder"], "data.path=: missing; must be a folder with a folder for each class, or an .npz file"),
        (["data=folder", "data.path=''"], "data.path=: missing; must be a folder"),
        (["data=folder", "data.path=nowhere"], "data.path=nowhere: isn't there; must be a folder"),
        (["data=folder", "data.path=5"], "data.path=5: isn't there; must be a folder"),
        (["data=folder", f"data.path={__file__}"], f"data.path={__file__}: no folder; must be a folder"),
        (["data=mnist", "+data.path=photos"], "data.path=photos: no such key of data=mnist; data=folder has it"),
    ],
)
def test_a_missing_path_is_one_line_and_so_is_one_of_another_set(words: list[str], line: str) -> None:
    assert refused(composed_config, *map(compose.for_hydra, words)).startswith(line)


def test_means_and_deviations_are_those_of_the_training_images(photos: Path) -> None:
    images = load(data(photos)).train_images
    mean, std = normalization(data(photos), images)
    scaled = images.double() / 255
    assert mean == pytest.approx([scaled.mean().item()])
    assert std == pytest.approx([scaled.std(correction=0).item()])
    assert normalization(data(photos, "data.mean=[0.9]"), images) == ([0.9], std)
    assert normalization(data(photos), torch.full_like(images, 7)) == ([pytest.approx(7 / 255)], [pytest.approx(0.001)])


def test_the_command_in_a_record_names_images_without_the_folders_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, kept in {
        f"{tmp_path}/in/photos": " data.path=in/photos",
        "/home/me/my photos": " 'data.path=my photos'",
        "../photos": " data.path=photos",
        "photos.npz": " data.path=photos.npz",
    }.items():
        for plus in ("", "++"):
            words = ["data=folder", compose.for_hydra(f"{plus}data.path={typed}")]
            assert compose.command(words, "bf16").endswith(f"{kept} trainer.precision=bf16")


def test_a_run_on_a_folder_whose_name_is_not_utf8_has_its_record(photos: Path, tmp_path: Path) -> None:
    odd = photos.rename(os.fsdecode(os.fsencode(tmp_path) + b"/im\xe4ges"))
    (odd / "ant").rename(os.fsdecode(os.fsencode(odd) + b"/am\xe4ise"))
    words = [*of_photos(tmp_path), compose.for_hydra(f"data.path={odd}")]
    record = run(composed_config(*words), words)
    assert r"im\udce4ges" in record.provenance["command"]


def of_photos(place: Path) -> list[str]:
    """The words of a short run on somebody's own images."""
    words = [word for word in TINY if "images" not in word and not word.startswith("data=")]
    return [*words, "data=folder", "data.size=28", "logger=[]", *folders(place)]


def test_a_run_from_images_to_evaluation(photos: Path, tmp_path: Path) -> None:
    words = [*of_photos(tmp_path), "optim.batch_size=6", "preprocess.normalize=true"]
    config = composed_config(*words, f"data.path={photos}")
    record, folder = run(config), plan(config).folder
    assert "path" not in record.config["data"]
    assert record.config["data"]["class_names"] == ["ant", "bee"]
    assert records.read(plan(config).path) == record
    moved = photos.rename(tmp_path / "moved")
    assert run(composed_config(*words, f"data.path={moved}")) == record  # finished already
    restored = restore(folder, overrides=[f"data.path={moved}"])
    assert keys.key_of(restored.module.planned.identity) == record.key
    evaluation = evaluate(restored)
    assert evaluation.accuracy == record.heldout_accuracy
    assert list(evaluation.classes.index) == ["ant", "bee"]
    others = shutil.copytree(moved, tmp_path / "others")
    (others / "bee").rename(others / "cow")
    words = ("data=folder", f"data.path={others}", f"data.size={record.config['data']['size']}")
    assert refused(restore, folder, "cpu", words).endswith("others: has class cow, which is none of ant, bee")
    without = restore(folder)
    assert without.config.data.class_names == ["ant", "bee"]
    assert refused(evaluate, without).startswith("data.path=: missing")
    numbered(moved / "cow", 0, 2)
    words = (f"data.path={moved.rename(tmp_path / 'again')}",)
    assert refused(restore, folder, "cpu", words).endswith("/again: has class cow, which is none of ant, bee")


def test_classes_in_another_order_are_evaluated_by_name(tmp_path: Path) -> None:
    for number in range(12):
        numbered(tmp_path / "photos" / str(number), 20 * number, 6)
    words = [*of_photos(tmp_path), "optim.batch_size=8"]
    config = composed_config(*words, f"data.path={tmp_path}/photos", "data.reader.test_fraction=0.5")
    run(config)
    images, numbers = load(config.data), [str(number) for number in range(12)]
    tested = {"test_images": images.test_images[:, 0], "test_labels": np.array(numbers)[images.test_labels]}
    np.savez(tmp_path / "a.npz", images=pixels(12, 28, 28), labels=numbers, **tested)
    own, other = (
        evaluate(restore(plan(config).folder, overrides=[f"data.path={tmp_path}/{name}"])).confusion
        for name in ("photos", "a.npz")
    )
    assert list(own) == numbers
    assert own.equals(other)


def test_of_other_images_all_are_evaluated_but_those_that_were_trained_on(photos: Path, tmp_path: Path) -> None:
    words = of_photos(tmp_path)
    config = composed_config(*words, f"data.path={photos}")
    run(config)
    folder, lines = plan(config).folder, list[str]()

    def evaluated(path: Path) -> int:
        return evaluate(restore(folder, overrides=[f"data.path={path}"]), lines.append).images

    assert evaluated(photos) == 2
    grown = photos.rename(tmp_path / "grown")
    numbered(grown / "ant", 50, 5)
    assert evaluated(grown) == 2 + 5
    assert lines[-1].endswith("isn't the set of the run; 18 of its 25 images are left out: the run was trained on them")
    two(tmp_path / "only" / "test", 60, 6)
    assert evaluated(tmp_path / "only") == 12
    line = refused(run, composed_config(*words, f"data.path={tmp_path}/only"))
    assert line.endswith("no training images; capsexp evaluate RUN takes test images")
    numbered(tmp_path / "one" / "test" / "ant", 60, 6)
    assert evaluated(tmp_path / "one") == 6  # of one class
    two(tmp_path / "few", 70, 1)
    assert evaluated(tmp_path / "few") == 2

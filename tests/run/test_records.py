"""Records: identity and key, writing and reading back, detected damage."""

import dataclasses
import json
import os
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import made
import pytest
from support import committed_records, composed_config, put, raising, refused

from capsexp.files import write_file
from capsexp.run import keys, records

BASE = ("data=mnist",)


def key(*overrides: str) -> str:
    return keys.key_of(keys.identity(composed_config(*BASE, *overrides), "bf16", None))


CHANGING = """seed=1 routing.iterations=2 attention.cbam=true attention=se model.width=0.5 optim.lr=0.01 budget=short
budget.train_images=100 preprocess.shift=0.1 preprocess.rotate=30 preprocess.normalize=true loss=cross_entropy
reconstruction.enabled=true protocol=heldout data=fashion_mnist"""
#: Digits are not mirrored, nothing is normalised, nothing is reconstructed.
IDLE = """seed=0 data.root=/elsewhere paths.logs=/elsewhere trainer.progress=none trainer.deterministic=true rerun=true
trainer.accelerator=cpu optim.lr=1e-3 preprocess.flip=true data.mean=[0.5] reconstruction.weight=1
+data.versions.mine={note:"x",files:{a:b}} callbacks=none optim.gradient_clip=null logger=[]
logger=[tensorboard,csv,wandb,mlflow]"""


@pytest.mark.parametrize("override", CHANGING.split())
def test_what_changes_the_numbers_changes_the_key(override: str) -> None:
    assert key(override) != key()


@pytest.mark.parametrize("override", IDLE.split())
def test_what_does_not_change_them_does_not(override: str) -> None:
    assert key(override) == key()


def test_precision_note_and_the_checksum_of_unlisted_files_are_part_of_it() -> None:
    made = [("bf16", None), ("float32", None), ("bf16", "mine"), ("bf16", "mine", "a"), ("bf16", "mine", "b")]
    assert len({keys.key_of(keys.identity(composed_config(*BASE), *given)) for given in made}) == len(made)


def test_a_new_option_at_its_default_moves_no_key() -> None:
    identity = keys.identity(composed_config(*BASE), "bf16", None)
    assert identity["model"] == {"name": "capsnet"}
    assert identity["routing"] == {"name": "dynamic"}
    assert [*identity["attention"]] == ["cbam", "conv", "caps", "cbam_reduction"]
    assert not {"callbacks", "gradient_clip"} & {*identity, *identity["optim"]}
    assert [*identity["preprocess"]] == ["normalize", "shift", "crop_padding", "flip"]
    decoding = keys.identity(composed_config(*BASE, "reconstruction.enabled=true"), "bf16", None)
    assert [*decoding["reconstruction"]] == ["enabled", "weight", "hidden"]


@pytest.fixture
def record() -> records.Record:
    """A record of two epochs, made up."""
    return made.run("data=mnist budget.epochs=2", 0, [99.1, 99.2])


def path_of(record: records.Record, folder: Path) -> Path:
    """Where a record belongs."""
    return folder / f"{keys.name_of(record.identity)}.json"


def written_and_read(record: records.Record, folder: Path) -> records.Record:
    """What is read of a record that is written into a folder."""
    records.write(record, path_of(record, folder))
    return records.read(path_of(record, folder))


def test_a_module_of_the_attention_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = made.run("data=mnist budget.epochs=2 attention=se attention.first.reduction=4", 0, [99.1, 99.2])
    assert written_and_read(written, tmp_path) == written
    target = "capsexp.nn.attention.SqueezeExcitation"
    assert written.identity["attention"]["first"] == {"_target_": target, "name": "se", "reduction": 4}
    assert written.config["attention"]["first"] == {"_target_": target, "name": "se", "reduction": 4}


TEXTS = ("", "[]", "{}", "[" * 200_000, '{"digest": ' * 200_000, "9" * 10_000, '{"digest": "\\ud800"}')
ALL_CORRECT = {"correct": {"max_accuracy": "+A=="}, "data": {"note": None, "checksum": "0", "test_images": 5}}


def test_a_file_has_what_follows_from_the_epochs_too(record: records.Record, tmp_path: Path) -> None:
    for written in (record, dataclasses.replace(record, chance_accuracy=11.35)):
        assert written_and_read(written, tmp_path) == written
        content = json.loads(path_of(record, tmp_path).read_text())
        assert content["max_accuracy"] == content["last_accuracy"] == written.max_accuracy == 99.2
        assert (content["first_epoch_to_max"], content["seconds_per_epoch"]) == (2, 60.0)
        assert content.get("learned") is written.learned is (None if written is record else True)
    assert [*tmp_path.iterdir()] == [path_of(record, tmp_path)]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not a record"),
        (lambda text: text.replace("99.2", "99.9"), "damaged or edited"),
        (lambda text: text.replace("99.2", "NaN"), "not a record"),
        *((lambda text, other=other: other, "not a record") for other in TEXTS),  # none ends in a traceback
    ],
)
def test_damage_is_named(damage: Any, reason: str, record: records.Record, tmp_path: Path) -> None:
    path = path_of(record, tmp_path)
    records.write(record, path)
    path.write_text(damage(path.read_text()))
    line = refused(records.read, path)
    assert str(path) in line
    assert reason in line


CONTRADICTIONS = [
    (put("identity/seed", 7), "its identity doesn't match its key"),
    (put("heldout_accuracy", 99.0), "its results aren't those of a finished run of protocol paper"),
    (put("error", "none"), "its results aren't those of a finished run"),
    (put("epochs/0/epoch", 2), "its epochs aren't the 2 of its configuration"),
    (lambda node: node["epochs"].pop(), "its epochs aren't the 2 of its configuration"),
    (put("other", 1), "of a newer capsexp (other isn't known here)"),
    (put("parameters", -1), "not a record (parameters=-1: must be"),
    (put("epochs/0/test_seconds", "x"), "not a record (unsupported operand"),
    (put("peak_memory_mb", {}), "not a record ('device')"),
    (lambda node: node["config"]["budget"].pop("steps"), "not a record ('steps')"),
    (put("data/repeated", "x"), "not a record (Cannot specify ',' with 's'.)"),
    (lambda node: node.update(ALL_CORRECT), "its correct test images aren't those of its max_accuracy"),
    (lambda node: node.update(ALL_CORRECT, correct={"max_accuracy": "+AA="}), "2 bytes for a bit each of 5 images"),
    (lambda node: node.update(ALL_CORRECT, correct={"seed": "+A=="}), "not a record ("),
]


def test_parts_of_a_newer_capsexp_are_read_as_they_are(record: records.Record, tmp_path: Path) -> None:
    newer = dataclasses.replace(record, provenance=record.provenance | {"other": [1]})
    assert written_and_read(newer, tmp_path) == newer


def test_the_record_of_another_run_is_not_this_runs(record: records.Record, tmp_path: Path) -> None:
    other = made.run("data=mnist budget.epochs=2", 1, [98.0, 98.1])
    records.write(other, path_of(record, tmp_path))
    line = f"is the record of {keys.name_of(other.identity)}; rename or remove it"
    assert line in refused(records.read, path_of(record, tmp_path))
    assert not records.is_finished(path_of(record, tmp_path))


@pytest.mark.parametrize("changed", [{"parameters": -1}, {"error": "none"}, {"provenance": {"command": "\ud800"}}])
def test_what_could_not_be_read_again_is_not_written(
    changed: dict[str, Any], record: records.Record, tmp_path: Path
) -> None:
    path = path_of(record, tmp_path)
    records.write(record, path)
    with pytest.raises(ValueError, match=r"not a record|damaged or edited|surrogates"):
        records.write(dataclasses.replace(record, **changed), path)
    assert records.read(path) == record


@pytest.mark.parametrize("images", [1, 7, 8, 9, 10_000])
def test_packed_bits_are_those_that_were_packed(images: int) -> None:
    correct = [place % 3 > 0 for place in range(images)]
    assert records.unpacked(records.packed(correct), images).tolist() == correct


@pytest.mark.parametrize(("change", "reason"), CONTRADICTIONS)
def test_a_record_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], None], reason: str, record: records.Record, tmp_path: Path
) -> None:
    path = path_of(record, tmp_path)
    content = json.loads(records.text(record))
    del content["digest"]
    change(content)
    path.write_text(json.dumps(content | {"digest": records._digest(content)}))
    line = refused(records.read, path)
    assert reason in line
    assert "of a newer" in line or line.endswith("; rerun=true on its run makes it again")


def test_what_is_missing_too_large_or_no_file_is_not_read(tmp_path: Path) -> None:
    assert "no such record" in refused(records.read, tmp_path / "a.json")
    os.mkfifo(tmp_path / "b.json")
    assert "not a file; move it away" in refused(records.read, tmp_path / "b.json")
    (tmp_path / "c.json").touch()
    os.truncate(tmp_path / "c.json", 1 << 36)
    assert "more than 67,108,864 bytes" in refused(records.read, tmp_path / "c.json")


@pytest.fixture(scope="module")
def committed() -> dict[Path, records.Record]:
    """The committed records, by file; skips outside a checkout."""
    return {path: records.read(path) for path in committed_records()} or pytest.skip("not a checkout")


def test_a_committed_record_is_written_as_it_was(committed: dict[Path, records.Record], tmp_path: Path) -> None:
    for path, record in committed.items():
        assert path.stem == keys.name_of(record.identity)
        records.write(record, tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


#: What the commands of older records lack: options that have another value in conf/ since.
SINCE = {"spread": "loss.steps=136850"}


@pytest.mark.slow  # half a minute, more with each record
def test_the_commands_of_the_committed_records_repeat_them(committed: dict[Path, records.Record]) -> None:
    composed = cache(composed_config)
    for path, record in committed.items():
        older = "steps" not in record.identity["loss"] and SINCE.get(record.identity["loss"]["name"])
        words = [*shlex.split(record.provenance["command"])[3:], *([older] if older else [])]
        seed = next((word for word in words if word.startswith("seed=")), "seed=0")
        config = dataclasses.replace(composed(*(word for word in words if word != seed)), seed=int(seed[5:]))
        assert keys.identity(config, record.identity["precision"], record.data["note"]) == record.identity, path


def test_to_have_learned_is_to_double_the_odds_of_a_constant_guess() -> None:
    assert [records.has_learned(accuracy, 10.0) for accuracy in (6.0, 16.0, 18.18, 18.19)] == [False] * 3 + [True]
    assert [records.has_learned(accuracy, 50.0) for accuracy in (66.66, 66.67)] == [False, True]
    assert [records.has_learned(accuracy, 1.0) for accuracy in (1.98, 1.99)] == [False, True]


def test_the_first_of_equal_maxima_and_the_median_time_count(record: records.Record) -> None:
    epochs = [
        {"test_accuracy": a, "train_seconds": s, "test_seconds": 1.0} for a, s in ((90, 3), (95, 1), (95, 9), (94, 2))
    ]
    for rows, expected in ((epochs, (95, 2, 94, 3.5)), ([], (None,) * 4)):
        made = dataclasses.replace(record, epochs=rows)
        assert (made.max_accuracy, made.first_epoch_to_max, made.last_accuracy, made.seconds_per_epoch) == expected


def test_what_a_killed_writer_left_an_hour_ago_is_removed(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".a[1].npz.x.part", ".a[1].npz.y.part", ".b.npz.x.part"))
    for part in (old, young, other):
        part.touch()
    for part in (old, other):
        os.utime(part, (0, 0))
    write_file(tmp_path / "a[1].npz", b"new")
    assert [part.exists() for part in (old, young, other)] == [False, True, True]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_file(path, b"old")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", raising(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left") as raised:
            write_file(path, "new")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "b").touch()
    assert path.stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_result_on_test_images_has_its_exact_interval() -> None:
    assert records.of_images(63.33333, 30) == "63.33 % of 30 test images (44 to 80)"
    assert records.of_images(100, 10) == "100.00 % of 10 test images (69 to 100)"
    assert records.of_images(99.12, 10_000) == "99.12 % of 10,000 test images (98.92 to 99.29)"


def test_images_of_one_class_alone_are_said_to_tell_nothing(record: records.Record) -> None:
    epochs = [{**epoch, "test_accuracy": 100.0} for epoch in record.epochs]
    alone = dataclasses.replace(record, epochs=epochs, chance_accuracy=100.0)
    assert records.result_line(alone).endswith(
        "; all of the evaluated images are of one class, so that this says nothing"
    )

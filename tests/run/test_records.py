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
from capsexp.run import records

BASE = ("data=mnist",)


def key(*overrides: str, precision: str = "bf16", note: str | None = None) -> str:
    return records.key_of(records.identity(composed_config(*BASE, *overrides), precision, note))


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "routing.iterations=2",
        "routing.logits=replace",
        "attention.cbam=true",
        "model.width=0.5",
        "model.squash_constant=0.5",
        "optim.lr=0.01",
        "optim.batch_size=64",
        "budget=short",
        "budget.train_images=100",
        "preprocess.shift=0.1",
        "preprocess.normalize=true",
        "loss=cross_entropy",
        "reconstruction.enabled=true",
        "protocol=heldout",
        "data.size=27",
        "data=fashion_mnist",
    ],
)
def test_what_changes_the_numbers_changes_the_key(override: str) -> None:
    assert key(override) != key()


@pytest.mark.parametrize(
    "override",
    [
        "seed=0",
        "data.root=/elsewhere",
        "data.download=false",
        "paths.results=/elsewhere",
        "paths.logs=/elsewhere",
        "trainer.progress=none",
        "trainer.threads=1",
        "trainer.deterministic=true",
        "trainer.accelerator=cpu",
        "rerun=true",
        "optim.lr=1e-3",
        "preprocess.flip=true",  # digits are not mirrored
        "data.mean=[0.5]",  # nothing is normalised
        "reconstruction.weight=1",  # nothing is reconstructed
        '+data.versions.mine={note: "x", files: {a: b}}',
    ],
)
def test_what_does_not_change_them_does_not(override: str) -> None:
    assert key(override) == key()


def test_precision_and_note_are_part_of_it() -> None:
    assert len({key(), key(precision="float32"), key(note="a part")}) == 3


def test_the_checksum_of_unlisted_files_is_part_of_it() -> None:
    config = composed_config(*BASE)
    keys = {records.key_of(records.identity(config, "bf16", "mine", checksum)) for checksum in (None, "a", "b")}
    assert len(keys) == 3


def test_a_new_option_at_its_default_moves_no_key() -> None:
    identity = records.identity(composed_config(*BASE), "bf16", None)
    assert identity["model"] == {"name": "capsnet"}
    assert identity["routing"] == {"name": "dynamic"}


@pytest.fixture
def record() -> records.Record:
    """A record of two epochs, made up."""
    return made.run("data=mnist budget.epochs=2", 0, [99.1, 99.2])


TEXTS = ("", "[]", "{}", "[" * 200_000, '{"digest": ' * 200_000, "9" * 10_000, '{"digest": "\\ud800"}')
ALL_CORRECT = {"correct": {"max_accuracy": "+A=="}, "data": {"note": None, "checksum": "0", "test_images": 5}}


@pytest.mark.parametrize("changed", [{}, {"learned": True, "chance_accuracy": 11.35}])
def test_reading_back_gives_the_same_object(changed: dict[str, Any], record: records.Record, tmp_path: Path) -> None:
    written = dataclasses.replace(record, **changed)
    records.write(written, tmp_path / "a.json")
    assert records.read(tmp_path / "a.json") == written
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    content = json.loads((tmp_path / "a.json").read_text())
    fields = {field.name for field in dataclasses.fields(records.Record)}
    assert content.keys() == fields | {"digest"}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not a record"),
        (lambda text: text.replace("99.2", "99.9"), "damaged or edited"),
        (lambda text: text.replace("99.2", "NaN"), "not a record"),
        (lambda text: text.replace('"seed": 0', '"seed": 1'), "damaged or edited"),
        (lambda text: text.replace("finished", "failed"), "damaged or edited"),
        *((lambda text, other=other: other, "not a record") for other in TEXTS),  # none ends in a traceback
    ],
)
def test_damage_is_named(damage: Any, reason: str, record: records.Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    records.write(record, path)
    path.write_text(damage(path.read_text()))
    line = refused(records.read, path)
    assert str(path) in line
    assert reason in line


def _as_if_trained_whole(node: dict[str, Any]) -> None:
    del node["identity"]["budget"]["epochs"]
    node["key"] = records.key_of(node["identity"])


def _first_epoch_only(node: dict[str, Any]) -> None:
    del node["epochs"][1]
    node |= {"max_accuracy": 99.1, "first_epoch_to_max": 1, "last_accuracy": 99.1, "seconds_per_epoch": 60.0}


CONTRADICTIONS = [
    (put("identity/seed", 7), "its identity doesn't match its key"),
    (put("max_accuracy", 1e308), "its maximum, last or seconds aren't those of its epochs"),
    (put("max_accuracy", 99.1), "its maximum, last or"),
    (put("first_epoch_to_max", 1), "its maximum, last or"),
    (put("last_accuracy", 99.1), "its maximum, last or"),
    (put("seconds_per_epoch", 0.1), "its maximum, last or"),
    (put("heldout_accuracy", 99.0), "its results aren't those of a finished run of protocol paper"),
    (put("error", "none"), "its results aren't those of a finished run"),
    (put("status", "failed"), "its results aren't those of a failed run"),
    (put("epochs/0/test_accuracy", -1.0), "an accuracy isn't between"),
    (put("epochs/1/test_accuracy", 101.0), "an accuracy isn't between 0 and 100 %"),
    (put("epochs/0/epoch", 2), "its epochs aren't the 2 of its configuration"),
    (_first_epoch_only, "its epochs aren't the 2 of its configuration"),
    (_as_if_trained_whole, "its configuration doesn't match its identity in budget.epochs"),
    (put("config/seed", 1), "its configuration doesn't match its identity in seed"),
    (put("config/optim/lr", 1.0), "its configuration doesn't match its identity in optim.lr"),
    (put("config/data/name", "svhn"), "its configuration doesn't match its identity in data.name"),
    (put("config/trainer/precision", "float32"), "its configuration doesn't match its identity in precision"),
    (put("config/reconstruction/enabled", True), "its configuration doesn't match its identity in reconstruction"),
    (put("data/note", "mine"), "its configuration doesn't match its identity in data.note"),
    (put("learned", True), "whether it learned doesn't follow from its epochs"),
    (lambda node: node.update(learned=False, chance_accuracy=50.0), "whether it learned doesn't follow"),
    (put("provenance/command", "python 'x"), "not a record (No closing quotation)"),
    (put("provenance/commits", [5]), "not a record (provenance.commits[0]=5: must be text or null)"),
    (put("provenance/device", ["x"]), "not a record (provenance.device=['x']: must be text)"),
    (put("epochs/0/train_loss", "x"), "not a record (epochs: train_loss=x: must be a number)"),
    (put("peak_memory_mb/device", "x"), "not a record (peak_memory_mb.device=x: must be"),
    (put("config/budget/epochs", [1]), "not a record (config.budget.epochs=[1]: must be"),
    (put("data/test_images", 0), "not a record (data.test_images=0: must be"),
    (put("data/test_images", "x"), "not a record (data.test_images=x: must be"),
    (put("config", {}), "not a record ("),
    (put("epochs/0/train_seconds", 10**400), "not a record (a whole number of 401 digits)"),
    (put("epochs/0/train_seconds", 1e300), "not a record (epochs: train_seconds=1e+300: must be"),
    (put("epochs/1/test_accuracy", None), "not a record (epochs: test_accuracy=None: must be a number)"),
    (lambda node: node["epochs"][1].pop("train_loss"), "not a record (epochs: train_loss: missing)"),
    (put("parameters", -1), "not a record (parameters=-1: must be"),
    (put("config/routing/iterations", "x"), "not a record (config.routing.iterations=x: must be"),
    (put("config/model/width", 1e300), "not a record (config.model.width=1e+300: must be"),
    (put("provenance/load", "x"), "not a record (provenance.load=x: must be"),
    (put("provenance/threads", [1]), "not a record (provenance.threads=[1]: must be"),
    (put("provenance/python", 3), "not a record (provenance.python=3: must be"),
    (put("provenance/cores", 1e300), "not a record (provenance.cores=1e+300: must be"),
    (lambda node: node.update(ALL_CORRECT), "its correct test images aren't those of its max_accuracy"),
    (lambda node: node.update(ALL_CORRECT, correct={"max_accuracy": "+AA="}), "2 bytes for a bit each of 5 images"),
    (lambda node: node.update(ALL_CORRECT, correct={"max_accuracy": "?"}), "not a record ("),
    (lambda node: node.update(ALL_CORRECT, correct={"seed": "+A=="}), "not a record ("),
]


@pytest.mark.parametrize("images", [1, 7, 8, 9, 10_000])
def test_packed_bits_are_those_that_were_packed(images: int) -> None:
    correct = [place % 3 > 0 for place in range(images)]
    assert records.unpacked(records.packed(correct), images).tolist() == correct


@pytest.mark.parametrize(("change", "reason"), CONTRADICTIONS)
def test_a_record_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], None], reason: str, record: records.Record, tmp_path: Path
) -> None:
    content = dataclasses.asdict(record)
    change(content)
    records.write(records.Record(**content), tmp_path / "a.json")
    line = refused(records.read, tmp_path / "a.json")
    assert reason in line
    assert line.endswith("; rerun=true on its run makes it again")


def test_a_file_larger_than_any_record_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as stream:
        stream.truncate(1 << 36)
    assert "more than 67,108,864 bytes" in refused(records.read, tmp_path / "a.json")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    assert "not a file; move it away" in refused(records.read, tmp_path / "a.json")


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    assert "no such record" in refused(records.read, tmp_path / "a.json")


@pytest.fixture(scope="module")
def committed() -> dict[Path, records.Record]:
    """The committed records, by file."""
    return {path: records.read(path) for path in committed_records()}


def test_the_committed_records_are_whole(committed: dict[Path, records.Record]) -> None:
    for path, record in committed.items():
        assert path.stem == records.name_of(record.identity)


#: What the commands of older records lack: options that have another value in conf/ since.
SINCE = {"spread": "loss.steps=136850"}


def test_the_commands_of_the_committed_records_repeat_them(committed: dict[Path, records.Record]) -> None:
    composed = cache(composed_config)
    for path, record in committed.items():
        older = "steps" not in record.identity["loss"] and SINCE.get(record.identity["loss"]["name"])
        words = [*shlex.split(record.provenance["command"])[3:], *([older] if older else [])]
        seed = next((word for word in words if word.startswith("seed=")), "seed=0")
        config = dataclasses.replace(composed(*(word for word in words if word != seed)), seed=int(seed[5:]))
        assert records.identity(config, record.identity["precision"], record.data["note"]) == record.identity, path


def test_to_have_learned_is_to_double_the_odds_of_a_constant_guess() -> None:
    assert [records.has_learned(accuracy, 10.0) for accuracy in (6.0, 16.0, 18.18, 18.19)] == [False] * 3 + [True]
    assert [records.has_learned(accuracy, 50.0) for accuracy in (66.66, 66.67)] == [False, True]
    assert [records.has_learned(accuracy, 1.0) for accuracy in (1.98, 1.99)] == [False, True]


def test_summary() -> None:
    rows = [
        {"test_accuracy": a, "train_seconds": s, "test_seconds": 1.0} for a, s in ((90, 3), (95, 1), (95, 9), (94, 2))
    ]
    assert records.summary(rows, "test") == (95, 2, 94, 3.5)
    assert records.summary([], "test") == (None, None, None, None)


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

"""Records: identity and key, writing and reading back, detected damage."""

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from support import committed_records, composed_config

from capsexp.errors import InputError
from capsexp.files import write_atomically
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


def test_the_committed_keys_hold() -> None:
    """The keys of the committed records are those that today's code gives their configurations."""
    assert key("budget=short", "budget.epochs=2") == "9c24696cb85b3071"


@pytest.fixture
def record() -> records.Record:
    """A record of two epochs, made up."""
    config = composed_config(*BASE)
    identity = records.identity(config, "bf16", None)
    rows = [
        {"epoch": 1, "test_accuracy": 99.1, "train_loss": 0.1},
        {"epoch": 2, "test_accuracy": 99.2, "train_loss": None},
    ]
    return records.Record(
        key=records.key_of(identity),
        status="finished",
        error=None,
        identity=identity,
        config=records.stored_config(config),
        epochs=rows,
        max_accuracy=99.2,
        first_epoch_to_max=2,
        last_accuracy=99.2,
        heldout_accuracy=None,
        parameters=6_804_224,
        seconds_per_epoch=1.5,
        peak_memory_mb={"device": None, "host": 700.0},
        data={"note": None, "checksum": "0"},
        provenance={"started": "2026-01-01T00:00:00+00:00"},
    )


def test_reading_back_gives_the_same_object(record: records.Record, tmp_path: Path) -> None:
    records.write(record, tmp_path / "a.json")
    assert records.read(tmp_path / "a.json") == record
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_record_is_readable_by_anything_that_reads_json(record: records.Record, tmp_path: Path) -> None:
    records.write(record, tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    fields = {field.name for field in dataclasses.fields(records.Record)}
    assert content.keys() == fields | {"digest"}


def _edited(content: dict[str, Any], **changes: Any) -> str:
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: "", "not a record"),
        (lambda text: text[: len(text) // 2], "not a record"),
        (lambda text: "[]", "not a record"),
        (lambda text: "{}", "not a record"),
        (lambda text: text.replace("99.2", "99.9"), "damaged or edited"),
        (lambda text: text.replace("99.2", "NaN"), "not a record"),
        (lambda text: text.replace('"seed": 0', '"seed": 1'), "damaged or edited"),
        (lambda text: text.replace("finished", "failed"), "damaged or edited"),
    ],
)
def test_damage_is_named(damage: Any, reason: str, record: records.Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    records.write(record, path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=reason) as raised:
        records.read(path)
    assert str(path) in str(raised.value)


def test_a_configuration_that_does_not_match_its_key_is_named(record: records.Record, tmp_path: Path) -> None:
    other = dataclasses.replace(record, identity=record.identity | {"seed": 7})
    records.write(other, tmp_path / "a.json")
    with pytest.raises(InputError, match="its configuration doesn't match its key"):
        records.read(tmp_path / "a.json")


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such record"):
        records.read(tmp_path / "a.json")


def test_the_committed_records_are_whole() -> None:
    for path in committed_records():
        record = records.read(path)
        assert path.stem == records.run_name(record.identity)
        assert record.max_accuracy == max(row["test_accuracy"] for row in record.epochs)


#: What the commands of older records lack: options that have another value in conf/ since.
SINCE = {"spread": "loss.steps=136850"}


def test_the_commands_of_the_committed_records_repeat_them() -> None:
    for path in committed_records():
        record = records.read(path)
        older = "steps" not in record.identity["loss"] and SINCE.get(record.identity["loss"]["name"])
        words = [*shlex.split(record.provenance["command"])[3:], *([older] if older else [])]
        config = composed_config(*words)
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


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, lambda stream: stream.write(b"old"))

    def failing(stream: Any) -> None:
        stream.write(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        write_atomically(path, failing)
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

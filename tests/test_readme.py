"""The README says what is there: every file of the configuration, every committed record with its numbers."""

from pathlib import Path

import pytest
from support import ROOT, committed_records

from capsexp import records
from capsexp.composing import CONF

README = (ROOT / "README.md").read_text()


def row(record: records.Record, path: Path) -> str:
    """A record as a row of the README's table."""
    identity, config = record.identity, record.config
    flags = [flag for flag in ("cbam", "conv", "caps") if identity["attention"][flag]]
    network = " + ".join([identity["model"]["name"], *flags])
    iterations = config["routing"].get("iterations", "–")
    data = identity["data"]["name"] + (f", {note}" if (note := record.data["note"]) else "")
    images = f", first {count:,} images" if (count := identity["budget"]["train_images"]) else ""
    tested = f", tested on {count:,}" if (count := identity["budget"]["test_images"]) else ""
    width = f", {identity['budget']['width']:.0%} of the channels" if identity["budget"]["width"] < 1 else ""
    done = f"{len(record.epochs)} of {identity['optim']['epochs']} epochs{width}{images}{tested}"
    numbers = f"{record.max_accuracy:.2f} % | {record.first_epoch_to_max} | {record.last_accuracy:.2f} %"
    link = f"[{record.key}]({path.relative_to(ROOT)})"
    return f"| {network} | {iterations} | {data} | {done} | {identity['seed']} | {numbers} | {link} |"


def test_the_table_is_what_the_committed_records_say() -> None:
    paths = committed_records()
    if not paths:
        pytest.skip("not a checkout")
    expected = [row(records.read(path), path) for path in paths]
    printed = [line for line in README.splitlines() if "](results/runs/" in line]
    assert sorted(printed) == sorted(expected)


def test_every_file_of_the_configuration_is_in_the_picture_of_it() -> None:
    words = README.split()
    groups = [folder for folder in CONF.iterdir() if folder.is_dir() and folder.name != "hydra"]
    for path in (path for group in groups for path in group.glob("*.yaml")):
        assert path.stem in words, f"{path.relative_to(CONF)} is missing in the picture of the configuration"

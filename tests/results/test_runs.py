"""Runs of records: the measures of one run, and files that are no records."""

from dataclasses import replace
from pathlib import Path

import pytest
from made import PLAIN, run, runs, write

from capsexp.results.runs import read, run_of
from capsexp.run import keys


def test_measures_of_one_run() -> None:
    found = run_of(run(PLAIN, 0, [90.0, 98.94, 99.0, 99.05, 98.0, 99.05]))
    assert (found.measures["accuracy"], found.measures["last"], found.measures["first_epoch"]) == (99.05, 99.05, 4)
    assert found.measures["first_five"] == pytest.approx((90 + 98.94 + 99 + 99.05 + 98) / 5)
    assert found.measures["inference"] == pytest.approx(128 * 10 / 10_000 * 1000)  # 10 s for 10,000 images
    assert (found.measures["memory"], found.measures["host"], found.measures["seconds"]) == (1000.0, 2000.0, 60.0)
    assert found.hours == pytest.approx(0.1)
    assert "reconstruction" not in found.measures
    drawn = run(PLAIN, 0, [90.0, 91.0])
    drawn = replace(drawn, epochs=[epoch | {"test_reconstruction": 40.0 / epoch["epoch"]} for epoch in drawn.epochs])
    assert run_of(drawn).measures["reconstruction"] == 20.0  # of the last epoch
    assert run_of(run(PLAIN, 0, [90.0] * 4)).measures.get("first_five") is None
    assert run_of(run(f"{PLAIN} budget.test_images=500", 0)).measures["inference"] == pytest.approx(128 / 50 * 1000)
    assert run_of(run(PLAIN, 0, note="a part")).measures.get("inference") is None


def test_a_maximum_in_the_last_epoch_is_a_lower_bound() -> None:
    curves = [[9.0], [1.0, 9.0], [9.0, 9.0], [9.0, 1.0]]
    assert [run_of(run(PLAIN, 0, curve)).censored for curve in curves] == [True, True, False, False]


def test_data_sets_and_splits_have_different_digests() -> None:
    fraction = f"{COIL} data.reader.test_fraction=0.3"
    digests = {run_of(run(words, 0)).dataset for words in (PLAIN, COIL, fraction, f"{PLAIN} routing.iterations=1")}
    assert len(digests) == 3
    assert run_of(run(PLAIN, 0, note="a part")).dataset in digests


COIL = "model=capsnet data=coil20 attention=none"


def test_files_that_are_no_records_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    (good,) = write(tmp_path, runs(PLAIN, [99.7]))
    text, folder = good.read_text(), tmp_path / "runs"
    assert '"train_loss": 0.1' in text
    (folder / "a-damaged.json").write_text(text[:100])
    (folder / "b-edited.json").write_text(text.replace('"train_loss": 0.1', '"train_loss": 0.2'))
    (folder / "c-foreign.json").write_text("[1, 2]")
    (folder / "d-nan.json").write_text(text.replace('"train_loss": 0.1', '"train_loss": NaN'))
    (folder / "e-bytes.json").write_bytes(b"\xff\xfe")
    (folder / "f-folder.json").mkdir()
    (other,) = write(tmp_path, [run(PLAIN, 7)])
    other.rename(folder / "g-misnamed.json")
    misshapen = run(PLAIN, 8)
    del misshapen.identity["budget"]
    object.__setattr__(misshapen, "key", keys.key_of(misshapen.identity))
    (shapeless,) = write(tmp_path, [misshapen])
    found, problems = read(tmp_path)
    assert [one.name for one in found] == [good.stem]
    assert [Path(problem.partition(":")[0]) for problem in problems] == sorted([shapeless, *folder.glob("?-*")])
    assert not any("\n" in problem for problem in problems)

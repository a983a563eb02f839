"""Runs of records: the measures of one run, and files that are no records."""

from pathlib import Path

import pytest
from made import CBAM, PLAIN, results, run, runs, study, write
from made import line as line_of

from capsexp.errors import InputError
from capsexp.results.runs import read, run_of, take_in
from capsexp.run import records


def test_measures_of_one_run() -> None:
    found = run_of(run(PLAIN, 0, [90.0, 98.94, 99.0, 99.05, 98.0, 99.05]))
    assert (found.measures["accuracy"], found.measures["last"], found.measures["first_epoch"]) == (99.05, 99.05, 4)
    assert found.measures["within"] == 3  # 99.0; 98.94 is more than 0.1 below 99.05
    assert found.measures["first_five"] == pytest.approx((90 + 98.94 + 99 + 99.05 + 98) / 5)
    assert found.measures["inference"] == pytest.approx(128 * 10 / 10_000 * 1000)  # 10 s for 10,000 images
    assert (found.measures["memory"], found.measures["host"], found.measures["seconds"]) == (1000.0, 2000.0, 60.0)
    assert found.hours == pytest.approx(0.1)
    assert run_of(run(PLAIN, 0, [90.0] * 4)).measures.get("first_five") is None
    assert run_of(run(PLAIN, 0, [90.0, 89.9])).measures["within"] == 1
    assert run_of(run(f"{PLAIN} budget.test_images=500", 0)).measures["inference"] == pytest.approx(128 / 50 * 1000)
    assert run_of(run(PLAIN, 0, note="a part")).measures.get("inference") is None


def test_a_maximum_in_the_last_epoch_is_a_lower_bound() -> None:
    curves = [[9.0], [1.0, 9.0], [9.0, 9.0], [9.0, 1.0]]
    assert [run_of(run(PLAIN, 0, curve)).censored for curve in curves] == [True, True, False, False]


def test_the_test_images_and_whether_everybody_has_the_same() -> None:
    found = [run_of(run(words, 0, note=note)) for words, note in ((PLAIN, None), (PLAIN, "a part"), (COIL, None))]
    assert [(one.images, one.official) for one in found] == [(10_000, True), (None, False), (72, False)]


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
    records.write(run(PLAIN, 7), folder / "g-misnamed.json")
    misshapen = run(PLAIN, 8)
    del misshapen.identity["budget"]
    object.__setattr__(misshapen, "key", records.key_of(misshapen.identity))
    records.write(misshapen, folder / "h-misshapen.json")
    found, problems = read(tmp_path)
    assert [one.name for one in found] == [good.stem]
    assert [Path(problem.partition(":")[0]) for problem in problems] == sorted(folder.glob("?-*"))
    assert not any("\n" in problem for problem in problems)


def test_records_of_finished_runs_are_taken_in(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (kept, damaged, unfinished) = write(here, [*runs(PLAIN, [99.1, 99.2]), run(PLAIN, 2, failed=True)])
    before = kept.read_bytes()
    damaged.write_text(damaged.read_text()[:100])
    sent = write(there, [*runs(PLAIN, [95.0, 99.2, 99.3, 99.4]), run(PLAIN, 4, failed=True)])
    renamed = sent[3].rename(there / sent[3].name)  # not in runs/
    (there / "runs" / "z-edited.json").write_text(sent[2].read_text().replace('"train_loss": 0.1', '"train_loss": 0.2'))
    (there / "runs" / "z-misnamed.json").write_bytes(sent[2].read_bytes())
    taken, were_here, refused = take_in(there, here)
    assert taken == [here / "runs" / renamed.name, *sorted([damaged, unfinished])]
    assert were_here == [kept]
    assert kept.read_bytes() == before
    assert [target.read_bytes() for target in (damaged, unfinished)] == [path.read_bytes() for path in sent[1:3]]
    assert sorted(Path(line.partition(":")[0]).name for line in refused) == sorted(
        [sent[4].name, "z-edited.json", "z-misnamed.json"]
    )
    assert any("of a failed run (diverged)" in line for line in refused)
    assert len(read(here)[0]) == 4
    with pytest.raises(InputError, match="nowhere: no such folder"):
        take_in(Path("nowhere"), here)


def test_the_first_epochs_of_a_whole_training_are_a_shorter_one_of_its_seed(tmp_path: Path) -> None:
    """Where a network has several seeds of that length, and this one has none; its learning rate has no steps."""
    curve = [10 + epoch / 5 for epoch in range(250)]
    short = [run(f"{CBAM} budget.epochs=2", seed, [1.0, 2.0]) for seed in (0, 1)]
    whole = [
        run(PLAIN, 0, curve, chance_accuracy=9.8),
        run(CBAM, 0, curve),
        run(f"{PLAIN} optim=tsai_sgd", 0, [*curve, *[60.0] * 100]),
    ]
    alone = run(f"{CBAM} budget.epochs=3", 0, [1.0, 2.0, 3.0])
    held = [run(f"{CBAM} budget.epochs=4 protocol=heldout", seed, [1.0, 2.0, 3.0, 4.0]) for seed in (0, 1)]
    write(tmp_path, [*short, *whole, alone, *held])
    found, problems = read(tmp_path)
    assert problems == []
    (part,) = (one for one in found if one.part)  # CBAM has its own seed 0; three epochs have one seed, four none
    assert part.name == f"first 2 epochs of {whole[0].key}"
    assert [part.measures[name] for name in ("accuracy", "first_epoch", "last")] == [10.2, 2, 10.2]
    assert [*part.curve] == [10.0, 10.2]
    assert part.learned is False
    made = results(study(), [*short, *whole])
    assert part.setting == line_of(made, "B", main=False).setting
    assert sum(not one.part for one in found) == 8

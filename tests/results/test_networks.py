"""A network is found by the name of a run, of a row or of the package; each that is kept is its record's."""

import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support import ROOT, Trained, refused
from support import script as keeping

import capsexp
from capsexp.evaluate.evaluation import evaluate
from capsexp.inspect import command as inspect
from capsexp.results import networks, runs
from capsexp.results.cells import by_training
from capsexp.results.networks import WEIGHTS, find
from capsexp.run import checkpoints, keys, records
from capsexp.run.restore import restore

KEPT = sorted((ROOT / "results" / "networks").glob("*.ckpt"))
ROW = "huang_table4:CapsNet+Conv COIL-20"


def test_a_run_is_found_by_what_its_last_lines_name(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record, its curves and the beginning of its key lead to its folder."""
    place = Path(trained.config.paths.logs).parent
    monkeypatch.chdir(place)
    record = Path("results", "runs", f"{trained.folder.name}.json")
    (curves,) = Path("logs", "tensorboard").glob(f"*_{trained.record.key[:6]}")
    for name in (record, place / record, curves, Path(trained.record.key[:5]), trained.record.key):
        assert find(name).resolve() == trained.folder.resolve()
    reason = "no checkpoint of this run below logs; name its folder below paths.logs"
    assert refused(find, "0" * 8) == f"{'0' * 8}: {reason}"
    monkeypatch.chdir("results")
    assert refused(find, place / record) == f"{place / record}: {reason}"


def test_the_beginning_of_two_keys_is_refused_and_one_run_in_two_places_is_not(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key, logs = trained.record.key, Path("logs")
    own, other = logs / f"capsnet-mnist_sample-{key}", logs / "sweep" / f"capsnet-mnist_sample-{key[:6]}{10 * '0'}"
    for folder in (own, other):
        shutil.copytree(trained.folder, folder)
    (logs / "link").symlink_to(tmp_path / "logs")
    assert "2 runs in logs have such a key; name its folder" in refused(find, key[:4])
    assert find(key) == own
    shutil.copytree(trained.folder, named := own.with_name(key[:4]))
    assert find(named) == named


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_network_is_that_of_its_record(path: Path) -> None:
    record_file = ROOT / "results" / "runs" / f"{path.stem}.json"
    record, restored = records.read(record_file), restore(path)
    assert checkpoints.load(path)["record"] == json.loads(record_file.read_text())["digest"]
    assert keys.key_of(restored.module.planned.identity) == record.key
    assert (restored.epoch, restored.halved) == (record.first_epoch_to_max, True)
    assert restored.module.history[-1]["test_accuracy"] == record.max_accuracy
    assert restored.module.correct["max_accuracy"] == (record.correct or restored.module.correct)["max_accuracy"]
    assert path.stat().st_size < 1 << 20


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return keeping("scripts/keep_networks.py", monkeypatch)


def test_a_network_is_kept_in_half_precision_if_it_is_its_records(
    script: ModuleType, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(trained.config.paths.results), tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    run = runs.run_of(trained.record)
    script.keep(run, trained.folder.parent)
    path = networks.of(run)
    assert find(run.key) == path
    assert path.stat().st_size < 0.6 * (trained.folder / "best.ckpt").stat().st_size
    checkpoint = checkpoints.load(trained.folder / "best.ckpt")
    checkpoint["history"][0]["test_accuracy"] += 0.5
    (folder := tmp_path / "logs" / run.name).mkdir(parents=True)
    torch.save(checkpoint, folder / "best.ckpt")
    assert "which has other losses or accuracies" in refused(script.keep, run, tmp_path / "logs")


def test_the_list_of_kept_networks_is_that_of_their_records(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    cards = script.cards(by_training(runs.read(Path("results"))[0]))
    assert Path("results", "networks", "README.md").read_text() == cards
    assert all(path.name in cards for path in KEPT)
    assert sum(path.stat().st_size for path in KEPT) < 20e6


def test_the_name_of_a_row_is_its_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout is found from everywhere
    assert capsexp.load(ROW).classes == tuple(f"obj{number}" for number in range(1, 11))
    assert refused(find, "jiao_table2:CapsNet6").startswith(
        "CapsNet6: no such row of jiao_table2; did you mean CapsNet"
    )
    assert refused(find, "jiao_tabel2:x").startswith("jiao_tabel2: no such study; did you mean jiao_table2?")
    line = refused(find, "sabour_table1:CapsNet3")
    assert re.search(r": no network of it here; `capsexp .*data=mnist .*seed=0` trains it, in .+ on .+", line)
    lines: list[str] = []
    monkeypatch.setattr(networks, "of", lambda *_: KEPT[0])
    assert find("sabour_table1:CapsNet3", lines.append) == KEPT[0]
    assert "so far, of a shorter training than the source's: 8 of " in lines[0]


@pytest.mark.parametrize("name", sorted(path.stem for path in WEIGHTS.glob("*.ckpt")))
def test_the_networks_of_the_package_are_those_of_their_records(name: str) -> None:
    record = records.parsed((WEIGHTS / f"{name}.json").read_bytes())
    restored = restore(find(name), overrides=["data=mnist_sample"])
    assert (WEIGHTS / f"{name}.ckpt").stat().st_size < 2e6
    assert keys.key_of(restored.module.planned.identity) == record.key
    assert restored.epoch == record.first_epoch_to_max
    assert record.provenance["clean_tree"]
    card = next(line for line in (WEIGHTS / "README.md").read_text().splitlines() if line.startswith(f"| `{name}` |"))
    for said in (f"{record.max_accuracy:.2f} %", f"epoch {record.first_epoch_to_max} of", f"{record.parameters:,} "):
        assert said in card
    assert record.provenance["command"].removeprefix("python -m ") in card
    expected = {"sample": 98.1, "efficient_capsnet_mnist": 99.4}[name]  # on the 1,000 test images of the sample
    assert evaluate(restored).accuracy == pytest.approx(expected, abs=0.11)


def test_the_package_has_a_trained_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    inspect.main(["sample", "7"])
    assert "predicted 9, it is 9" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "inspect").iterdir()) == ["7.png"]
    (tmp_path / "sample").mkdir()  # a folder of that name comes first
    assert refused(restore, find("sample")).startswith("sample: a folder without")

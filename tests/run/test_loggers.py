"""The loggers of a run hold the record's numbers, under TensorBoard's names, also after an interruption."""

import csv
import dataclasses
import json
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import Trained, at, composed_config, copy_of, interrupt_after, numbers, train

from capsexp.config.schema import Logger
from capsexp.errors import InputError
from capsexp.run import execute, records
from capsexp.run.loggers import display_name, final_scalars, scalars
from capsexp.run.plan import plan
from capsexp.run.records import Record
from capsexp.run.tensorboard import folder_of

Curves = dict[str, dict[int, float]]  # by name and step


def curves_of(record: Record) -> Curves:
    """A record's numbers as curves."""
    curves: Curves = {}
    for row in record.epochs:
        for name, value in scalars(row).items():
            curves.setdefault(name, {})[row["epoch"]] = value
    for name, value in final_scalars(record).items():
        assert record.first_epoch_to_max is not None
        curves.setdefault(name, {})[record.first_epoch_to_max] = value
    return curves


def without_memory(curves: Curves) -> Curves:
    """The curves that a record has, too."""
    assert "peak_memory_mb/host" in curves
    return {name: curve for name, curve in curves.items() if not name.startswith("peak_memory_mb/")}


def in_csv(folder: Path) -> Curves:
    """What metrics.csv holds; each number once."""
    curves: Curves = {}
    with (folder / "metrics.csv").open() as stream:
        for row in csv.DictReader(stream):
            step = int(row.pop("step"))
            for name, value in row.items():
                if value:
                    assert step not in curves.setdefault(name, {})
                    curves[name][step] = float(value)
    return curves


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run with the CSV logger alone."""
    return train(tmp_path_factory.mktemp("logged"), "logger=csv", "protocol=heldout")


def test_csv_holds_the_records_numbers(logged: Trained) -> None:
    assert without_memory(in_csv(logged.folder)) == curves_of(logged.record)
    assert {"loss/train", "accuracy/heldout", "accuracy/test"} <= curves_of(logged.record).keys()


def test_what_is_not_chosen_writes_nothing(logged: Trained, trained: Trained) -> None:
    assert not folder_of(plan(logged.config)).exists()
    assert not (trained.folder / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("model=capsnet data=mnist_sample attention=cbam seed=3", "cbam r3 s3 · capsnet mnist_sample"),
        ("model=capsnet data=mnist_sample routing.gradient=none", "r3 gradient=none s0 · capsnet mnist_sample"),
        ("model=em_capsnet data=mnist_sample data.size=32 routing.iterations=2", "r2 s0 · em_capsnet mnist_sample"),
        ("model=sabour_cnn data=mnist_sample protocol=heldout", "heldout s0 · sabour_cnn mnist_sample"),
        ("model=capsnet data=mnist_sample budget.epochs=4", "r3 4 epochs s0 · capsnet mnist_sample"),
    ],
)
def test_a_runs_name_says_what_differs(words: str, expected: str) -> None:
    planned = plan(composed_config(*words.split()))
    assert display_name(planned) == f"{expected} · {records.key_of(planned.identity)[:6]}"
    assert folder_of(planned).parent == planned.folder.parent / "tensorboard"
    assert " " not in folder_of(planned).name


def test_loggers_are_no_part_of_a_run(logged: Trained) -> None:
    plain = composed_config("model=capsnet", "data=mnist_sample")
    all_loggers = composed_config("model=capsnet", "data=mnist_sample", "logger=[tensorboard,csv,wandb,mlflow]")
    assert plain.logger == Logger(tensorboard=True)
    assert all_loggers.logger.wandb is not None
    assert plan(plain).identity == plan(all_loggers).identity
    assert records.stored_config(plain) == records.stored_config(all_loggers)
    assert "logger" not in json.dumps(dataclasses.asdict(logged.record))


def test_an_interrupted_run_continues_the_csv_file(
    logged: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = at(logged.config, tmp_path)
    interrupt_after(2, config, monkeypatch)
    folder = plan(config).folder
    assert set(in_csv(folder)["loss/train"]) == {1, 2}
    record = execute.run(config)
    assert numbers(record) == numbers(logged.record)
    assert without_memory(in_csv(folder)) == curves_of(record)


def test_a_run_of_which_only_the_record_is_missing_keeps_the_csv_file(logged: Trained, tmp_path: Path) -> None:
    config = copy_of(logged, tmp_path, recorded=False)
    assert in_csv(plan(config).folder) == in_csv(logged.folder)
    record = execute.run(config)
    assert in_csv(plan(config).folder) == curves_of(record)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_names_the_extra(name: str, tmp_path: Path) -> None:
    if find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(InputError, match=rf"^logger={name}: not installed; pip install 'capsexp\[{name}\]' brings it$"):
        train(tmp_path, f"logger={name}")
    assert not list(tmp_path.glob("results/runs/*"))


@pytest.mark.slow
def test_wandb_and_mlflow_hold_the_same_numbers_also_of_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    runs = [train(tmp_path, "logger=[csv,wandb,mlflow]", f"seed={seed}") for seed in (0, 1)]
    resumed = dataclasses.replace(runs[0].config, seed=2)
    interrupt_after(2, resumed, monkeypatch)
    runs.append(Trained(resumed, execute.run(resumed), plan(resumed).folder))
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/logs/mlflow.db")
    experiment = client.get_experiment_by_name("capsexp")
    for trained in runs:
        held = without_memory(in_csv(trained.folder))
        assert held == curves_of(trained.record)
        assert without_memory(in_wandb(tmp_path / "logs" / "wandb", trained.record.key)) == held
        (found,) = client.search_runs([experiment.experiment_id], f"tags.`capsexp.key` = '{trained.record.key}'")
        histories = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
        assert found.info.status == "FINISHED"
        curves = {name: {point.step: point.value for point in points} for name, points in histories.items()}
        assert without_memory(curves) == held


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, behind W&B's header of 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:  # no record's header begins so near the end of a block
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def in_wandb(folder: Path, key: str) -> Curves:
    """What W&B's offline files of a run hold, one for each start of it."""
    from wandb.proto import wandb_internal_pb2

    curves: Curves = {}
    paths = sorted(folder.glob(f"offline-run-*/run-{key}.wandb"))
    for data in (data for path in paths for data in leveldb_records(path.read_bytes())):
        content = wandb_internal_pb2.Record()
        content.ParseFromString(data)
        items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in content.history.item}
        step = items.pop("trainer/global_step", None)
        for name, value in items.items():
            if not name.startswith("_"):
                curves.setdefault(name, {})[step] = value
    return curves

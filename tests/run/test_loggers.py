"""The loggers of a run hold the record's numbers, under TensorBoard's names."""

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from pytorch_lightning import loggers
from pytorch_lightning.loggers.logger import DummyLogger
from support import TINY, Trained, at, composed_config, folders, interrupt_after, raising, refused, train

from capsexp.run import execute, keys
from capsexp.run.loggers import display_name, final_scalars, make_loggers, scalars
from capsexp.run.plan import plan
from capsexp.run.records import Record
from capsexp.run.tensorboard import folder_of

Curves = dict[str, dict[int, float]]  # by name and step


def curves_of(record: Record) -> Curves:
    """A record's numbers as curves."""
    curves: Curves = {}
    for row in record.epochs:
        for name, value in scalars(row, {}).items():
            curves.setdefault(name, {})[row["epoch"]] = value
    for name, value in final_scalars(record).items():
        curves.setdefault(name, {})[record.first_epoch_to_max] = value
    return curves


def in_csv(folder: Path) -> Curves:
    """What metrics.csv of all starts of a run hold, each number once; without peak memories."""
    curves: Curves = {}
    for path in sorted(folder.glob("version_*/metrics.csv")):
        for row in csv.DictReader(path.read_text().splitlines()):
            step = int(row.pop("step"))
            for name, value in row.items():
                if value and not name.startswith("peak_memory_mb/"):
                    assert step not in curves.setdefault(name, {})
                    curves[name][step] = float(value)
    return curves


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run with the CSV logger alone."""
    return train(tmp_path_factory.mktemp("logged"), "logger=csv", "protocol=heldout")


def test_csv_holds_the_records_numbers_and_options_and_nothing_else_is_written(
    logged: Trained, trained: Trained
) -> None:
    assert in_csv(logged.folder) == curves_of(logged.record)
    of_epochs = {f"{what}/{part}" for what in ("loss", "accuracy", "seconds") for part in ("train", "heldout")}
    others = {"seconds/epoch", "optimizer/learning_rate", "accuracy/test"}
    assert curves_of(logged.record).keys() == of_epochs | others | {"maximum/first_epoch_to_max"}
    options = yaml.safe_load((logged.folder / "version_0" / "hparams.yaml").read_text())
    assert options == logged.record.config | {"precision": "float32", "epochs": 3}
    assert not folder_of(plan(logged.config)).exists()
    assert not [*trained.folder.glob("version_*")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("model=capsnet data=mnist_sample attention=cbam seed=3", "cbam r3 s3 · capsnet mnist_sample"),
        ("model=capsnet data=mnist_sample routing.gradient=none", "r3 gradient=none s0 · capsnet mnist_sample"),
        ("model=em_capsnet data=mnist_sample data.size=32 routing.iterations=2", "r2 s0 · em_capsnet mnist_sample"),
        ("model=sabour_cnn data=mnist_sample protocol=heldout", "heldout s0 · sabour_cnn mnist_sample"),
        ("model=capsnet data=mnist_sample budget.epochs=4", "r3 s0 · capsnet mnist_sample 4 epochs"),
        ("model=capsnet data=mnist_sample model.width=0.5", "r3 s0 · capsnet mnist_sample width=0.5"),
        ("model=inverted_capsnet data=cifar10", "r2 s0 · inverted_capsnet cifar10"),
    ],
)
def test_a_runs_name_says_what_differs(words: str, expected: str) -> None:
    planned = plan(composed_config(*words.split()))
    assert display_name(planned) == f"{expected} · {keys.key_of(planned.identity)[:6]}"
    assert folder_of(planned).parent == planned.folder.parent / "tensorboard"
    assert " " not in folder_of(planned).name


def test_a_resumed_run_logs_its_later_epochs_in_a_new_file(
    logged: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = at(logged.config, tmp_path)
    interrupt_after(2, config, monkeypatch)
    assert set(in_csv(plan(config).folder)["loss/train"]) == {1, 2}
    record = execute.run(config)
    assert in_csv(plan(config).folder) == curves_of(record)
    assert len(record.epochs) == len(in_csv(plan(config).folder)["loss/train"]) == 3


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("logger=wandb", "logger=wandb: Requirement 'wandb"),
        ("logger=mlflow", "logger=mlflow: Requirement 'mlflow"),
        ("logger=csv +logger.csv.other=1", "logger=csv: CSVLogger.__init__() got an unexpected keyword argument"),
    ],
)
def test_a_missing_package_and_a_wrong_option_are_one_line(words: str, line: str, tmp_path: Path) -> None:
    if (name := words.removeprefix("logger=")) in ("wandb", "mlflow") and find_spec(name):
        pytest.skip("it is installed")
    planned = plan(composed_config(*TINY, *folders(tmp_path), *words.split()))
    assert refused(make_loggers, planned).startswith(line)


@pytest.mark.slow
def test_wandb_and_mlflow_have_a_run_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    runs = [train(tmp_path, "logger=[wandb,mlflow]", f"seed={seed}") for seed in (0, 1)]
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/logs/mlflow.db")
    experiment = client.get_experiment_by_name("capsexp")
    found = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert len(found) == 2
    for run in runs:
        assert [*run.folder.glob(f"wandb/offline-run-*/run-{run.record.key}.wandb")]
        one = found[display_name(plan(run.config))]
        assert one.info.status == "FINISHED"
        assert one.data.metrics["maximum/accuracy"] == run.record.max_accuracy
        assert one.data.params["model/name"] == "capsnet"
        assert one.data.params["seed"] == str(run.config.seed)
        history = client.get_metric_history(one.info.run_id, "loss/train")
        assert {point.step: point.value for point in history} == curves_of(run.record)["loss/train"]


@pytest.mark.parametrize("rerun", [False, True])
def test_a_logger_gets_the_name_and_the_key_of_a_run_but_of_a_repeated_one(
    rerun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Given(DummyLogger):
        def __init__(self, name: str, run_name: str, version: str | None, save_dir: Path) -> None:
            self.given = (name, run_name, version, save_dir)

    class Full(DummyLogger):
        __init__ = raising(OSError(28, "No space left on device"))

    planned = plan(composed_config(*TINY, *folders(tmp_path), "logger=mlflow", f"rerun={rerun}"))
    planned.config.logger["mlflow"] = {"_target_": planned.config.logger["mlflow"]["_target_"]}
    monkeypatch.setattr(loggers, "MLFlowLogger", Given)
    (made,) = make_loggers(planned)
    shown, key = display_name(planned), keys.key_of(planned.identity)
    assert made.logger.given == (shown, shown, None if rerun else key, planned.folder)
    monkeypatch.setattr(loggers, "MLFlowLogger", Full)
    with pytest.raises(OSError, match="No space left"):  # which is no wrong input
        make_loggers(planned)

"""What all loggers show of a run, and Lightning's: CSV, Weights & Biases, MLflow.

A resumed run continues its log. Epochs that were logged but not in the last checkpoint are trained and logged again:
the CSV file then has one row of each, W&B and MLflow have two values in a step.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger, Logger, MLFlowLogger, WandbLogger

from capsexp.config.checks import NAME, TARGET
from capsexp.errors import DONE, FAILED, InputError, first_line
from capsexp.run import records
from capsexp.run.environment import peak_memory_mb
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan


def make_loggers(planned: Plan) -> list[Logger]:
    """The loggers that `logger` chooses, opened. Only the first of a run's processes may have them.

    Raises InputError for a package that isn't installed, and for a server that refuses.
    """
    chosen = [name for name in _MAKERS if getattr(planned.config.logger, name)]
    return [_opened(name, planned) for name in chosen]


class EpochLogger(Callback):
    """Logs each epoch to the trainer's loggers; the step is the epoch, counted from 1."""

    def __init__(self, planned: Plan, loggers: list[Logger]) -> None:
        self.planned, self.loggers = planned, loggers

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Writes the earlier epochs of a resumed run to the CSV file, which Lightning's logger begins anew."""
        assert isinstance(module, CapsuleModule)
        self._write_earlier(module.history)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Logs the epoch."""
        assert isinstance(module, CapsuleModule)
        numbers = scalars(module.history[-1], peak_memory_mb(self.planned.device))
        self._log(numbers, len(module.history))

    def finish(self, record: records.Record) -> None:
        """Logs the maximum and its first epoch, or the accuracy on the test set under protocol heldout."""
        for logger in self.loggers:
            if isinstance(logger, CSVLogger) and not logger.experiment.metrics_keys:  # no epoch was left to train
                self._write_earlier(record.epochs)
        self._log(final_scalars(record), record.first_epoch_to_max or 0)
        self._end_wandb(DONE)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Ends the run at W&B as failed; Lightning ends that in MLflow."""
        self._end_wandb(FAILED)

    def _end_wandb(self, exit_code: int) -> None:
        """Lightning's logger leaves the run open: the next one of a sweep would continue it."""
        for logger in self.loggers:
            if isinstance(logger, WandbLogger):
                logger.experiment.finish(exit_code)

    def _write_earlier(self, rows: list[records.Json]) -> None:
        for logger in self.loggers:
            if isinstance(logger, CSVLogger):
                for row in rows:
                    logger.log_metrics({**scalars(row)}, row["epoch"])
                logger.save()

    def _log(self, numbers: dict[str, float], epoch: int) -> None:
        for logger in self.loggers:
            logger.log_metrics(numbers, epoch)
            logger.save()


def scalars(row: records.Json, memory: Mapping[str, float | None] | None = None) -> dict[str, float]:
    """An epoch's numbers under the names that all loggers use, which are TensorBoard's.

    Args:
        row: of the history.
        memory: the peak until then, where it is known.
    """
    values: dict[str, float | None] = {_tag(name): value for name, value in row.items() if name != "epoch"}
    values["seconds/epoch"] = records.epoch_seconds(row)
    values |= {f"peak_memory_mb/{name}": value for name, value in (memory or {}).items()}
    return {tag: value for tag, value in values.items() if value is not None}


def final_scalars(record: records.Record) -> dict[str, float]:
    """A finished run's numbers, in the step of its best epoch: see `scalars`."""
    values = {
        "maximum/accuracy": record.max_accuracy,
        "maximum/first_epoch_to_max": record.first_epoch_to_max,
        "accuracy/test": record.heldout_accuracy,
    }
    return {tag: value for tag, value in values.items() if value is not None}


def display_name(planned: Plan) -> str:
    """A run's name in every logger, which begins with what differs between runs: `cbam r3 s0 · capsnet mnist · 047117`.

    r3: three routing iterations. Options of the network and the routing are named where they are not at their defaults.
    Names of runs that differ only in loss, optimiser, preprocessing or precision differ in the key alone.
    """
    identity, iterations = planned.identity, planned.config.routing.arguments.get("iterations")
    model, routing, budget = identity["model"], identity["routing"], identity["budget"]
    words = [name for name in ("cbam", "conv", "caps") if identity["attention"].get(name)]
    words += [f"r{iterations}"] if iterations is not None else []
    words += [
        f"{key}={value}" for key, value in {**routing, **model}.items() if key not in (NAME, TARGET, "iterations")
    ]
    words += ["reconstruction"] if identity["reconstruction"] else []
    words += [f"{budget[key]} {key.replace('_', ' ')}" for key in ("epochs", "train_images") if budget.get(key)]
    words += [identity["protocol"]] if identity["protocol"] != "paper" else []
    trained = [model[NAME], identity["data"][NAME]]
    trained += [routing[NAME]] if routing[NAME] not in (*model[NAME].split("_"), "dynamic", "none") else []
    text = " ".join([*words, f"s{identity['seed']}", "·", *trained]).replace("/", "-")
    return f"{text[:180]} · {records.key_of(identity)[:6]}"


def hyperparameters(planned: Plan) -> dict[str, bool | float | str]:
    """What runs are compared by: the names of choices, and the numbers that sweeps change."""
    config = planned.config
    components = {"model": config.model, "routing": config.routing}
    arguments = {
        f"{group}.{key}": value if isinstance(value, bool | int | float | str) else str(value)
        for group, component in components.items()
        for key, value in component.arguments.items()
    }
    return arguments | {
        "data": config.data.name,
        "loss": config.loss.name,
        "reconstruction": config.reconstruction.enabled,
        **{group: component.name for group, component in components.items()},
        "attention": " + ".join(key for key in ("cbam", "conv", "caps") if getattr(config.attention, key)) or "none",
        **{f"optim.{key}": getattr(config.optim, key) for key in ("name", "lr", "batch_size")},
        "epochs": planned.epochs,
        "budget": config.budget.name,
        "precision": planned.precision,
        "protocol": config.protocol,
        "seed": config.seed,
    }


def _opened(name: str, planned: Plan) -> Logger:
    """A logger with its file or connection open."""
    maker: Callable[[Plan, Any], Logger] = _MAKERS[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the run's folder isn't empty
            logger: Any = maker(planned, getattr(planned.config.logger, name))
            _ = logger.experiment
    except ModuleNotFoundError:
        raise InputError(f"logger={name}: not installed; pip install 'capsexp[{name}]' brings it") from None
    except OSError:
        raise
    except Exception as error:  # of W&B or MLflow: no account, no such server
        raise InputError(f"logger={name}: {first_line(error)}") from error
    return logger


def _csv(planned: Plan, options: bool) -> Logger:
    """Writes metrics.csv in the run's folder."""
    return CSVLogger(planned.folder, name="", version="")


def _wandb(planned: Plan, options: Any) -> Logger:
    """One run at W&B for one key; a rerun is another."""
    key = None if planned.config.rerun else records.key_of(planned.identity)
    config = hyperparameters(planned)
    folder = Path(planned.config.paths.logs).absolute()
    return WandbLogger(display_name(planned), save_dir=folder, id=key, project=options.project, config=config)


def _mlflow(planned: Plan, options: Any) -> Logger:
    """A new run in MLflow, or the last one of this key if that hasn't finished."""
    uri = options.tracking_uri or f"sqlite:///{Path(planned.config.paths.logs).absolute()}/mlflow.db"
    tags = {"capsexp.key": records.key_of(planned.identity)}
    new = MLFlowLogger(options.experiment, display_name(planned), uri, tags)
    client = new._mlflow_client  # `experiment`, the public property, would make a run
    experiment = client.get_experiment_by_name(options.experiment)
    if experiment is None:
        return new
    wanted = f"tags.`capsexp.key` = '{tags['capsexp.key']}' and attributes.status != 'FINISHED'"
    unfinished = client.search_runs([experiment.experiment_id], wanted, max_results=1)  # the last started comes first
    return MLFlowLogger(tracking_uri=uri, run_id=unfinished[0].info.run_id) if unfinished else new


def _tag(name: str) -> str:
    """TensorBoard's groups: train_loss -> loss/train, so that the losses of all splits are together."""
    split, _, quantity = name.partition("_")
    if split in ("train", "test", "heldout"):
        return f"{quantity}/{split}"
    return "optimizer/learning_rate" if name == "learning_rate" else name  # behind the losses


_MAKERS: dict[str, Callable[[Plan, Any], Logger]] = {"csv": _csv, "wandb": _wandb, "mlflow": _mlflow}

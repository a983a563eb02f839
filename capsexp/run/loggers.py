"""What all loggers show of a run; Lightning's loggers and callbacks, which conf/logger and conf/callbacks name.

A logger gets, of `save_dir`, `name`, `run_name` and `version`, what its class takes and its file doesn't set: the run's
folder, its name for display, and its key. A resumed run logs its later epochs: in the same run at W&B, in a new file or
run elsewhere.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from capsexp.config.checks import NAME, TARGET, Component, check_value
from capsexp.config.compose import composed
from capsexp.config.searchpath import choices
from capsexp.errors import DONE, FAILED, InputError, first_line, raise_interruption
from capsexp.run import keys, records
from capsexp.run.memory import peak_memory_mb
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import Plan


class RunLogger(Callback, Logger):
    """Logs a run: its epochs as Lightning's callback, what callbacks log as its logger, its end when it is recorded."""

    name = version = None
    epoch = 1  # the present one, and of what callbacks log the step

    def __init__(self, planned: Plan) -> None:
        super().__init__()
        self.planned = planned

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        """Writes numbers by name; the step is the epoch, counted from 1. Without a logger, nothing."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.write({**metrics}, self.epoch)

    def log_hyperparams(self, *_: object, **__: object) -> None:
        """It has them already."""

    def close(self, exit_code: int) -> None:
        """Ends the run, as done or failed."""

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.epoch = trainer.current_epoch + 1

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, CapsuleModule)
        self.write(scalars(module.history[-1], peak_memory_mb(self.planned.device)), len(module.history))

    def finish(self, record: records.Record) -> None:
        """Logs the maximum and its first epoch, or the accuracy on the test set under protocol heldout."""
        self.write(final_scalars(record), record.first_epoch_to_max or 0)
        self.close(DONE)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.close(FAILED)


class LightningLogger(RunLogger):
    """Logs a run to one of Lightning's loggers."""

    def __init__(self, planned: Plan, logger: Logger) -> None:
        super().__init__(planned)
        self.logger = logger
        parameters = keys.stored_config(planned.config) | {"precision": planned.precision, "epochs": planned.epochs}
        logger.log_hyperparams(parameters)  # type: ignore[call-arg]

    def write(self, numbers: dict[str, float], epoch: int) -> None:
        self.logger.log_metrics(numbers, epoch)
        self.logger.save()

    def close(self, exit_code: int) -> None:
        self.logger.finalize("success" if exit_code == DONE else "failed")
        if isinstance(self.logger, WandbLogger):  # leaves its run open: the next one of a sweep would continue it
            self.logger.experiment.finish(exit_code)


def make_loggers(planned: Plan) -> list[RunLogger]:
    """The loggers that `logger` chooses, with their files or connections open: of the first of a run's processes.

    Raises InputError for a package that isn't installed, for options that the class doesn't take, and for a server that
    refuses.
    """
    rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning has the number of Slurm's task
    name, loggers = display_name(planned), list[RunLogger]()
    # The key is a run's id at W&B, where a repeated run is another one.
    version = None if planned.config.rerun else keys.key_of(planned.identity)
    given = {"planned": planned, "save_dir": planned.folder, "name": name, "run_name": name, "version": version}
    for choice, node in planned.config.logger.items():
        logger = make("logger", choice, node, Logger, given)
        loggers.append(logger if isinstance(logger, RunLogger) else LightningLogger(planned, logger))
    return loggers


def make_callbacks(planned: Plan) -> list[Callback]:
    """The callbacks that `callbacks` chooses: of every process of a run. One with a `dirpath` writes below the run's.

    Raises InputError as `make`.
    """
    given = {"planned": planned, "dirpath": planned.folder / "checkpoints"}
    absent, there = ("heldout_", "test_") if planned.config.protocol == "paper" else ("test_", "heldout_")
    for name, node in planned.config.callbacks.items():
        if (monitor := str(node.get("monitor"))).startswith(absent):
            has = f"protocol={planned.config.protocol} has {there}{monitor.removeprefix(absent)}"
            raise InputError(f"callbacks.{name}.monitor={monitor}: {has}")
    return [make("callbacks", name, node, Callback, given) for name, node in planned.config.callbacks.items()]


def make(group: str, name: str, node: dict[str, Any], base: type, given: dict[str, Any]) -> Any:
    """An instance of the class that a file of a group names, with what it takes of `given`, and the file's options.

    Raises InputError for a class of another kind, which isn't called, for a package that isn't installed, for options
    that the class doesn't take, and for what it raises itself.
    """
    options = {key: value for key, value in node.items() if key != TARGET}
    try:
        cls = Component(name, node[TARGET], {}).cls
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise ValueError(f"{TARGET}={node[TARGET]}: must be a class derived from {base.__module__}.{base.__name__}")
        taken = inspect.signature(cls).parameters
        for key in options.keys() & taken.keys():
            if (kind := taken[key].annotation) in (bool, int, float, str):
                check_value(options[key], kind, f"{group}.{name}.{key}")
        return cls(**{key: value for key, value in given.items() if key in taken} | options)
    except OSError:
        raise
    except Exception as error:  # a missing package, another option, of W&B or MLflow: no account, no such server
        raise_interruption(error)
        raise InputError(f"{group}={name}: {first_line(error)}") from error


def scalars(row: keys.Json, memory: Mapping[str, float | None]) -> dict[str, float]:
    """A row of the history, and the peak of the memory until then, under the names that all loggers use, by which
    TensorBoard groups them: train_loss is loss/train, so that the losses of all splits are together.
    """
    of_splits = {name: value for name, value in row.items() if name not in ("epoch", "learning_rate")}
    values = {"/".join(reversed(name.split("_"))): value for name, value in of_splits.items()}
    values |= {"optimizer/learning_rate": row["learning_rate"], "seconds/epoch": records.epoch_seconds(row)}
    return values | {f"peak_memory_mb/{name}": value for name, value in memory.items() if value is not None}


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

    r3: three routing iterations. Options of the network and the routing are named where they are not at the defaults of
    conf/; how much is trained stands behind the data set. Names of runs that differ only in loss, optimiser,
    preprocessing or precision differ in the key alone.
    """
    identity, iterations = planned.identity, planned.config.routing.iterations
    model, routing, budget = identity["model"], identity["routing"], identity["budget"]
    plain = composed([f"model={model[NAME]}"] if model[NAME] in choices("model") else [])
    words = planned.config.attention.names + ([f"r{iterations}"] if iterations is not None else [])
    words += [
        f"{key}={value}"
        for group in ("routing", "model")
        for key, value in identity[group].items()
        if key not in (NAME, TARGET, "iterations", "width") and plain[group].get(key) != value
    ]
    words += ["reconstruction"] if identity["reconstruction"] else []
    words += [identity["protocol"]] if identity["protocol"] != "paper" else []
    trained = [model[NAME], identity["data"][NAME]]
    trained += [routing[NAME]] if routing[NAME] not in (*model[NAME].split("_"), "dynamic", "none") else []
    trained += [f"width={model['width']}"] if model.get("width", 1.0) != 1.0 else []
    trained += [f"{budget[key]} {key.replace('_', ' ')}" for key in ("epochs", "train_images") if budget.get(key)]
    text = " ".join([*words, f"s{identity['seed']}", "·", *trained]).replace("/", "-")
    return f"{text[:180]} · {keys.key_of(identity)[:6]}"

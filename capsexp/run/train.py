"""The training of a run: seed, build, load, fit with Lightning, write the record.

One run can have several processes that split each batch: `torchrun --nproc-per-node=2 -m capsexp KEY=VALUE …`, on the
GPUs of one machine or of several, or on a CPU, by Lightning's DDP. Each process runs the whole command. The first one
locks the run, writes all files and prints; torchrun ends the others when one has died.
"""

import logging
import math
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from subprocess import CalledProcessError
from traceback import walk_tb
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy, Strategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]

from capsexp.cli import print_line
from capsexp.data import source
from capsexp.data.module import CapsuleData, constant_guess, has_batch_norm
from capsexp.data.reader import host_memory
from capsexp.errors import InputError, RunError, first_line, place, printable, raise_interruption
from capsexp.files import naming
from capsexp.run import keys, memory, provenance, records
from capsexp.run.build import build, count_parameters
from capsexp.run.checkpoints import EpochCheckpoint, drop_optimizer, load, resumable
from capsexp.run.loggers import RunLogger, make_callbacks, make_loggers
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import make_optimizer
from capsexp.run.plan import BEST, Plan, cores, forbid_tf32, is_first, torchrun
from capsexp.run.progress import make_progress
from capsexp.run.tensorboard import TensorBoard, folder_of

#: What Lightning's callbacks raise for a setting that they can't have, and for a package that isn't installed.
_OF_CALLBACKS = MisconfigurationException | ModuleNotFoundError


def prepare(planned: Plan) -> tuple[CapsuleModule, CapsuleData]:
    """The network and the data of a run; from here on, random numbers follow from its seed.

    Raises InputError: for a network or an optimiser that can't be made, before any data are downloaded or read.
    """
    config = planned.config
    _check_parameters(planned)
    memory.reset_peak_memory(planned.device)
    memory.keep_freed_memory()
    if planned.device.type == "cpu":
        memory.limit_memory()
    forbid_tf32()
    if (threads := config.trainer.threads or cores()) != torch.get_num_threads():
        torch.set_num_threads(threads)
    pl.seed_everything(config.seed, verbose=False)
    built = build(config)
    make_optimizer(built.network.parameters(), config.optim)  # for its errors
    if planned.processes > 1 and planned.device.type == "cpu" and has_batch_norm(built.network):
        why = "this network has batch normalisation, which torch computes over several processes on GPUs only"
        raise InputError(f"torchrun: {planned.processes} processes: {why}")
    images = source.load(config.data, print_line)
    if (images.note, images.unlisted) != (planned.note, planned.unlisted):
        raise InputError(f"data={config.data.name}: other files than when the run was planned; run the command again")
    for line in source.summary(config.data, images):
        print_line(line)
    module, data = CapsuleModule(planned, built), CapsuleData(images, config)
    if config.data.path:
        module.trained_images = source.digests(images.train_images)
    if config.preprocess.normalize or config.data.path:
        module.pixels = source.normalization(config.data, images.train_images)
    if config.preprocess.normalize:
        module.mean, module.std = (torch.tensor(values).view(-1, 1, 1) for values in module.pixels)
    try:  # now, and not after hours of training
        records.text(_record(module, data, provenance.start(), "not trained", None))
    except ValueError as error:
        raise InputError(f"{printable(planned.command or planned.name)}: can't be recorded ({error})") from None
    return module, data


def _check_parameters(planned: Plan) -> None:
    """Raises InputError for a network whose weights and gradients, in float32, are more than the device's memory."""
    parameters, device = count_parameters(planned.config), planned.device
    available = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else host_memory()
    if (needed := 8 * parameters) > available:
        sizes = f"take {needed / 1e9:,.0f} GB in training at least; this device has {available / 1e9:,.0f}"
        raise InputError(f"{parameters:,} parameters {sizes}; a smaller data.size or budget.width needs less")


def train(module: CapsuleModule, data: CapsuleData, callbacks: Sequence[Callback] = ()) -> records.Record:
    """The record of a run, after its training from the last checkpoint on, if there is one.

    Raises RunError for a training that fails, with a record of that, and KeyboardInterrupt.
    """
    planned, started, first_process = module.planned, provenance.start(), is_first()
    module.commits = [started["commit"]]
    loggers = make_loggers(planned) if first_process else []
    callbacks = [*make_progress(planned.config.trainer.progress), *loggers, *make_callbacks(planned), *callbacks]
    heldout_accuracy, error, reason = None, None, None
    try:
        heldout_accuracy = _fit_and_test(planned, module, data, callbacks, loggers or [RunLogger(planned)])
        if first_process:
            with naming(planned.folder):
                drop_optimizer(planned.folder)  # before the record, after which nothing looks here again
    except SystemExit as ended:  # with 1 Lightning's answer to Ctrl-C; submitit requeues a job with another code
        if ended.code != 1:
            raise
        raise KeyboardInterrupt from None
    except Exception as failure:
        error, reason = failure, _reason(failure, module, data)
    record = _record(module, data, started, reason, heldout_accuracy)
    if first_process and not (error and planned.config.rerun and records.is_finished(planned.path)):  # which stays then
        records.write(record, planned.path)
    if error:
        raise RunError(f"{planned.name}: failed: {reason}{place(error)}") from error  # no record has a path
    with naming(planned.folder):
        for logger in loggers:
            logger.finish(record)
    if module.routing_path not in ("", "reference", "stored votes"):
        print_line(f"fast paths: {module.routing_path}")  # compiled or transformed
    print_line(records.result_line(record))
    print_line(f"record {planned.path}")
    print_line(f"network {planned.folder}")
    if any(isinstance(logger, TensorBoard) for logger in loggers):
        print_line(f"TensorBoard logs {folder_of(planned)}")
    return record


def _record(
    module: CapsuleModule, data: CapsuleData, started: dict[str, Any], error: str | None, heldout_accuracy: float | None
) -> records.Record:
    """The record of a run as it ended: of a failed one, `error` says why."""
    planned, done = module.planned, error is None
    of_data: keys.Json = {"note": data.images.note, "checksum": data.images.checksum}
    of_data["test_images"] = len(data.test[1]) if done else None
    if done and module.trained_images is not None:
        of_data["repeated"] = source.repeated(data.test[0], module.trained_images)
        of_data["ambiguous"] = source.ambiguous(data.images)
        if data.heldout:
            of_data["repeated_heldout"] = source.repeated(data.heldout[0], source.digests(data.train[0]))
    software = provenance.of_run(planned, started | {"commits": module.commits}, module.resumed)
    return records.Record(
        key=keys.key_of(planned.identity),
        status="finished" if done else "failed",
        error=error,
        identity=planned.identity,
        config=keys.stored_config(planned.config),
        epochs=[
            {name: value if math.isfinite(value) else None for name, value in row.items()}  # JSON has no NaN
            for row in module.history
        ],
        heldout_accuracy=heldout_accuracy,
        parameters=module.trained_parameters,
        peak_memory_mb=memory.peak_memory_mb(planned.device),
        data=of_data,
        provenance={"routing_path": module.routing_path or None} | software,
        chance_accuracy=constant_guess(data.evaluated[1]) if done else None,
        correct=module.correct if done else None,
    )


def _reason(error: Exception, module: CapsuleModule, data: CapsuleData) -> str:
    """Why a training failed, in one line; raises the error itself where it isn't the training's."""
    of_training = isinstance(error, RunError | RuntimeError | MemoryError | CalledProcessError | _OF_CALLBACKS)
    *_, (raised, _) = walk_tb(error.__traceback__)
    package = raised.f_globals["__name__"].partition(".")[0]
    if package == "submitit":  # a job whose time is up, and that isn't requeued
        raise KeyboardInterrupt from error
    if not of_training and package != "torch" and type(error).__module__.partition(".")[0] != "triton":
        raise error  # triton's errors have no common base
    raise_interruption(error)
    if not memory.is_out_of_memory(error):
        if module.planned.processes > 1 and not isinstance(error, RunError):  # another process ended: no failed run
            raise RunError(f"{module.planned.name}: {first_line(error)}") from error
        return first_line(error)
    error.__traceback__ = None  # whose frames hold the tensors of the step
    cause = first_line(error).partition(". GPU ")[0]  # torch's whole line has 400 letters
    return f"out of memory ({cause}); {_remedy(module, data)}"


def _remedy(module: CapsuleModule, data: CapsuleData) -> str:
    """What needs less memory, by what a run did that hadn't enough."""
    config = module.planned.config
    graph = ", and so does trainer.cuda_graphs=false" * (module.device.type == "cuda" and config.trainer.cuda_graphs)
    if not module.training:
        return f"a smaller trainer.eval_batch_size needs less{graph}"
    if not hasattr(data, "train"):  # it was when the images were moved to the device
        return "a smaller budget.train_images or data.size needs less"
    return f"a smaller optim.batch_size, data.size or budget.width needs less{graph}"


class OwnSignals(Callback):
    """Keeps this program's handler of SIGTERM; processes but the first ignore interruptions, and end after it. All must
    be in one run, after the same epoch.

    Lightning's handler broadcasts to the other processes. These wait in another collective operation: a deadlock.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Replaces Lightning's handler, which is set before; ends processes that have found different checkpoints."""
        assert isinstance(module, CapsuleModule)
        own = module.planned.name, len(module.history)
        if trainer.strategy.broadcast(own) != own:
            print_line(f"error: {own[0]}: the processes continue after different epochs: other folders?", sys.stderr)
            raise SystemExit(1)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler if is_first() else signal.SIG_IGN)
            if not is_first():
                signal.signal(signal.SIGINT, signal.SIG_IGN)


def make_trainer(planned: Plan, callbacks: Sequence[Callback] = (), loggers: Sequence[RunLogger] = ()) -> pl.Trainer:
    """Lightning's trainer of a run, without output of its own."""
    for library in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(library).setLevel(logging.WARNING)
    checkpoint = EpochCheckpoint(planned.folder)
    on_node = torchrun("LOCAL_WORLD_SIZE", 1)
    # Which parameters the loss depends on is the same in every step, and not all do in every network.
    strategy: Strategy | str = DDPStrategy(static_graph=True) if planned.processes > 1 else "auto"
    return pl.Trainer(
        accelerator="gpu" if planned.device.type == "cuda" else "cpu",
        devices=on_node,
        num_nodes=planned.processes // on_node,
        strategy=strategy,
        sync_batchnorm=planned.processes > 1,
        precision="bf16-mixed" if planned.precision == "bf16" else "32-true",
        deterministic=planned.config.trainer.deterministic,
        max_epochs=planned.epochs,
        callbacks=[OwnSignals(), checkpoint, *callbacks],
        # In a Slurm task, Lightning would requeue the job, and continue from a file that any run left in this folder.
        plugins=[checkpoint.files, *([LightningEnvironment()] if planned.processes == 1 else [])],
        default_root_dir=planned.folder,
        logger=loggers or False,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _fit_and_test(
    planned: Plan, module: CapsuleModule, data: CapsuleData, callbacks: Sequence[Callback], loggers: list[RunLogger]
) -> float | None:
    """Trains; gives, under protocol heldout, the test accuracy of the best epoch in percent."""
    with naming(planned.folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        trainer = make_trainer(planned, callbacks, loggers)
        _fit(planned, trainer, module, data)
        if planned.config.protocol != "heldout":
            return None
        trainer.strategy.barrier()  # until the first process has written it
        best = load(planned.folder / BEST)
        if len(best["history"]) != (epoch := records.best_epoch(module.accuracies)):
            raise RunError(f"{planned.folder / BEST}: of epoch {len(best['history'])}, not of {epoch}, the best one")
        module.load_state_dict(best["state_dict"])
        trainer.test(module, datamodule=data, verbose=False)
        return float(module.eval_metrics.results("test")["test_accuracy"])


def _fit(planned: Plan, trainer: pl.Trainer, module: CapsuleModule, data: CapsuleData) -> None:
    """Trains, from the last checkpoint on if there is one; a repetition only from its own, by the same commit."""
    again = planned.config.rerun
    path, checkpoint = None, None
    with suppress(InputError) if again else nullcontext():
        path, checkpoint = resumable(planned) or (None, None)
    done = len(checkpoint["history"]) if checkpoint else 0
    fits = checkpoint is not None and [*checkpoint.get("state_dict", ())] == [*module.state_dict()]
    if checkpoint and again:
        own = fits and checkpoint.get("rerun") and checkpoint["commits"][-1:] == module.commits
        path, checkpoint = (path, checkpoint) if own and done < planned.epochs else (None, None)
    elif checkpoint and not fits:
        raise InputError(f"{path}: of another version of capsexp; rerun=true starts over")
    if checkpoint:
        module.resumed = [*checkpoint["resumed"], done]
        module.commits = [*checkpoint["commits"], *module.commits]
        print_line(f"{planned.name}: continues after epoch {done}")
        if done >= planned.epochs or checkpoint.get("stopped"):  # only the record is missing
            module.load_state_dict(checkpoint["state_dict"])
            module.on_load_checkpoint(checkpoint)
            data.place(planned.device)
            return
    try:
        trainer.fit(module, datamodule=data, ckpt_path=path)
    finally:
        module.step = None  # with the memory of a CUDA graph, in which the gradients are too
        module.zero_grad()

"""From a checkpoint back to its configuration and its trained network, without running anything that the file says.

A checkpoint is tensors and plain containers, and is read as nothing else. Its configuration names classes: only those
that this installation's own configuration files name in the same group are made. Where the data are, which versions of
them are accepted and where to compute are this machine's to say, not the file's.
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from capsexp.config.checks import TARGET, check_dataclass, check_value
from capsexp.config.compose import CONF, composed
from capsexp.config.schema import Config, Data, check, is_multilabel
from capsexp.errors import InputError
from capsexp.nn.scores import Prediction
from capsexp.run import records
from capsexp.run.build import build
from capsexp.run.checkpoints import BEST, LAST, load
from capsexp.run.module import FORMAT, CapsuleModule
from capsexp.run.plan import Plan, find_device

#: Where a configuration names a class, and the group of files that say which there are.
_NAMED = {"model": "model", "routing": "routing", "loss": "loss", "data.reader": "data", "data.synthesis": "data"}

#: What of a data set is each machine's own.
_MACHINES = ("root", "download", "versions", "class_names")

#: What can be typed beside a checkpoint; and, with data=…, all that begins with data.
_TYPED = re.compile(
    r"data(\.root|\.download|\.versions(\..+)?)?|budget\.test_images|"
    r"trainer(\.accelerator|\.precision|\.eval_batch_size|\.routing|\.threads)?"
)

_ALLOWED = (
    "data=NAME, data.root, data.download, data.versions, budget.test_images, trainer=NAME and its accelerator, "
    "precision, eval_batch_size, routing, threads"
)


@dataclass(frozen=True)
class About:
    """What a checkpoint says of its run, beside weights and history."""

    format: int
    name: str  # of the run
    config: records.Json  # as in its record
    precision: Literal["bf16", "float32"]  # that it was trained in
    note: str | None  # what its data files were, where they weren't the published ones
    epoch: int  # after which it was written; 1 is the first


@dataclass(frozen=True)
class Restored:
    """A trained network, ready to be asked."""

    path: Path  # of the file
    name: str  # of the run
    epoch: int  # after which it was written; 1 is the first
    identity: records.Json  # of the run that it is of
    config: Config  # with this machine's data folder, and what was typed
    precision: str  # to compute in: what it was trained in, if nothing else was typed
    module: CapsuleModule  # in evaluation mode, with the weights and the history

    def __call__(self, pixels: Tensor) -> Prediction:
        """Pixels between 0 and 1, [B, channels, H, W], on the module's device -> scores and class capsules."""
        with torch.inference_mode(), self.computing():
            prediction: Prediction = self.module(pixels)
        return prediction

    def computing(self) -> AbstractContextManager[object]:
        """The autocast of `precision`, as in the run's own evaluations."""
        kind = self.module.device.type
        return torch.autocast(kind, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()


def restore(path: Path, device: torch.device | str | None = "cpu", typed: Sequence[str] = ()) -> Restored:
    """A run's network out of its checkpoint, or out of its folder: there best.ckpt goes before last.ckpt.

    Args:
        device: where the network is to be; None: where `trainer.accelerator` says.
        typed: overrides of the configuration as on the command line, of what isn't the checkpoint's to say: the data,
            budget.test_images, and where and how to compute.

    Raises InputError with one line for a file that isn't a checkpoint of this capsexp, whatever is wrong with it, and
    for what can't be typed.
    """
    path = find(path)
    checkpoint = load(path)
    about = _about(path, checkpoint)
    trained = _configuration(path, about)
    config = _here(trained, about.precision, typed)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    place, precision = find_device(config)
    planned = Plan(dataclasses.replace(trained, trainer=config.trainer), place, precision, about.note, None)
    module = _module(path, planned, checkpoint)
    return Restored(
        path=path,
        name=_shown(about.name),
        epoch=about.epoch,
        identity=records.identity(trained, about.precision, about.note),
        config=config,
        precision=precision,
        module=module.to(place if device is None else device).eval(),
    )


def find(path: Path) -> Path:
    """The checkpoint that is meant by a file or by a run's folder."""
    path = Path(os.path.expanduser(path))  # as it is where there is no such user
    if not path.is_dir():
        return path
    for name in (BEST, LAST):
        if (path / name).exists():
            return path / name
    raise InputError(f"{path}: a folder without {BEST} and {LAST}; a run's folder has them, below paths.logs")


def _about(path: Path, checkpoint: Any) -> About:
    """What a checkpoint says of itself."""
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise InputError(f"{path}: not a checkpoint of capsexp")
    if "capsexp" not in checkpoint:
        without = "it doesn't say its configuration: not of capsexp, or of an older one (rerun=true trains again)"
        raise InputError(f"{path}: {without}")
    said = checkpoint["capsexp"]
    found = said.get("format") if isinstance(said, dict) else None
    if found != FORMAT:
        raise InputError(f"{path}: of format {_shown(found)}; this capsexp reads format {FORMAT}")
    try:
        about: About = check_dataclass(About, said)
    except InputError as error:
        raise InputError(f"{path}: damaged: {_shown(error)}") from None
    return about


def _configuration(path: Path, about: About) -> Config:
    """The configuration that was trained, with this machine's paths, versions of the data and device."""
    node = about.config
    try:
        for where, group in _NAMED.items():
            _check_named(node, where, group)
        name = _at(node, "data.name")
        if name not in [path.stem for path in _files("data")]:
            raise InputError(f"data.name={name}: no such data set here")
        own = composed([f"data={name}"])
        trainer = {key: _at(node, f"trainer.{key}") for key in ("eval_batch_size", "routing")}
        added = {key: own[key] for key in ("paths", "rerun")}
        changed = {"data": {**node["data"], **_machines(own)}, "trainer": {**own["trainer"], **trainer}}
        return check({**node, **added, **changed})
    except InputError as error:
        raise InputError(f"{path}: its configuration can't be used here: {_shown(error)}") from None


def _check_named(node: records.Json, where: str, group: str) -> None:
    """Raises InputError for a class that the group's files don't name."""
    component = _at(node, where)
    if component is None and where == "data.synthesis":
        return
    target = component.get(TARGET) if isinstance(component, dict) else None
    if target not in _targets(group):
        raise InputError(f"{where}.{TARGET}={target}: conf/{group} names no such class")


def _here(trained: Config, precision: str, typed: Sequence[str]) -> Config:
    """The configuration with what was typed; in the precision of the training unless that was typed too."""
    keys = [override.lstrip("+~").partition("=")[0] for override in typed]
    for key in keys:
        if not (_TYPED.fullmatch(key) or ("data" in keys and key.startswith("data."))):
            raise InputError(f"{key}: is the checkpoint's to say; what can be typed is {_ALLOWED}")
    other = "data" in keys
    images = None if other else trained.budget.test_images
    own = {
        "trainer.precision": precision,
        "trainer.eval_batch_size": trained.trainer.eval_batch_size,
        "trainer.routing": trained.trainer.routing,
        "budget.test_images": "null" if images is None else images,
    }
    data = [] if other else [f"data={trained.data.name}"]
    whole = composed([*data, *(f"{key}={value}" for key, value in own.items()), *typed])
    node = dataclasses.asdict(trained)
    node["data"] = whole["data"] if other else node["data"] | _machines(whole)
    node["budget"]["test_images"] = whole["budget"]["test_images"]
    config = check({**node, "trainer": whole["trainer"]})
    if (found := _kind(config.data)) != (wanted := _kind(trained.data)):
        resized = dataclasses.replace(config.data, size=trained.data.size)
        hint = f" (data.size={resized.size} makes them so)" if _kind(resized) == wanted else ""
        raise InputError(f"data={config.data.name}: has {found}; the network is made for {wanted}{hint}")
    return config


def _machines(composed: dict[str, Any]) -> dict[str, Any]:
    """What of a data set is not the checkpoint's to say."""
    return {key: composed["data"][key] for key in _MACHINES if key in composed["data"]}


def _kind(data: Data) -> str:
    """What a network has to fit."""
    labels = "sets of classes" if is_multilabel(data) else "one class each"
    return f"images of {data.size}×{data.size}×{data.channels}, {data.classes} classes, {labels}"


def _module(path: Path, planned: Plan, checkpoint: records.Json) -> CapsuleModule:
    """The module of a run with a checkpoint's weights; they are compared before any memory is taken for the network."""
    state = checkpoint["state_dict"]
    try:
        with torch.device("meta"):
            wanted = CapsuleModule(planned, build(planned.config)).state_dict()
        _compare(wanted, state)
        module = CapsuleModule(planned, build(planned.config))
        module.load_state_dict(state)
        module.history = check_value(checkpoint.get("history"), list[dict[str, Any]], "history")
    except (InputError, RuntimeError) as error:
        raise InputError(f"{path}: {_shown(error)}") from None
    return module


def _compare(wanted: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Raises InputError for the first weight that is missing, too much, or of another shape or kind."""
    what = "its weights are of another network than its configuration"
    for name, tensor in wanted.items():
        found = state.get(name)
        if not isinstance(found, Tensor):
            raise InputError(f"{what}: {name} is missing")
        if found.shape != tensor.shape:
            raise InputError(f"{what}: {name} is {_shape(found)}, not {_shape(tensor)}")
    if extra := [name for name in state if name not in wanted]:
        raise InputError(f"{what}, which has no {extra[0]}")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _shown(words: object) -> str:
    """Words that may be a file's, as one line that does nothing to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(words))


def _targets(group: str) -> list[str]:
    """The classes that a group's files name."""
    return [found for path in _files(group) for found in re.findall(r"_target_: *(\S+)", path.read_text("utf-8"))]


def _files(group: str) -> list[Path]:
    return sorted((CONF / group).glob("*.yaml"))


def _at(node: Any, where: str) -> Any:
    """What stands at a dotted key, None where nothing does."""
    for key in where.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node

"""From a checkpoint to its configuration and its trained network, without running code from the file.

A checkpoint is read as tensors and plain containers only. Of the classes in its configuration only those are imported
that a file of their group names, too, in conf/ or in a folder that the user gives (see capsexp.config.searchpath). The
data folder, the accepted versions of the data files, and where to compute come from this machine's configuration, not
from the file.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from capsexp.config.checks import OWN_FILES, check_dataclass, check_value, typed_key
from capsexp.config.compose import composed
from capsexp.config.schema import Config, Data, check, is_multilabel
from capsexp.config.searchpath import choices
from capsexp.errors import DamagedError, InputError, printable
from capsexp.nn.scores import ClassScores, Prediction
from capsexp.run.build import build
from capsexp.run.checkpoints import load
from capsexp.run.keys import Json
from capsexp.run.module import FORMAT, CapsuleModule
from capsexp.run.plan import BEST, LAST, Plan, find_device

#: Keys of `data` that are never read from a checkpoint.
_LOCAL_DATA = ("root", "download", "versions", "path", "class_names")

#: Those that are as trained with, but where others are typed.
_OF_OWN = ("labels", "columns", "group", "reader")

#: Keys of `trainer` that stay as in the training unless they are overridden; so does `precision`.
_TRAINED_WITH = ("eval_batch_size", "routing")

#: Keys that can be overridden beside a checkpoint; with data=NAME, also all others of data.
_OVERRIDABLE = (
    *("data", "data.root", "data.path", "data.labels", "data.columns", "data.group", "data.reader.invert"),
    *("data.reader.max_pixels", "data.download", "data.versions", "budget.test_images", "trainer"),
    *(f"trainer.{key}" for key in ("accelerator", "precision", "eval_batch_size", "routing", "threads")),
)

_REMEDY = "; delete it if it was one: rerun=true on its run makes it again"  # a file that is no checkpoint, or damaged

_MAX_LAYERS = 100  # of a network; to build more takes for ever


@dataclass(frozen=True)
class Header:
    """A checkpoint's description of its run, beside weights and history; see `CapsuleModule.on_save_checkpoint`."""

    format: int
    name: str  # of the run
    config: Json  # as in the run's record
    precision: Literal["bf16", "float32"]  # of the training
    note: str | None  # what its data files were, where they weren't the published ones
    epoch: int  # after which it was written; 1 is the first
    unlisted: str | None = None  # the checksum of data files that conf/ doesn't list


@dataclass(frozen=True)
class Restored:
    """A trained network, with the configuration to evaluate it with."""

    path: Path  # of the file
    name: str  # of the run
    epoch: int  # after which it was written; 1 is the first
    config: Config  # with this machine's data folder, and the overrides
    precision: str  # to compute in: that of the training, unless overridden
    module: CapsuleModule  # in evaluation mode, with the weights and the history
    halved: bool = False  # the weights are stored in half precision

    def __call__(self, pixels: Tensor) -> Prediction:
        """Pixels between 0 and 1, [B, channels, H, W], on the module's device -> scores and class capsules."""
        with torch.inference_mode(), self.autocast():
            return self.module(pixels)

    @property
    def score_kind(self) -> str:
        """What the scores are: `length`, `activation` or `logit`."""
        scores = getattr(self.module.network, "scores", None)
        return scores.presence if isinstance(scores, ClassScores) and scores.presence != "pose" else "logit"

    def autocast(self) -> torch.autocast:
        """The autocast of `precision`, as in the run's own evaluations."""
        return torch.autocast(self.module.device.type, torch.bfloat16, enabled=self.precision == "bf16")


def restore(path: Path, device: torch.device | str | None = "cpu", overrides: Sequence[str] = ()) -> Restored:
    """A run's network from its checkpoint, or from its folder: best.ckpt, else last.ckpt.

    Args:
        path: of either; `capsexp.results.networks.find` makes one of a name.
        device: of the network; None: that of `trainer.accelerator`.
        overrides: of the configuration, as on the command line: the data, budget.test_images, and where and how to
            compute.

    Raises InputError with one line for a file that isn't a checkpoint of this capsexp, or a damaged one, and for what
    can't be overridden.
    """
    if path.is_dir() and not checkpoint_in(path):
        raise InputError(f"{path}: a folder without {BEST} and {LAST}; a run's folder has them, below paths.logs")
    path = checkpoint_in(path) or path
    try:
        checkpoint = load(path)
    except DamagedError as error:
        raise InputError(f"{error}{_REMEDY if path.exists() else ''}") from None
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise InputError(f"{path}: not a checkpoint of capsexp{_REMEDY}")
    if (number := _at(checkpoint, "capsexp.format")) != FORMAT:
        raise InputError(f"{path}: of format {printable(str(number))}; this capsexp reads format {FORMAT}")
    with _in_errors(f"{path}: damaged: ", _REMEDY):
        header: Header = check_dataclass(Header, checkpoint["capsexp"])
    trained, config = _configurations(path, header, overrides)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    configured, precision = find_device(config)
    module = _module(path, Plan(trained, configured, precision, header.note, None, header.unlisted), checkpoint)
    return Restored(
        path=path,
        name=printable(header.name),
        epoch=header.epoch,
        config=config,
        precision=precision,
        module=module.to(configured if device is None else device).eval(),
        halved=any(value.dtype is torch.half for value in checkpoint["state_dict"].values()),
    )


def _configurations(path: Path, header: Header, overrides: Sequence[str]) -> tuple[Config, Config]:
    """The configuration of the training, with this machine's paths, and the one to evaluate with; raises InputError."""
    unusable = f"{path}: its configuration can't be used here: "
    with _in_errors(unusable):
        if (name := _at(header.config, "data.name")) not in list(choices("data")):
            raise InputError(f"data.name={name}: no such data set here; {OWN_FILES}")
        _check_sizes(header.config)
    keys = [*map(typed_key, overrides)]
    for typed in keys:
        if typed not in _OVERRIDABLE and not typed.startswith("data." if "data" in keys else "data.versions."):
            given = f"{', '.join(_OVERRIDABLE)}, and beside data=NAME its other keys"
            raise InputError(f"{typed}: is set by the checkpoint; what can be given is {given}")
    local = composed([*([] if "data" in keys else [f"data={header.config['data']['name']}"]), *overrides])
    if "path" in local["data"] and header.config["data"].get("class_names"):
        with _in_errors(unusable):
            local["data"] = _own_images(header.config["data"], local["data"], keys)
    checked = check(local)
    with _in_errors(unusable):
        trained = _trained(header, local, keys)
    return trained, _evaluated(trained, checked, keys)


def checkpoint_in(folder: Path) -> Path | None:
    """A run's best.ckpt, else its last.ckpt; None without both."""
    return next(filter(Path.exists, (folder / BEST, folder / LAST)), None)


def _check_sizes(node: Json) -> None:
    """Raises InputError for more layers than any network here has."""
    for key in ("model", "reconstruction"):
        options = _at(node, key)
        for name, value in options.items() if isinstance(options, dict) else ():
            if isinstance(value, list) and len(value) > _MAX_LAYERS:
                raise InputError(f"{key}.{name}: has {len(value):,} entries; must have at most {_MAX_LAYERS}")


def _trained(header: Header, local: dict[str, Any], keys: Sequence[str]) -> Config:
    """The configuration of the training, with this machine's paths, data files and trainer; raises InputError."""
    node = header.config
    kept = {key: _at(node, f"trainer.{key}") for key in _TRAINED_WITH} | {"precision": header.precision}
    kept = {key: value for key, value in kept.items() if f"trainer.{key}" not in keys}
    data = {key: value for key, value in node["data"].items() if key not in _LOCAL_DATA}
    of_own = _OF_OWN if "path" in local["data"] and "data" not in keys else ()
    data |= {key: value for key, value in local["data"].items() if key in _LOCAL_DATA or key in of_own}
    if "data" in keys:
        data.pop("path", None)  # of other images
    own = {key: local[key] for key in ("paths", "rerun", "logger")}
    return check({**node, **own, "data": data, "trainer": local["trainer"] | kept})


def _own_images(trained: Json, local: Json, keys: Sequence[str]) -> Json:
    """The data of a run on somebody's own images, as trained; without `path`, where these are not given."""
    names = check_value(trained.get("class_names"), list[str], "data.class_names")
    data = local | {"class_names": [printable(name) for name in names], "classes": trained.get("classes")}
    if "data" not in keys:
        data |= {key: trained.get(key) for key in ("size", "channels")}
        data |= {key: trained.get(key) for key in ("labels", "columns", "group") if f"data.{key}" not in keys}
        typed = {key: value for key, value in local["reader"].items() if f"data.reader.{key}" in keys}
        data["reader"] = trained["reader"] | typed if isinstance(trained.get("reader"), dict) else None
    return {key: value for key, value in data.items() if key != "path" or value is not None}


def _evaluated(trained: Config, local: Config, keys: Sequence[str]) -> Config:
    """The configuration with the test images to evaluate on; raises InputError where they don't fit the network."""
    if "data" not in keys and "budget.test_images" not in keys:
        return trained
    data, needed = local.data if "data" in keys else trained.data, _shape_of(trained.data)
    if _shape_of(data) != needed:
        resized = _shape_of(dataclasses.replace(data, size=trained.data.size))
        hint = f" (data.size={trained.data.size} makes them so)" if resized == needed else ""
        raise InputError(f"data={data.name}: has {_shape_of(data)}; the network is made for {needed}{hint}")
    budget = dataclasses.replace(trained.budget, test_images=local.budget.test_images)
    return dataclasses.replace(trained, data=data, budget=budget)


def _shape_of(data: Data) -> str:
    """What a network depends on, in words."""
    labels = "sets of classes" if is_multilabel(data) else "one class each"
    return f"images of {data.size}×{data.size}×{data.channels}, {data.classes} classes, {labels}"


def _module(path: Path, planned: Plan, checkpoint: Json) -> CapsuleModule:
    """The module of a run with a checkpoint's weights; their shapes are compared before memory is allocated."""
    state = checkpoint["state_dict"]
    with _in_errors(f"{path}: ", _REMEDY):
        with torch.device("meta"):
            with_decoder = planned.config.reconstruction.enabled  # whose size is that of an output
            expected = CapsuleModule(planned, build(planned.config, tried=with_decoder)).state_dict()
        _compare(expected, state)
        module = CapsuleModule(planned, build(planned.config))
        module.load_state_dict(state)
        module.history = check_value(checkpoint.get("history"), list[dict[str, Any]], "history")
        module.correct = check_value(checkpoint.get("correct", {}), dict[str, str], "correct")
        if (trained := checkpoint.get("trained_images")) is not None:
            if not isinstance(trained, Tensor) or (trained.dtype, trained.layout) != (torch.int64, torch.strided):
                raise InputError("trained_images: must be a tensor of whole numbers")
            module.trained_images = trained
        if (pixels := checkpoint.get("pixels")) is not None:
            values = check_value(list(pixels) if isinstance(pixels, tuple) else pixels, list[list[float]], "pixels")
            if len(values) != 2:
                raise InputError(f"pixels={values}: must be two lists, of means and deviations")
            module.pixels = values[0], values[1]
    return module


def _compare(expected: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Raises InputError for the first weight that is missing, unexpected, of another shape or no tensor."""
    problem = "its weights are of another network than its configuration"
    for name, tensor in expected.items():
        stored = state.get(name)
        if not isinstance(stored, Tensor):
            raise InputError(f"{problem}: {name} is missing")
        if stored.shape != tensor.shape:
            shapes = ["×".join(map(str, shape)) or "a number" for shape in (stored.shape, tensor.shape)]
            raise InputError(f"{problem}: {name} is {shapes[0]}, not {shapes[1]}")
        if stored.isnan().any():
            raise InputError(f"{name} holds NaN: its training diverged, or it was edited")
    if unexpected := [name for name in state if name not in expected]:
        raise InputError(f"{problem}, which has no {unexpected[0]}")


@contextmanager
def _in_errors(prefix: str, remedy: str = "") -> Iterator[None]:
    """Errors about a file's contents become InputErrors of one printable line between `prefix` and `remedy`."""
    try:
        yield
    except (InputError, RuntimeError) as error:
        raise InputError(f"{prefix}{printable(str(error))}{remedy}") from None


def _at(node: Any, key: str) -> Any:
    """The value at a dotted key; None if there is none."""
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node

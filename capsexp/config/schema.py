"""The schema of a configuration: type and bounds of every key; what it means stands beside its value in conf/.

`check` turns the plain mapping that Hydra composes into a `Config`, or raises InputError with one line. Components
(network, routing, loss, a data set's reader and synthesis: the nodes with a `_target_`) are checked against the
signature of their class, so that a new one needs no change here.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from capsexp import Count, NotNegative, Positive, Seed, UnitInterval, WidthFraction
from capsexp.config.checks import (
    NAME,
    TARGET,
    Component,
    Matches,
    Name,
    check_component,
    check_dataclass,
    check_target,
    check_value,
    parameters,
    shown,
    typed_key,
)
from capsexp.errors import InputError

Epochs = Annotated[int, Ge(1), Le(500_000)]  # of more, a record would be larger than is read
Natural = Annotated[int, Ge(0)]
FolderName = Annotated[str, Matches(r".*\S.*", "a folder")]


@dataclass(frozen=True)
class Version:
    """One accepted version of a data set's files.

    `note` is null where the pixels and labels are the published ones; else it describes them in a few words, and is
    part of the run's identity, its record and every table cell.
    """

    note: str | None
    files: dict[str, str]  # file name -> md5 of the unpacked contents
    images: list[Count] | None = None  # training and test images, where they aren't as many as the published ones
    first: bool = False  # these are the first of the published ones, and count as so many of them


@dataclass(frozen=True)
class Data:
    """A data set: its folder, the accepted versions of its files, size and statistics of its images."""

    name: Name
    reader: Component
    root: Annotated[str, Matches(r".*\S.*", "a folder (by default CAPSEXP_DATA's)")]
    download: bool
    size: Count
    channels: Literal[1, 3]
    classes: Count
    flips: bool
    mean: list[UnitInterval] | None  # None: computed from the training images
    std: list[Annotated[float, Ge(0.001), Le(1)]] | None  # of pixels between 0 and 1
    versions: dict[str, Version]
    class_names: list[str] = field(default_factory=list)  # in the order of the labels, for display; empty: numbers
    synthesis: Component | None = None  # makes images from the reader's; see capsexp.data.synthesis
    title: str | None = None  # for tables; the name by default
    images: list[Count] | None = None  # training and test images of the published set; of a synthesis, of an epoch
    official: bool = False  # whether everybody tests on the same images: no random split, no part of a set
    path: str | None = None  # of somebody's own images, as the next three; see capsexp.data.folder
    labels: str | None = None
    columns: list[str] | None = None
    group: str | None = None


@dataclass(frozen=True)
class Attention:
    """The network's attention modules; see capsexp.nn.attention."""

    cbam: bool
    conv: bool
    caps: bool
    cbam_reduction: Count
    cbam_momentum: Annotated[float, Gt(0), Le(1)] = 0.1
    cbam_kernel: Literal[3, 7] = 7
    first: Component | None = None

    @property
    def names(self) -> list[str]:
        """Those that the network has."""
        first = [self.first.name] if self.first else []
        return [*first, *(name for name in ("cbam", "conv", "caps") if getattr(self, name))]


@dataclass(frozen=True)
class Reconstruction:
    """The decoder that reconstructs the image from the class capsules (Sabour et al. 2017, section 4.1)."""

    enabled: bool
    weight: NotNegative
    hidden: list[Count]
    reduction: Literal["sum", "mean"] = "sum"  # of the squared error over the pixels
    last_activation: Literal["relu", "tanh"] = "relu"  # of the last hidden layer


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing and augmentation of training images, on the device, in every epoch anew."""

    normalize: bool
    shift: Annotated[float, Ge(0), Lt(1)]
    crop_padding: Natural
    flip: bool
    fill: Literal["zeros", "nearest"] = "zeros"
    rotate: Annotated[float, Ge(0), Le(180)] = 0.0
    squeeze: Annotated[float, Ge(0), Lt(1)] = 0.0
    margins: bool = False
    erase: Natural = 0
    balance: bool = False


@dataclass(frozen=True)
class Optim:
    """The optimiser, of torch.optim, its schedule, and the length of the paper's training."""

    name: Literal["adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd"]
    lr: Positive
    momentum: Annotated[float, Ge(0), Lt(1)]
    weight_decay: Annotated[float, Ge(0), Le(1)]
    batch_size: Count
    epochs: Epochs
    schedule: Literal["constant", "cosine", "exponential", "plateau", "steps"]
    factor: Annotated[float, Gt(0), Lt(1)]
    patience: Natural
    milestones: list[Count]
    plateau_of: Literal["train_loss", "test_accuracy"] = "train_loss"  # under heldout, of the held-out images
    warmup: Natural = 0  # epochs over which the learning rate grows linearly at first
    gradient_clip: Positive | None = None  # the largest norm of the whole gradient
    options: dict[str, Any] = field(default_factory=dict)  # more arguments of the optimiser


@dataclass(frozen=True)
class Budget:
    """How much of the paper's training is done: all of it, if everything is null and width 1."""

    name: Name
    epochs: Epochs | None
    steps: Count | None
    train_images: Count | None
    test_images: Count | None
    width: WidthFraction


@dataclass(frozen=True)
class Trainer:
    """How and where the training runs. Only the precision is part of a run's identity."""

    accelerator: Literal["auto", "cpu", "gpu"]
    precision: Literal["auto", "bf16", "float32"]
    deterministic: bool
    routing: Literal["fast", "reference"]
    steps_at_once: Count | None
    cuda_graphs: bool
    threads: Count | None
    eval_batch_size: Count
    progress: Literal["auto", "bar", "lines", "none"]


@dataclass(frozen=True)
class Paths:
    """Folders that are written to."""

    results: FolderName
    logs: FolderName


@dataclass(frozen=True)
class Config:
    """One run's configuration, resolved."""

    data: Data
    model: Component
    routing: Component
    attention: Attention
    loss: Component
    reconstruction: Reconstruction
    preprocess: Preprocess
    optim: Optim
    budget: Budget
    trainer: Trainer
    paths: Paths
    protocol: Literal["paper", "heldout"]
    seed: Seed
    rerun: bool  # train again in spite of a finished record
    logger: dict[str, dict[str, Any]] = field(default_factory=dict)  # class and options; logger=[] disables all
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)  # the same, of Lightning's callbacks


def check(node: dict[str, Any]) -> Config:
    """The configuration that a plain mapping describes; raises InputError with one line.

    Cheap checks come first: a wrong number is an error before torch is imported.
    """
    node = {**node, "data": _completed(node.get("data"))}
    own = isinstance(node["data"], dict) and node["data"].get("path") is not None
    if "protocol" in node and node["protocol"] is None:
        node["protocol"] = "heldout" if own else "paper"
    config: Config = check_dataclass(Config, node)
    if own and config.data.images:
        config = _lowered(config, *config.data.images)
    for name, values in (("mean", config.data.mean), ("std", config.data.std)):
        if values is not None and len(values) != config.data.channels:
            raise InputError(f"data.{name}={values}: must have one number for each of {config.data.channels} channels")
    for group in ("logger", "callbacks"):
        for name, chosen in getattr(config, group).items():
            check_target(chosen.get(TARGET), f"{group}.{name}")
            for key, value in chosen.items():
                if isinstance(value, float):  # JSON has neither nan nor inf
                    check_value(value, float, f"{group}.{name}.{key}")
    reader, synthesis = check_component(config.data.reader, "data.reader"), config.data.synthesis
    checked = synthesis and check_component(synthesis, "data.synthesis")
    first = config.attention.first and check_component(config.attention.first, "attention.first")
    config = replace(
        config,
        data=replace(config.data, reader=reader, synthesis=checked),
        model=check_component(config.model, "model"),
        routing=check_component(config.routing, "routing"),
        attention=replace(config.attention, first=first),
        loss=check_component(config.loss, "loss"),
    )
    if error := next(_contradictions(config), None):
        raise InputError(error)
    return config


def _lowered(config: Config, train: int, test: int) -> Config:
    """The configuration for so many images of one's own: a larger batch or budget is all of them."""
    budget, optim = config.budget, config.optim
    trained, tested = (
        None if asked is None or asked >= there else asked
        for asked, there in ((budget.train_images, train), (budget.test_images, test))
    )
    optim = replace(optim, batch_size=min(optim.batch_size, train))
    return replace(config, optim=optim, budget=replace(budget, train_images=trained, test_images=tested))


def _completed(data: Any) -> Any:
    """The `data` of a configuration, with what its reader reads from `data.path`, such as the number of classes."""
    if not isinstance(data, dict) or "path" not in data:
        return data
    reader = check_component(check_value(data.get("reader"), Component, "data.reader"), "data.reader")
    if not hasattr(reader.cls, "completed"):
        raise InputError(f"data.path={data['path']}: no such key of data={data.get(NAME)}; data=folder has it")
    return reader.make().completed({**data, "path": check_value(data["path"], str | None, "data.path")})


def training_preprocess(config: Config) -> Preprocess:
    """The preprocessing of training images; without `flip` where a mirrored image changes its class."""
    return replace(config.preprocess, flip=config.preprocess.flip and config.data.flips)


def is_multilabel(data: Data) -> bool:
    """Whether an image's label is a set of classes."""
    return data.synthesis is not None and getattr(data.synthesis.cls, "multilabel", False)


def _contradictions(config: Config) -> Iterator[str]:
    """An error for each of the settings that contradict each other or can mean nothing."""
    yield from _of_data(config)
    yield from _of_optim(config.optim)
    yield from _of_preprocess(config)
    for name, typed in (("results", config.paths.results), ("logs", config.paths.logs)):
        existing = next((str(path) for path in (Path(typed), *Path(typed).parents) if os.path.exists(path)), ".")
        if not os.path.isdir(existing):
            yield f"paths.{name}={typed}: must be a folder, and {existing} is a file"
    positive, negative = config.loss.arguments.get("positive", 1), config.loss.arguments.get("negative", 0)
    if negative >= positive:
        yield f"loss.positive={positive}: must be above loss.negative={negative}"


def _of_data(config: Config) -> Iterator[str]:
    """As `_contradictions`: the numbers of images, and labels that the loss can't take."""
    counts = {f"versions.{name}.images": version.images for name, version in config.data.versions.items()}
    for key, images in {"images": config.data.images, **counts}.items():
        if images is not None and len(images) != 2:
            yield f"data.{key}={images}: must be two numbers, of training and test images"
    if is_multilabel(config.data) and getattr(config.loss.cls, "threshold", None) is None:
        labels = f"takes one label an image, but data={config.data.name} has sets of labels"
        yield f"loss={config.loss.name}: {labels}; loss=binary_cross_entropy and loss=margin take them"


def _of_optim(optim: Optim) -> Iterator[str]:
    """As `_contradictions`: the schedule, its milestones and the warm-up."""
    milestones, schedule = f"optim.milestones={optim.milestones}", f"optim.schedule={optim.schedule}"
    if optim.milestones != sorted(set(optim.milestones)):
        yield f"{milestones}: must grow"
    if optim.milestones and optim.schedule != "steps":
        remedy = "optim.schedule=steps takes them, optim.milestones=[] leaves them out"
        yield f"{milestones}: {schedule} has none; {remedy}"
    if optim.warmup and optim.schedule == "plateau":
        yield f"optim.warmup={optim.warmup}: not before {schedule}; constant, cosine, exponential and steps have it"
    if optim.schedule == "steps" and not optim.milestones:
        yield f"{milestones}: {schedule} needs some; optim.schedule=constant needs none"
    if max(optim.milestones, default=0) >= optim.epochs:
        yield f"{milestones}: must be below optim.epochs={optim.epochs}"
    if optim.warmup >= (first := min([*optim.milestones, optim.epochs])):
        yield f"optim.warmup={optim.warmup}: must be below {first}, the first milestone or optim.epochs"


def _of_preprocess(config: Config) -> Iterator[str]:
    """As `_contradictions`: what images of this size, or drawn anew in each epoch, can't have."""
    data, preprocess = config.data, config.preprocess
    drawn, side = "images are drawn anew in each epoch", f"the image's side, data.size={data.size}"
    if preprocess.balance and data.synthesis:
        yield f"preprocess.balance=true: not with data={data.name}, whose {drawn}"
    if preprocess.normalize and data.synthesis and not (data.mean and data.std):
        needed = "needs data.mean and data.std"
        yield f"data={data.name}: {needed}, since its {drawn}; preprocess.normalize=false doesn't"
    if preprocess.crop_padding >= data.size:
        yield f"preprocess.crop_padding={preprocess.crop_padding}: must be below {side}"
    if preprocess.erase > data.size:
        yield f"preprocess.erase={preprocess.erase}: must be at most {side}"


def _idle(config: Config) -> Iterator[tuple[bool, str, tuple[str, ...]]]:
    """Options that have no effect without another: whether it is missing, what it is, their keys.

    A routing without a number of iterations counts as having several.
    """
    preprocess, schedule = config.preprocess, config.optim.schedule
    moves = any(getattr(preprocess, name) for name in ("shift", "crop_padding", "margins", "rotate", "squeeze"))
    iterates = config.routing.iterations != 1
    freezes = config.routing.arguments.get("gradient") == "none"  # the transformation matrices, in one iteration, too
    of_cbam = ("attention.cbam_reduction", "attention.cbam_momentum", "attention.cbam_kernel")
    yield not config.attention.cbam, "attention.cbam=true", of_cbam
    yield not config.data.flips, "data.flips=true", ("preprocess.flip",)
    yield not preprocess.flip, "preprocess.flip=true", ("data.flips",)
    yield not preprocess.normalize, "preprocess.normalize=true", ("data.mean", "data.std")
    scheduled = "optim.schedule=exponential, plateau or steps"
    yield schedule in ("constant", "cosine"), scheduled, ("optim.factor",)
    yield schedule != "plateau", "optim.schedule=plateau", ("optim.patience", "optim.plateau_of")
    yield not moves, "preprocess.shift, crop_padding, margins, rotate or squeeze", ("preprocess.fill",)
    of_decoder = tuple(f"reconstruction.{key}" for key in ("weight", "hidden", "reduction", "last_activation"))
    yield not config.reconstruction.enabled, "reconstruction.enabled=true", of_decoder
    yield not iterates, "several routing.iterations", ("routing.logits", "routing.order")
    yield not iterates and not freezes, "several routing.iterations", ("routing.gradient",)
    yield not config.attention.caps, "attention.caps=true", ("model.caps_axis",)
    for group, component in (("model", config.model), ("routing", config.routing)):
        taken = parameters(component.cls)
        for name, (other, value) in getattr(component.cls, "only_with", {}).items():
            if other in taken:
                chosen = component.arguments.get(other, taken[other].default)
                yield chosen != value, f"{group}.{other}={shown(value)}", (f"{group}.{name}",)


def without_effect(config: Config, overrides: Sequence[str]) -> list[str]:
    """A line for each typed option that changes no number of the run."""
    idle = {option: needed for missing, needed, options in _idle(config) if missing for option in options}
    return [f"{word}: no effect without {idle[typed_key(word)]}" for word in overrides if typed_key(word) in idle]

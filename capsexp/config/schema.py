"""The schema of a configuration: what every key means, its type and its bounds.

`check` turns the plain mapping that Hydra composes into a `Config`, or raises
InputError with one line. The parts that name a class (`_target_`: the network,
the routing, the loss, a data set's reader) are checked against the signature
of that class, so that a new network needs no change here.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from capsexp import Count, Fraction, NotNegative, Positive
from capsexp.config.checks import NAME, Component, check_component, check_dataclass, import_target
from capsexp.errors import InputError

Natural = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class Version:
    """One accepted state of a data set's files.

    `note` is null where the pixels and labels are the published ones; otherwise it says in a
    word what they are, and goes into the run's identity, its record and every table cell.
    """

    note: str | None
    files: dict[str, str]  # file name -> md5 of the unpacked contents


@dataclass(frozen=True)
class Data:
    """A data set: where its files are, which are accepted, and what its images become."""

    name: str
    reader: Component  # see capsexp.data.reader
    root: str  # the folder that holds all data sets, in torchvision's layouts
    download: bool  # fetch missing files, where there is a network
    size: Count  # pixels a side; images of another size are averaged down to it, but for a synthesis, see there
    channels: Literal[1, 3]  # grey images are repeated to three channels
    classes: Count
    flips: bool  # a mirrored image keeps its class
    mean: list[float]  # of the training pixels / 255, one a channel
    std: list[Positive]
    versions: dict[str, Version]
    class_names: list[str] = field(default_factory=list)  # in the labels' order, for people; none: the numbers
    synthesis: Component | None = None  # images are made from the reader's; see capsexp.data.synthesis


@dataclass(frozen=True)
class Attention:
    """Which attention modules stand in the network; see capsexp.nn.attention."""

    cbam: bool  # after the first convolution (jiao)
    conv: bool  # after the last convolution before the capsules (huang, Eqs. 8-12)
    caps: bool  # on the votes, before routing (huang, Eqs. 13-16)
    cbam_reduction: Count  # r: channels over width of the shared layer


@dataclass(frozen=True)
class Reconstruction:
    """The decoder that draws the input again from the class capsules (Sabour et al. 2017, section 4.1)."""

    enabled: bool
    weight: NotNegative  # on the squared error, summed over the pixels
    hidden: list[Count]  # widths of the decoder's hidden layers


@dataclass(frozen=True)
class Preprocess:
    """What happens to a training image, on the device, each time that it is drawn."""

    normalize: bool  # subtract the training mean, divide by the standard deviation; else pixels / 255 alone
    shift: Annotated[float, Ge(0), Lt(1)]  # moved by up to this fraction of the side
    crop_padding: Natural  # pixels added on each side before a random crop of the old size
    flip: bool  # mirrored, one time in two, where data.flips allows it
    fill: Literal["zeros", "nearest"] = "zeros"  # what moves in: black, or the nearest pixel of the image


@dataclass(frozen=True)
class Optim:
    """The optimiser, its schedule, and how long the paper trains."""

    name: Literal["adam", "sgd"]
    lr: Positive
    momentum: Annotated[float, Ge(0), Lt(1)]  # sgd only
    weight_decay: NotNegative
    batch_size: Count
    epochs: Count  # the paper's; the budget says how many are done
    schedule: Literal["constant", "plateau", "steps"]
    factor: Annotated[float, Gt(0), Lt(1)]  # the learning rate is multiplied by it
    patience: Natural  # plateau: epochs without a lower training loss before that
    milestones: list[Count]  # steps: epochs of the paper's; a reduced budget scales them


@dataclass(frozen=True)
class Budget:
    """How much of the paper's training is done. Everything null and width 1 is all of it."""

    name: str
    epochs: Count | None
    steps: Count | None  # optimisation steps in an epoch
    train_images: Count | None  # the first so many; of a synthesis, the digits, and so the images in an epoch
    test_images: Count | None  # the first so many
    width: Fraction  # of the networks' channels


@dataclass(frozen=True)
class Trainer:
    """How and where the training runs. None of it is part of a run's identity but the precision."""

    accelerator: Literal["auto", "cpu", "gpu"]
    precision: Literal["auto", "bf16", "float32"]  # auto: bf16 on a device that computes it, else float32
    deterministic: bool
    routing: Literal["fast", "reference"]  # reference: every vote is held, as the papers' procedures are written
    processes: Count | None  # that share each batch of a run, a GPU each; null: as many as there are GPUs
    steps_at_once: Count | None  # optimisation steps in a step of Lightning's; null: 25 on a GPU, 1 on the CPU
    cuda_graphs: bool  # on a GPU, whole optimisation steps are recorded and replayed
    threads: Count | None  # of the CPU; null leaves it to torch
    eval_batch_size: Count
    progress: Literal["auto", "bar", "lines", "none"]  # auto: a bar on a terminal, lines elsewhere


@dataclass(frozen=True)
class Paths:
    """Where things are written."""

    results: str  # records
    logs: str  # checkpoints and TensorBoard's event files


@dataclass(frozen=True)
class Config:
    """One run, resolved."""

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
    seed: Annotated[int, Ge(0), Le(2**32 - 1)]
    rerun: bool  # train again although there is a finished record


def check(node: dict[str, Any]) -> Config:
    """The configuration that a plain mapping describes; raises InputError with one line.

    Cheap checks come first: a wrong number is found before torch is imported.
    """
    config: Config = check_dataclass(Config, node)
    for name, values in (("mean", config.data.mean), ("std", config.data.std)):
        if len(values) != config.data.channels:
            raise InputError(f"data.{name}={values}: must have one number for each of {config.data.channels} channels")
    for where in ("model", "routing", "loss"):
        getattr(config, where).update(check_component(getattr(config, where), where))
    config.data.reader.update(check_component(config.data.reader, "data.reader"))
    if config.data.synthesis is not None:
        config.data.synthesis.update(check_component(config.data.synthesis, "data.synthesis"))
    _check_sets(config)
    return config


def is_multilabel(data: Data) -> bool:
    """Whether an image's label is a set of classes."""
    return data.synthesis is not None and getattr(import_target(data.synthesis, "data.synthesis"), "multilabel", False)


def _check_sets(config: Config) -> None:
    if is_multilabel(config.data) and getattr(import_target(config.loss, "loss"), "threshold", None) is None:
        raise InputError(
            f"loss={config.loss[NAME]}: takes one label an image, but data={config.data.name} has sets of labels; "
            "loss=binary_cross_entropy and loss=margin take them"
        )

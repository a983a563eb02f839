"""The LightningDataModule of a run: loaders over splits that are stored on the device."""

from functools import partial

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsexp.config.schema import Config, training_preprocess
from capsexp.data.loader import BatchGroups, DeviceLoader, TrainingLoader, derived_seed
from capsexp.data.reader import in_proportion, part_of_each
from capsexp.data.source import ImageSet
from capsexp.data.synthesis import Digits, Synthesis
from capsexp.errors import InputError

HELDOUT_FRACTION = 0.1
STEPS_AT_ONCE = 25  # in a call of training_step on a GPU, where Lightning's overhead a call is as long as a step
MAX_GROUP = 2**28  # bytes of the batches of such a call, if there are several

Split = tuple[Tensor, Tensor]  # images, labels


class CapsuleData(pl.LightningDataModule):
    """The training batches, and those evaluated after each epoch: test set (protocol paper) or held-out tenth."""

    trainer: pl.Trainer

    def __init__(self, images: ImageSet, config: Config) -> None:
        """Raises InputError if the images of `data.synthesis` would be smaller than the digits."""
        super().__init__()
        self.images, self.config = images, config
        self.synthesis: Synthesis | None = config.data.synthesis.make() if config.data.synthesis else None
        side = images.train_images.shape[-1]
        if self.synthesis is not None and config.data.size < side:
            raise InputError(f"data.size={config.data.size}: must be at least {side}, the side of the digits' images")
        _check_counts(images, config)

    def setup(self, stage: str) -> None:
        """Moves the splits to the device that trains."""
        self.place(self.trainer.strategy.root_device)

    def place(self, device: torch.device) -> None:
        """Moves the splits to a device."""
        budget = self.config.budget
        own, validation = self.config.data.path is not None, self.images.validation
        train, heldout = (self.images.train_images, self.images.train_labels), None
        if self.config.protocol == "heldout" and validation:
            heldout = train[0][-validation:], train[1][-validation:]
            train = train[0][:-validation], train[1][:-validation]
        first, groups = _first(train[1], budget.train_images, own), self.images.groups
        train = train[0][first], train[1][first]
        if self.config.protocol == "heldout" and not heldout:
            groups = None if groups is None else groups[first]
            kept, held = heldout_split(len(train[1]), self.config.seed, train[1] if own else None, groups)
            if not (len(kept) and len(held)):
                what = "images" if groups is None else "groups"
                raise InputError(f"protocol=heldout: some class must have two training {what}, one of them held out")
            train, heldout = (train[0][kept], train[1][kept]), (train[0][held], train[1][held])
        if self.synthesis is not None:
            # The digits were split before, so that no image contains a digit of another split.
            heldout = heldout and self.synthesis.heldout(self._digits(heldout), self.config.data.size)
        self.train, self.test = _on(device, train), _on(device, test_split(self.images, self.config))
        self.heldout = heldout and _on(device, heldout)

    @property
    def evaluated(self) -> Split:
        """The images and labels that are evaluated after each epoch."""
        return self.heldout or self.test

    def train_dataloader(self) -> BatchGroups:
        """An epoch of training batches."""
        config, trainer, synthesis = self.config, self.trainer, self.synthesis
        loader = TrainingLoader(
            *self.train,
            config.optim.batch_size,
            training_preprocess(config),
            config.seed,
            epoch=lambda: trainer.current_epoch,
            steps=config.budget.steps,
            rank=trainer.global_rank,
            processes=trainer.world_size,
            joined=has_batch_norm(trainer.lightning_module),
            draw=partial(synthesis.training, self._digits(self.train), config.data.size) if synthesis else None,
            side=config.data.size,
        )
        return self._grouped(loader)

    def val_dataloader(self) -> BatchGroups:
        return self._evaluation(self.evaluated)

    def test_dataloader(self) -> BatchGroups:
        return self._evaluation(self.test)

    def _evaluation(self, split: Split) -> BatchGroups:
        rank, processes = self.trainer.global_rank, self.trainer.world_size
        return self._grouped(DeviceLoader(*split, self.config.trainer.eval_batch_size, rank=rank, processes=processes))

    def _grouped(self, loader: DeviceLoader) -> BatchGroups:
        batch = 4 * loader.batch_size * self.config.data.channels * self.config.data.size**2
        default = max(1, min(STEPS_AT_ONCE, MAX_GROUP // batch)) if loader.labels.is_cuda else 1
        return BatchGroups(loader, self.config.trainer.steps_at_once or default)

    def _digits(self, split: Split) -> Digits:
        return Digits(*split, self.config.data.classes)


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules())


def constant_guess(labels: Tensor) -> float:
    """max N(l) / N over the labels l, [N] or [N, J]: the accuracy, in percent, of one guess for all images."""
    _, counts = torch.unique(labels, dim=0, return_counts=True)
    return round(100 * counts.max().item() / len(labels), 5)


def test_split(images: ImageSet, config: Config) -> Split:
    """The images and labels that a run is tested on; raises InputError if it asks for more than the set has."""
    _check_count("budget.test_images", config.budget.test_images, len(images.test_labels), "test images", config)
    split, synthesis = (images.test_images, images.test_labels), config.data.synthesis
    if synthesis is not None:
        split = synthesis.make().test(Digits(*split, config.data.classes), config.data.size)
    first = _first(split[1], config.budget.test_images, config.data.path is not None)
    return split[0][first], split[1][first]


def heldout_split(
    count: int, seed: int, labels: Tensor | None = None, groups: NDArray[np.int64] | None = None
) -> tuple[Tensor, Tensor]:
    """The indices of nine tenths of `count` images, and of the held-out tenth; both follow from the seed.

    With labels [count], a tenth of each class is held out; with groups [count], whole ones.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(derived_seed(seed, count)))
    held = max(1, round(HELDOUT_FRACTION * count))
    if labels is None:
        return order[held:].sort().values, order[:held].sort().values
    drawn = torch.from_numpy(part_of_each(labels.numpy(), order.numpy(), held, groups))
    return torch.from_numpy(np.setdiff1d(order.numpy(), drawn.numpy())), drawn


def _check_counts(images: ImageSet, config: Config) -> None:
    """Raises InputError for more images or classes than the set has."""
    train, test = len(images.train_labels), len(images.test_labels)
    if train == images.validation:
        raise InputError(f"data.path={config.data.path}: no training images; capsexp evaluate RUN takes test images")
    classes = 1 + max(int(labels.max()) for labels in (images.train_labels, images.test_labels))
    heldout = config.protocol == "heldout"
    trained = train - (images.validation if heldout else 0)
    _check_count("budget.train_images", config.budget.train_images, trained, "training images", config)
    _check_count("budget.test_images", config.budget.test_images, test, "test images", config)
    if config.data.path is None:  # of one's own images, the batch has at most all, before damaged ones are left out
        _check_count("optim.batch_size", config.optim.batch_size, train, "training images", config)
    _check_count("data.classes", config.data.classes, classes, "classes", config)
    if heldout and not images.validation and min(train, config.budget.train_images or train) < 2:
        raise InputError("protocol=heldout: needs two training images at least, one to train and one held out")


def _check_count(key: str, asked: int | None, count: int, what: str, config: Config) -> None:
    if asked is not None and asked > count:
        raise InputError(f"{key}={asked}: {config.data.name} has {count:,} {what}")


def _first(labels: Tensor, count: int | None, own: bool) -> Tensor | slice:
    """The indices of the first images, or of so many at random where they are listed class by class; always the same.

    Of somebody's own images, as many of each class as its part of all.
    """
    followers = int((labels[1:] == labels[:-1]).sum())  # of an image of the same class
    if count is None or count >= len(labels) or labels.ndim > 1 or not (own or followers > 0.75 * len(labels)):
        return slice(count)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    order = torch.from_numpy(in_proportion(labels.numpy(), order.numpy())) if own else order
    return order[:count].sort().values


def _on(device: torch.device, split: Split) -> Split:
    return split[0].to(device), split[1].to(device)

"""A data set as Lightning wants it: loaders over device-resident splits."""

import dataclasses

import pytorch_lightning as pl
import torch
from torch import Tensor

from capsexp.config import Config, Preprocess
from capsexp.data.loader import DeviceLoader, TrainingLoader, derived_seed
from capsexp.data.source import ImageSet

HELDOUT_FRACTION = 0.1


class CapsuleData(pl.LightningDataModule):
    """Training batches, and each epoch's evaluation: the test set (protocol paper) or the held-out tenth."""

    def __init__(self, images: ImageSet, config: Config) -> None:
        super().__init__()
        self.images = images
        self.config = config

    def setup(self, stage: str) -> None:
        """Moves the splits to the device that trains."""
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        budget = self.config.budget
        train = _first(self.images.train_images, self.images.train_labels, budget.train_images)
        test = _first(self.images.test_images, self.images.test_labels, budget.test_images)
        self.test = _on(device, test)
        self.train, self.heldout = _on(device, train), None
        if self.config.protocol == "heldout":
            kept, held = heldout_split(len(train[1]), self.config.seed)
            self.heldout = _on(device, (train[0][held], train[1][held]))
            self.train = _on(device, (train[0][kept], train[1][kept]))

    def train_dataloader(self) -> TrainingLoader:
        """An epoch of training batches."""
        config = self.config
        trainer = self.trainer
        assert trainer is not None
        return TrainingLoader(
            *self.train,
            config.optim.batch_size,
            training_preprocess(config),
            config.seed,
            lambda: trainer.current_epoch,
            config.budget.steps,
        )

    def val_dataloader(self) -> DeviceLoader:
        """What is evaluated after each epoch."""
        return DeviceLoader(*(self.heldout or self.test), self.config.trainer.eval_batch_size)

    def test_dataloader(self) -> DeviceLoader:
        """The test set."""
        return DeviceLoader(*self.test, self.config.trainer.eval_batch_size)


def training_preprocess(config: Config) -> Preprocess:
    """What happens to training images: nothing is mirrored whose mirror image means something else."""
    return dataclasses.replace(config.preprocess, flip=config.preprocess.flip and config.data.flips)


def heldout_split(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The indices of nine tenths of `count` images, and of the other tenth; a function of the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(derived_seed(seed, count)))
    held = max(1, round(HELDOUT_FRACTION * count))
    return order[held:].sort().values, order[:held].sort().values


def _first(images: Tensor, labels: Tensor, count: int | None) -> tuple[Tensor, Tensor]:
    return images[:count], labels[:count]


def _on(device: torch.device, split: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return split[0].to(device), split[1].to(device)

"""A data set as Lightning wants it: loaders over device-resident splits."""

import dataclasses

import pytorch_lightning as pl
import torch
from torch import Tensor

from capsexp.config.schema import Config, Preprocess
from capsexp.data.loader import DeviceLoader, Part, Several, SynthesisLoader, TrainingLoader, derived_seed
from capsexp.data.source import ImageSet
from capsexp.data.synthesis import Digits, make_synthesis
from capsexp.errors import InputError

HELDOUT_FRACTION = 0.1
STEPS_AT_ONCE = 25  # on a GPU, where Lightning's work around a step takes as long as the step

Split = tuple[Tensor, Tensor]  # images, labels


class CapsuleData(pl.LightningDataModule):
    """Training batches, and each epoch's evaluation: the test set (protocol paper) or the held-out tenth."""

    def __init__(self, images: ImageSet, config: Config) -> None:
        """Raises InputError where the data set's synthesis can't use these images."""
        super().__init__()
        self.images = images
        self.config = config
        self.synthesis = make_synthesis(config.data)
        side = images.train_images.shape[-1]
        if self.synthesis is not None and config.data.size < side:
            raise InputError(f"data.size={config.data.size}: must be at least {side}, the side of the digits' images")

    def setup(self, stage: str) -> None:
        """Moves the splits to the device that trains."""
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        budget = self.config.budget
        train = _first((self.images.train_images, self.images.train_labels), budget.train_images)
        heldout = None
        if self.config.protocol == "heldout":
            kept, held = heldout_split(len(train[1]), self.config.seed)
            train, heldout = (train[0][kept], train[1][kept]), (train[0][held], train[1][held])
        if self.synthesis is not None:
            # The digits were split before: no image shows one of another split.
            heldout = heldout and self.synthesis.heldout(self._digits(heldout), self.config.data.size)
        self.train, self.test = _on(device, train), _on(device, test_split(self.images, self.config))
        self.heldout = heldout and _on(device, heldout)

    def train_dataloader(self) -> Several:
        """An epoch of training batches."""
        config = self.config
        trainer = self.trainer
        assert trainer is not None
        preprocess, steps = training_preprocess(config), config.budget.steps
        rest = config.optim.batch_size, preprocess, config.seed, lambda: trainer.current_epoch, steps, self._part()
        if self.synthesis is None:
            images, labels = self.train
            return self._several(TrainingLoader(images, labels, *rest))
        return self._several(SynthesisLoader(self.synthesis, self._digits(self.train), config.data.size, *rest))

    def val_dataloader(self) -> Several:
        """What is evaluated after each epoch."""
        return self._several(self._evaluation(self.heldout or self.test))

    def test_dataloader(self) -> Several:
        """The test set."""
        return self._several(self._evaluation(self.test))

    def _evaluation(self, split: Split) -> DeviceLoader:
        return DeviceLoader(*split, self.config.trainer.eval_batch_size, part=self._part())

    def _several(self, loader: DeviceLoader) -> Several:
        usual = STEPS_AT_ONCE if loader.labels.is_cuda else 1
        return Several(loader, self.config.trainer.steps_at_once or usual)

    def _part(self) -> Part:
        assert self.trainer is not None
        return Part(self.trainer.global_rank, self.trainer.world_size)

    def _digits(self, split: Split) -> Digits:
        return Digits(*split, self.config.data.classes)


def test_split(images: ImageSet, config: Config) -> Split:
    """What a run is tested on."""
    split, synthesis = (images.test_images, images.test_labels), make_synthesis(config.data)
    if synthesis is not None:
        split = synthesis.test(Digits(*split, config.data.classes), config.data.size)
    return _first(split, config.budget.test_images)


def training_preprocess(config: Config) -> Preprocess:
    """What happens to training images: nothing is mirrored whose mirror image means something else."""
    return dataclasses.replace(config.preprocess, flip=config.preprocess.flip and config.data.flips)


def heldout_split(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The indices of nine tenths of `count` images, and of the other tenth; a function of the seed."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(derived_seed(seed, count)))
    held = max(1, round(HELDOUT_FRACTION * count))
    return order[held:].sort().values, order[:held].sort().values


def _first(split: Split, count: int | None) -> Split:
    return split[0][:count], split[1][:count]


def _on(device: torch.device, split: Split) -> Split:
    return split[0].to(device), split[1].to(device)

"""Batches of a split that is stored on the device as uint8, and shuffled, shifted and mirrored there."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsexp.config.schema import Preprocess
from capsexp.data.synthesis import DrawEpoch
from capsexp.errors import InputError


class Batch(NamedTuple):
    """What a loader yields."""

    pixels: Tensor  # between 0 and 1, [B, channels, H, W] float32
    labels: Tensor  # [B] int64, or multi-hot [B, J]
    weight: float = 1.0  # of the loss's gradient: a process's images over an equal part of the batch's


def derived_seed(*parts: int) -> int:
    """A seed that is a hash of all parts and of their order."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


class ProcessSlice(NamedTuple):
    """A process's images of each batch: every `processes`-th, from `rank` on."""

    rank: int
    processes: int


SINGLE_PROCESS = ProcessSlice(0, 1)


class DeviceLoader:
    """Yields the batches of an epoch in the order of the images.

    Args:
        images: [N, channels, H, W] uint8, on the device that computes.
        labels: [N] int64, on the same device; or multi-hot [N, J].
        batch_size: B, of all processes together; the last batch of an epoch may be smaller.
        steps: the number of batches; None for all.
        process: which images of each batch are yielded.

    Raises InputError when a batch has fewer images than there are processes.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        steps: int | None = None,
        process: ProcessSlice = SINGLE_PROCESS,
    ) -> None:
        self.images, self.labels = images, labels
        self.batch_size, self.process = batch_size, process
        batches = -(-len(labels) // batch_size)
        self.steps = batches if steps is None else min(steps, batches)
        smallest = min(self._images(0), self._images(self.steps - 1))
        if smallest < process.processes:
            raise InputError(
                f"torchrun: {process.processes} processes: the smallest batch has fewer images ({smallest})"
            )

    @property
    def epoch_images(self) -> int:
        """The number of images in an epoch: of a trial, those of its steps."""
        return min(len(self.labels), self.steps * self.batch_size)

    def _images(self, step: int) -> int:
        """The number of images in a step's batch, of all processes together."""
        return min(self.batch_size, len(self.labels) - step * self.batch_size)

    def _weight(self, step: int, own: int) -> float:
        """The loss weight of this process, with `own` images in the step's batch."""
        return own * self.process.processes / self._images(step)

    def _own(self, step: int, rank: int | None = None) -> slice:
        """The indices of a process's images in a step, in the order of the epoch; by default of this process."""
        rank = self.process.rank if rank is None else rank
        return slice(step * self.batch_size + rank, (step + 1) * self.batch_size, self.process.processes)

    def in_order(self, values: Tensor) -> Tensor:
        """A value an image, [N], in the order of the images, from those of one process after the other."""
        images = torch.arange(len(self.labels), device=values.device)
        parts = [images[self._own(step, rank)] for rank in range(self.process.processes) for step in range(self.steps)]
        return torch.empty_like(values).index_copy_(0, torch.cat(parts), values)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        for step in range(self.steps):
            labels = self.labels[self._own(step)]
            yield Batch(self.images[self._own(step)].float() / 255, labels, self._weight(step, len(labels)))


class TrainingLoader(DeviceLoader):
    """A DeviceLoader in a new random order in each epoch, with random shifts and mirrorings.

    The random numbers of epoch n follow from (seed, n) alone, so that a resumed run has the batches of an uninterrupted
    one.

    Args:
        images, labels, batch_size, steps, process: as in DeviceLoader; an epoch has as many images as there are labels.
        preprocess: shift, crop_padding, flip, fill.
        seed: the run's.
        epoch: returns the index of the current epoch, from 0.
        draw: synthesises an epoch's images; None: they are `images` in every epoch.
        side: of the images that `draw` gives, in pixels.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        preprocess: Preprocess,
        seed: int,
        epoch: Callable[[], int],
        steps: int | None = None,
        process: ProcessSlice = SINGLE_PROCESS,
        draw: DrawEpoch | None = None,
        side: int | None = None,
    ) -> None:
        super().__init__(images, labels, batch_size, steps, process)
        self.preprocess, self.seed, self.epoch = preprocess, seed, epoch
        self.draw, self.side = draw, side or images.shape[-1]

    def __iter__(self) -> Iterator[Batch]:
        device, count = self.labels.device, len(self.labels)
        generator = torch.Generator(device).manual_seed(derived_seed(self.seed, self.epoch()))
        # A crop out of an image padded with p pixels is a shift by at most p pixels.
        reach = self.preprocess.crop_padding + round(self.preprocess.shift * self.side)
        flip = self.preprocess.flip
        order = torch.randperm(count, generator=generator, device=device)
        shifts = torch.randint(-reach, reach + 1, (count, 2), generator=generator, device=device)
        mirrored = torch.rand(count, generator=generator, device=device) < (0.5 if flip else 0.0)
        drawn = self.draw(generator) if self.draw else lambda chosen: (self.images[chosen], self.labels[chosen])
        for step in range(self.steps):
            chosen = order[self._own(step)]
            images, labels = drawn(chosen)
            if reach or flip:
                images = moved(images, shifts[chosen], mirrored[chosen], self.preprocess.fill)
            yield Batch(images.float() / 255, labels, self._weight(step, len(labels)))


class BatchGroups:
    """The batches of a loader in lists of `size`; the last may be shorter."""

    def __init__(self, loader: DeviceLoader, size: int) -> None:
        self.loader, self.size = loader, size

    def __len__(self) -> int:
        return math.ceil(len(self.loader) / self.size)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self.loader)
        while group := list(islice(batches, self.size)):
            yield group


def moved(images: Tensor, shifts: Tensor, mirrored: Tensor, fill: Literal["zeros", "nearest"] = "zeros") -> Tensor:
    """Each image shifted by its own (down, right), then mirrored left to right if `mirrored`.

    [B, channels, H, W], [B, 2] whole numbers of pixels, [B] bool -> [B, channels, H, W]. Pixels from outside the image
    are zeros or the nearest pixel, according to `fill`.
    """
    height, width = images.shape[-2:]
    rows = torch.arange(height, device=images.device) - shifts[:, :1]
    columns = torch.arange(width, device=images.device).expand(len(images), -1)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns) - shifts[:, 1:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    rows, columns = rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]
    shifted = images[batch, :, rows, columns].movedim(-1, 1)
    return shifted if fill == "nearest" else shifted * inside[:, None]

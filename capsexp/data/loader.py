"""Batches of a split that lives whole on the device as uint8; shuffled, moved and mirrored there."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsexp.config.schema import Preprocess
from capsexp.data.synthesis import Digits, Epoch, Synthesis
from capsexp.errors import InputError


class Batch(NamedTuple):
    """What a loader yields."""

    pixels: Tensor  # between 0 and 1, [B, channels, H, W] float32
    labels: Tensor  # [B] int64, or sets [B, J] of 0 and 1
    weight: float = 1.0  # of the loss's gradient: a process's images over an equal part of the batch's


def derived_seed(*parts: int) -> int:
    """A seed that depends on all parts and resembles none of them, so that (0, 1) and (1, 0) differ."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


class Part(NamedTuple):
    """What a process gets of each batch: every `of`-th image, from `rank` on."""

    rank: int
    of: int


WHOLE = Part(0, 1)


class DeviceLoader:
    """Yields batches, or this process's part of each: see `Batch`.

    Args:
        images: [N, channels, H, W] uint8, on the device that computes.
        labels: [N] int64, there too; or [N, J] of 0 and 1.
        batch_size: B; the last batch of an epoch may be smaller.
        steps: stop after so many batches; None takes all.
        part: of each batch.

    Raises InputError when a batch has fewer images than there are processes.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, batch_size: int, steps: int | None = None, part: Part = WHOLE
    ) -> None:
        self.images, self.labels = images, labels
        self.batch_size, self.part = batch_size, part
        batches = -(-len(labels) // batch_size)
        self.steps = batches if steps is None else min(steps, batches)
        smallest = min(self._images(0), self._images(self.steps - 1))
        if smallest < part.of:
            raise InputError(f"trainer.processes={part.of}: the smallest batch has fewer images ({smallest})")

    def _images(self, step: int) -> int:
        """How many the whole batch of a step has."""
        return min(self.batch_size, len(self.labels) - step * self.batch_size)

    def _share(self, step: int, own: int) -> float:
        return own * self.part.of / self._images(step)

    def _own(self, step: int) -> slice:
        """Where the step's images for this process are, in the order of the epoch."""
        return slice(step * self.batch_size + self.part.rank, (step + 1) * self.batch_size, self.part.of)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        for step in range(self.steps):
            labels = self.labels[self._own(step)]
            yield Batch(self.images[self._own(step)].float() / 255, labels, self._share(step, len(labels)))


class TrainingLoader(DeviceLoader):
    """A DeviceLoader in a fresh order each epoch, with random shifts and mirrorings.

    Epoch n draws from (seed, n) alone: a run that goes on at epoch n sees what an uninterrupted one sees.

    Args:
        preprocess: shift, crop_padding, flip, fill.
        seed: the run's.
        epoch: says which epoch it is; 0 is the first.
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
        part: Part = WHOLE,
    ) -> None:
        super().__init__(images, labels, batch_size, steps, part)
        self.side = images.shape[-1]
        self.preprocess = preprocess
        self.seed, self.epoch = seed, epoch

    def draw(self, generator: torch.Generator) -> Epoch:
        """What gives an epoch's images: here they are the same in all."""
        return lambda chosen: (self.images[chosen], self.labels[chosen])

    def __iter__(self) -> Iterator[Batch]:
        device, count = self.labels.device, len(self.labels)
        generator = torch.Generator(device).manual_seed(derived_seed(self.seed, self.epoch()))
        # A crop out of an image padded with p pixels is a shift by at most p pixels.
        reach = self.preprocess.crop_padding + round(self.preprocess.shift * self.side)
        flip = self.preprocess.flip
        order = torch.randperm(count, generator=generator, device=device)
        shifts = torch.randint(-reach, reach + 1, (count, 2), generator=generator, device=device)
        mirrored = torch.rand(count, generator=generator, device=device) < (0.5 if flip else 0.0)
        batch = self.draw(generator)
        for step in range(self.steps):
            chosen = order[self._own(step)]
            images, labels = batch(chosen)
            if reach or flip:
                images = moved(images, shifts[chosen], mirrored[chosen], self.preprocess.fill)
            yield Batch(images.float() / 255, labels, self._share(step, len(labels)))


class SynthesisLoader(TrainingLoader):
    """A TrainingLoader whose images are drawn anew in each epoch, by a synthesis; see there.

    Args:
        digits: what the images are made from, on the device that computes; an epoch has as many images.
        size: pixels a side of the images.
    """

    def __init__(
        self,
        synthesis: Synthesis,
        digits: Digits,
        size: int,
        batch_size: int,
        preprocess: Preprocess,
        seed: int,
        epoch: Callable[[], int],
        steps: int | None = None,
        part: Part = WHOLE,
    ) -> None:
        super().__init__(digits.images, digits.labels, batch_size, preprocess, seed, epoch, steps, part)
        self.side = size
        self.drawing = synthesis.training(digits, size)

    def draw(self, generator: torch.Generator) -> Epoch:
        """Other images for each state of the generator."""
        return self.drawing(generator)


class Several:
    """So many batches of a loader at a time, in a list."""

    def __init__(self, loader: DeviceLoader, size: int) -> None:
        self.loader, self.size = loader, size

    def __len__(self) -> int:
        return math.ceil(len(self.loader) / self.size)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self.loader)
        while some := list(islice(batches, self.size)):
            yield some


def moved(images: Tensor, shifts: Tensor, mirrored: Tensor, fill: Literal["zeros", "nearest"] = "zeros") -> Tensor:
    """Each image shifted by its own (down, right), then mirrored left to right where asked.

    [B, channels, H, W], [B, 2] whole numbers of pixels, [B] bool -> [B, channels, H, W]. `fill` says what moves in.
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

"""Batches of a split that lives whole on the device as uint8; shuffled, moved and mirrored there."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from capsexp.config import Preprocess
from capsexp.data.synthesis import Digits, Epoch, Synthesis


def derived_seed(*parts: int) -> int:
    """A seed that depends on all parts and resembles none of them, so that (0, 1) and (1, 0) differ."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


class DeviceLoader:
    """Yields (pixels, labels): pixels between 0 and 1, [B, channels, H, W] float32; labels [B] int64, or sets [B, J].

    Args:
        images: [N, channels, H, W] uint8, on the device that computes.
        labels: [N] int64, there too; or [N, J] of 0 and 1.
        batch_size: B; the last batch of an epoch may be smaller.
        steps: stop after so many batches; None takes all.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch_size: int, steps: int | None = None) -> None:
        self.images, self.labels = images, labels
        self.batch_size = batch_size
        batches = -(-len(labels) // batch_size)
        self.steps = batches if steps is None else min(steps, batches)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for step in range(self.steps):
            chosen = slice(step * self.batch_size, (step + 1) * self.batch_size)
            yield self.images[chosen].float() / 255, self.labels[chosen]


class TrainingLoader(DeviceLoader):
    """A DeviceLoader in a fresh order each epoch, with random shifts and mirrorings.

    Epoch n draws from (seed, n) alone: a run that goes on at epoch n sees what an uninterrupted one sees.

    Args:
        preprocess: shift, crop_padding, flip.
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
    ) -> None:
        super().__init__(images, labels, batch_size, steps)
        self.side = images.shape[-1]
        self.preprocess = preprocess
        self.seed, self.epoch = seed, epoch

    def draw(self, generator: torch.Generator) -> Epoch:
        """What gives an epoch's images: here they are the same in all."""
        return lambda chosen: (self.images[chosen], self.labels[chosen])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device, count = self.labels.device, len(self.labels)
        generator = torch.Generator(device).manual_seed(derived_seed(self.seed, self.epoch()))
        # A crop out of an image padded with p zeros is a shift by at most p pixels, where zeros move in.
        reach = self.preprocess.crop_padding + round(self.preprocess.shift * self.side)
        flip = self.preprocess.flip
        order = torch.randperm(count, generator=generator, device=device)
        shifts = torch.randint(-reach, reach + 1, (count, 2), generator=generator, device=device)
        mirrored = torch.rand(count, generator=generator, device=device) < (0.5 if flip else 0.0)
        batch = self.draw(generator)
        for step in range(self.steps):
            chosen = order[step * self.batch_size : (step + 1) * self.batch_size]
            images, labels = batch(chosen)
            if reach or flip:
                images = moved(images, shifts[chosen], mirrored[chosen])
            yield images.float() / 255, labels


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
    ) -> None:
        super().__init__(digits.images, digits.labels, batch_size, preprocess, seed, epoch, steps)
        self.side = size
        self.drawing = synthesis.training(digits, size)

    def draw(self, generator: torch.Generator) -> Epoch:
        """Other images for each state of the generator."""
        return self.drawing(generator)


def moved(images: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
    """Each image shifted by its own (down, right), zeros moving in, then mirrored left to right where asked.

    [B, channels, H, W], [B, 2] whole numbers of pixels, [B] bool -> [B, channels, H, W].
    """
    height, width = images.shape[-2:]
    rows = torch.arange(height, device=images.device) - shifts[:, :1]
    columns = torch.arange(width, device=images.device).expand(len(images), -1)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns) - shifts[:, 1:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    rows, columns = rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]
    return images[batch, :, rows, columns].movedim(-1, 1) * inside[:, None]

"""Batches of a split that is stored on the device as uint8, and shuffled and augmented there."""

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capsexp.config.schema import Preprocess
from capsexp.data.synthesis import ImagesAt
from capsexp.errors import InputError


class Batch(NamedTuple):
    """What a loader yields."""

    pixels: Tensor  # between 0 and 1, [B, channels, H, W] float32
    labels: Tensor  # [B] int64, or multi-hot [B, J]
    weight: float = 1.0  # of the loss's gradient: the process's share of the batch times the number of processes


def derived_seed(*parts: int) -> int:
    """A seed that is a hash of all parts and of their order."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


@dataclass(eq=False)
class DeviceLoader:
    """The batches of an epoch in the order of the images; raises InputError for fewer images in one than processes."""

    images: Tensor  # [N, channels, H, W] uint8, on the device that computes
    labels: Tensor  # [N] int64, on the same device; or multi-hot [N, J]
    batch_size: int  # B, of all processes together; the last batch of an epoch may be smaller
    _: KW_ONLY
    steps: int | None = None  # the greatest number of batches
    rank: int = 0  # of each batch, every `processes`-th image from this one on is yielded
    processes: int = 1
    joined: bool = False  # a last batch of one image is a part of the one before: batch normalisation needs two

    def __post_init__(self) -> None:
        smallest = min(end - begin for begin, end in self._bounds)
        if smallest < self.processes:
            raise InputError(f"torchrun: {self.processes} processes: the smallest batch has fewer images ({smallest})")

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """The indices of each batch's first image and after its last one, of all processes together."""
        count = len(self.labels)
        begins = list(range(0, count, self.batch_size))
        if self.joined and begins[-1] == count - 1 and self.batch_size > 1:
            begins = begins[:-1] or begins
        return list(pairwise([*begins, count]))[: self.steps]

    @property
    def epoch_images(self) -> int:
        """The number of images in an epoch: of a trial, those of its steps."""
        return self._bounds[-1][1]

    def _own(self, rank: int) -> list[slice]:
        """The indices of a process's images in each batch, in the order of the epoch."""
        return [slice(begin + rank, end, self.processes) for begin, end in self._bounds]

    def _batches(self, images_at: Callable[[slice], tuple[Tensor, Tensor]]) -> Iterator[Batch]:
        """This process's parts of the batches."""
        for own, (begin, end) in zip(self._own(self.rank), self._bounds, strict=True):
            images, labels = images_at(own)
            yield Batch(images.float() / 255, labels, len(labels) * self.processes / (end - begin))

    def in_order(self, values: Tensor) -> Tensor:
        """A value an image, [N], in the order of the images, from those of one process after the other."""
        images = torch.arange(len(self.labels), device=values.device)
        parts = [images[own] for rank in range(self.processes) for own in self._own(rank)]
        return torch.empty_like(values).index_copy_(0, torch.cat(parts), values)

    def __len__(self) -> int:
        return len(self._bounds)

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(lambda own: (self.images[own], self.labels[own]))


@dataclass(eq=False)
class TrainingLoader(DeviceLoader):
    """A DeviceLoader in a new random order in each epoch, with random augmentation.

    The random numbers of epoch n follow from (seed, n) alone: a resumed run has the batches of an uninterrupted one.
    """

    preprocess: Preprocess  # all but `normalize`
    seed: int
    epoch: Callable[[], int]  # the index of the current epoch, from 0
    draw: Callable[[torch.Generator], ImagesAt] | None = None  # an epoch's images; None: they are always `images`
    side: int | None = None  # of the images that `draw` gives, in pixels

    def __iter__(self) -> Iterator[Batch]:
        device, count = self.labels.device, len(self.labels)
        generator = torch.Generator(device).manual_seed(derived_seed(self.seed, self.epoch()))
        order = torch.randperm(count, generator=generator, device=device)
        if self.preprocess.balance:
            order = balanced(order, self.labels)[torch.randperm(count, generator=generator, device=device)]
        augmented = Augmentation(self.preprocess, count, self.side or self.images.shape[-1], generator)
        drawn = self.draw(generator) if self.draw else lambda chosen: (self.images[chosen], self.labels[chosen])

        def images_at(own: slice) -> tuple[Tensor, Tensor]:
            images, labels = drawn(order[own])
            changes = own if self.preprocess.balance else order[own]  # an image drawn twice is changed twice
            return augmented(images, changes), labels

        return self._batches(images_at)


class Augmentation:
    """An epoch's random changes of each image: rotation and squeeze, then shift and mirroring, then erasure.

    conf/preprocess/plain.yaml says what each option does. What the options leave out is not drawn, but for shifts and
    mirrorings, so that runs without it keep their numbers. The generator is on the images' device.
    """

    def __init__(self, preprocess: Preprocess, count: int, side: int, generator: torch.Generator) -> None:
        self.options, device = preprocess, generator.device
        # A crop out of an image padded with p pixels is a shift by at most p pixels.
        reach = preprocess.crop_padding + round(preprocess.shift * side)
        self.moves = bool(reach or preprocess.flip or preprocess.margins)
        self.shifts = torch.randint(-reach, reach + 1, (count, 2), generator=generator, device=device)
        self.mirrored = torch.rand(count, generator=generator, device=device) < (0.5 if preprocess.flip else 0.0)
        if preprocess.rotate or preprocess.squeeze or preprocess.margins:
            draws = torch.randn(count, 5, generator=generator, device=device, dtype=torch.float32) / 3
            self.angle, self.turns, self.narrowing, *within = draws.clamp(-0.9999, 0.9999).unbind(dim=1)
            self.within = torch.stack(within, dim=1)
        if preprocess.erase:
            corners = (count, 2)
            self.corners = torch.randint(side - preprocess.erase + 1, corners, generator=generator, device=device)

    def __call__(self, images: Tensor, chosen: Tensor | slice) -> Tensor:
        """The epoch's images of these numbers, changed: [B, channels, H, W], from 0 to 255 like the images."""
        options = self.options
        if options.rotate or options.squeeze:
            degrees = options.rotate * self.angle[chosen] * (self.turns[chosen] > 0)
            images = warped(images, degrees, 1 - options.squeeze * self.narrowing[chosen].abs(), options.fill)
        if self.moves:
            shifts = self.shifts[chosen]
            if options.margins:
                shifts = shifts + shifts_within(images, self.within[chosen])
            images = moved(images, shifts, self.mirrored[chosen], options.fill)
        return erased(images, self.corners[chosen], options.erase) if options.erase else images


@dataclass(eq=False)
class BatchGroups:
    """The batches of a loader in lists of `size`; the last may be shorter."""

    loader: DeviceLoader
    size: int

    def __len__(self) -> int:
        return math.ceil(len(self.loader) / self.size)

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self.loader)
        while group := list(islice(batches, self.size)):
            yield group


def balanced(order: Tensor, labels: Tensor) -> Tensor:
    """An epoch's images with equally many of each class that there is, in turns: [N], labels [N] -> [N].

    Of each class the first in `order`; of a class with fewer than are needed all, and then again.
    """
    counts = labels.bincount()
    present = counts.nonzero().flatten()
    by_class = order[labels[order].argsort(stable=True)]
    turns = torch.arange(len(order), device=order.device)
    drawn = present[turns % len(present)]
    return by_class[(counts.cumsum(0) - counts)[drawn] + turns // len(present) % counts[drawn]]


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


def warped(images: Tensor, degrees: Tensor, widths: Tensor, fill: Literal["zeros", "nearest"] = "zeros") -> Tensor:
    """Each image turned anticlockwise about its centre, then scaled horizontally, by bilinear interpolation.

    [B, channels, side, side], [B], [B] factors -> [B, channels, side, side] float32. Pixels from outside the image are
    as in `moved`.
    """
    cosine, sine = degrees.deg2rad().cos(), degrees.deg2rad().sin()
    rows = torch.stack([cosine / widths, -sine]), torch.stack([sine / widths, cosine])
    inverse = functional.pad(torch.stack(rows).permute(2, 0, 1), (0, 1))  # [B, 2, 3]: to where a pixel comes from
    places = functional.affine_grid(inverse, list(images.shape), align_corners=False)
    outside = "zeros" if fill == "zeros" else "border"
    return functional.grid_sample(images.float(), places, padding_mode=outside, align_corners=False)


def shifts_within(images: Tensor, fractions: Tensor) -> Tensor:
    """(down, right) in whole pixels: fractions of the margins of zeros, so that nothing else leaves the image.

    [B, channels, H, W], [B, 2] between −1 and 1 -> [B, 2].
    """
    filled = (images > 0).any(dim=1)
    lines = filled.any(dim=2), filled.any(dim=1)  # rows and columns that aren't empty
    before = torch.stack([line.int().argmax(dim=1) for line in lines], dim=1)
    after = torch.stack([line.flip(1).int().argmax(dim=1) for line in lines], dim=1)
    return (fractions * (1 + torch.where(fractions > 0, after, before))).trunc().long()


def erased(images: Tensor, corners: Tensor, side: int) -> Tensor:
    """Each image with zeros in a square, from its (row, column) on: [B, channels, H, W], [B, 2] -> the same shape."""
    offsets = [
        torch.arange(size, device=images.device) - corners[:, at, None] for at, size in enumerate(images.shape[2:])
    ]
    rows, columns = ((offset >= 0) & (offset < side) for offset in offsets)
    return images * ~(rows[:, :, None] & columns[:, None, :])[:, None]

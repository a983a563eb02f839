"""Data sets synthesised from the digits of another, which are stored on the device as uint8; batches are made there.

A synthesis is a class, named under `data.synthesis`; its keyword-only constructor parameters are its options. The
digits are those of `data.reader` in their own size; `data.size` is the side of the black canvas that they are placed
on. Training images are synthesised anew in each epoch. Evaluated images are synthesised once, on the CPU and from a
constant seed, so that all runs, with any seed and device, are evaluated on the same images.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Le, Lt
from torch import Generator, Tensor, nn

from capsexp import UnitInterval
from capsexp.errors import InputError
from capsexp.nn.losses import multi_hot

_CHUNK = 250  # images synthesised at a time, which fit a processor's cache
_SEED = 0  # of the evaluated images


class Digits(NamedTuple):
    """A split of the set that images are synthesised from."""

    images: Tensor  # [N, C, h, h] uint8
    labels: Tensor  # [N] int64
    classes: int  # J


#: The indices [B] of some of an epoch's images -> the images [B, C, size, size] uint8, and their labels.
ImagesAt = Callable[[Tensor], tuple[Tensor, Tensor]]


class Synthesis(ABC):
    """Base of all syntheses. An epoch has as many images as there are digits, and so has an evaluation."""

    #: Labels are multi-hot [B, J] in place of one class an image, [B].
    multilabel: bool = False

    @abstractmethod
    def training(self, digits: Digits, size: int, generator: Generator) -> ImagesAt:
        """An epoch of training images, drawn; the generator is on the digits' device.

        Raises InputError for digits that no image can be synthesised from.
        """

    def heldout(self, digits: Digits, size: int) -> tuple[Tensor, Tensor]:
        """Images [N, C, size, size] and labels of held-out digits, drawn as those of the training."""
        images_at = self.training(digits, size, torch.Generator().manual_seed(_SEED))
        images, labels = zip(*map(images_at, torch.split(torch.arange(len(digits.labels)), _CHUNK)), strict=True)
        return torch.cat(images), torch.cat(labels)

    def test(self, digits: Digits, size: int) -> tuple[Tensor, Tensor]:
        """Test images [N, C, size, size] and labels, of the test digits."""
        return self.heldout(digits, size)


@dataclass(kw_only=True)
class DiverseMultiMNIST(Synthesis):
    """One digit, or two of different classes, one over the other (tsai, B.2): min(a + b, 255).

    Each digit has its own random place on the canvas; 28×28 pixels on 36×36 are shifts by up to 4 pixels in each
    direction. An epoch is 60,000 new images, a "step" of the paper. The paper doesn't give the digits' distribution:
    here the first is uniform over all digits, the second over those of another class.
    """

    multilabel = True

    single: UnitInterval = 1 / 6  # the probability of one digit alone

    def training(self, digits: Digits, size: int, generator: Generator) -> ImagesAt:
        images, labels, count = digits.images, digits.labels, len(digits.labels)
        first = torch.randint(count, (count,), generator=generator, device=labels.device)
        second = of_other_classes(digits, first, generator)
        two = torch.rand(count, generator=generator, device=labels.device) >= self.single
        places = [draw_places(digits, size, generator) for _ in range(2)]

        def images_at(chosen: Tensor) -> tuple[Tensor, Tensor]:
            a, b, both = first[chosen], second[chosen], two[chosen]
            over = placed(images[b], places[1][chosen], size).mul_(both[:, None, None, None])
            sets = multi_hot(labels[a], digits.classes) + multi_hot(labels[b], digits.classes) * both[:, None]
            return overlaid(placed(images[a], places[0][chosen], size), over), sets

        return images_at


@dataclass(kw_only=True)
class AffineMNIST(Synthesis):
    """Train on shifted digits, test on digits under random affine maps (alberti; Sabour et al. 2017, section 5.2).

    Training: each digit once an epoch, its image anywhere on the canvas where it fits whole. Test: each digit once,
    under q = A p + t, bilinear, with A = rotation · shear · scale, and t such that all ink stays on the canvas. The
    parameters are uniform in their ranges, which are those that affNIST was made with.
    """

    rotation: Annotated[float, Ge(0), Le(180)] = 20.0  # greatest angle in degrees, to both sides
    shear: Annotated[float, Ge(0), Le(10)] = 0.2  # greatest shift in pixels to the right or left for each pixel down
    scale: Annotated[float, Ge(0), Lt(1)] = 0.2  # greatest relative change of length, independently in x and in y

    def training(self, digits: Digits, size: int, generator: Generator) -> ImagesAt:
        places = draw_places(digits, size, generator)
        return lambda chosen: (placed(digits.images[chosen], places[chosen], size), digits.labels[chosen])

    def test(self, digits: Digits, size: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(_SEED)
        images = [self.mapped(part, size, generator) for part in torch.split(digits.images, _CHUNK)]
        return torch.cat(images), digits.labels

    def mapped(self, images: Tensor, size: int, generator: Generator) -> Tensor:
        """Each image under its own random map: [B, C, h, h] -> [B, C, size, size], uint8."""
        maps = self.maps(len(images), generator)
        low, high = free_shifts(images, maps, size)
        fractions = torch.rand(len(images), 2, generator=generator, device=generator.device)
        return transformed(images, maps, torch.lerp(low, high, fractions), size)

    def maps(self, count: int, generator: Generator) -> Tensor:
        """Random A = rotation · (1 shear; 0 1) · diag(scales), [count, 2, 2], for columns (x to the right, y down)."""
        draws = 2 * torch.rand(count, 4, generator=generator, device=generator.device) - 1
        angles, shears = draws[:, 0] * math.radians(self.rotation), draws[:, 1] * self.shear
        cosines, sines = angles.cos(), angles.sin()  # from x to y: clockwise on the screen
        rows = [cosines, shears * cosines - sines, sines, shears * sines + cosines]
        return torch.stack(rows, dim=1).view(-1, 2, 2) * (1 + draws[:, 2:] * self.scale)[:, None, :]


def draw_places(digits: Digits, size: int, generator: Generator) -> Tensor:
    """Random rows and columns [N, 2] of the digits' upper left corners on a canvas, uniform over all places."""
    margin = size - digits.images.shape[-1]
    return torch.randint(margin + 1, (len(digits.labels), 2), generator=generator, device=digits.labels.device)


def placed(images: Tensor, places: Tensor, size: int) -> Tensor:
    """Images [B, C, h, h] on a black canvas, with their upper left corners at places [B, 2] -> [B, C, size, size]."""
    margin = size - images.shape[-1]
    windows = nn.functional.pad(images, [margin] * 4).unfold(2, size, 1).unfold(3, size, 1)  # all possible ones
    rows, columns = (margin - places).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, rows, columns]


def of_other_classes(digits: Digits, first: Tensor, generator: Generator) -> Tensor:
    """Indices [B] of digits -> indices [B] of digits of other classes, each drawn uniformly, without rejection.

    Raises InputError if all digits are of one class.
    """
    own, sizes = digits.labels[first], torch.bincount(digits.labels, minlength=digits.classes)
    if (sizes > 0).sum() < 2:
        raise InputError(f"data.synthesis: {len(digits.labels)} digits of one class make no pairs of two classes")
    by_class, begin, size = digits.labels.argsort(stable=True), (sizes.cumsum(0) - sizes)[own], sizes[own]
    fraction = torch.rand(len(first), generator=generator, device=first.device, dtype=torch.float64)
    place = (fraction * (len(by_class) - size)).long()  # among the others in order of class
    return by_class[torch.where(place < begin, place, place + size)]


def overlaid(a: Tensor, b: Tensor) -> Tensor:
    """min(a + b, 255) of two uint8 tensors, in uint8."""
    return a + torch.minimum(b, 255 - a)


def free_shifts(images: Tensor, maps: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The least and the greatest t, [B, 2] each as (x, y), that keep all ink of A p + t on a canvas of this side.

    p and q are in pixels from the centre of the image and of the canvas. In bilinear interpolation ink extends up to
    one pixel beyond its pixel in x and y; the image of this square under A is included. If a digit is larger than the
    canvas (none of MNIST's is, with the ranges of affNIST), the least t is above the greatest, and the digit is cut.
    Images [B, C, h, h] uint8, none of them empty; A [B, 2, 2].
    """
    empty, line = images.amax(dim=1, keepdim=True) == 0, centred(images.shape[-1], images.device)
    mapped = maps[:, :, :1, None] * line + maps[:, :, 1:, None] * line[:, None]  # the points' x and y, [B, 2, h, h]
    reach = maps.abs().sum(dim=2)
    low = mapped.masked_fill(empty, math.inf).amin(dim=(2, 3)) - reach
    high = mapped.masked_fill(empty, -math.inf).amax(dim=(2, 3)) + reach
    edge = (size + 1) / 2  # one pixel from the centre of the outermost pixel: there its bilinear weight is 0
    return -edge - low, edge - high


def transformed(images: Tensor, maps: Tensor, shifts: Tensor, size: int) -> Tensor:
    """The images with ink at p moved to q = A p + t, bilinear, rounded: [B, C, h, h] -> [B, C, size, size], uint8.

    A [B, 2, 2]; t [B, 2] as (x, y).
    """
    # p = A⁻¹ (q − t) for every pixel q: the terms of its column and of its row, [B, size, 2] each.
    inverse = torch.linalg.inv(maps)
    steps = (centred(size, images.device) - shifts[:, :, None])[..., None] * (2 / images.shape[-1])  # ±1: outer edges
    columns, rows = steps[:, 0] * inverse[:, None, :, 0], steps[:, 1] * inverse[:, None, :, 1]
    points = columns[:, None] + rows[:, :, None]
    sampled = nn.functional.grid_sample(images.float(), points, align_corners=False)
    return sampled.round().to(torch.uint8)


def centred(count: int, device: torch.device) -> Tensor:
    """The coordinates of the pixels of a side, from its centre: [count]."""
    return torch.arange(count, device=device) - (count - 1) / 2

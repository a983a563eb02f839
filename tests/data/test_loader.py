"""Batches: every image once an epoch, shifts and mirrorings by hand, reproducible from seed and epoch."""

import dataclasses
import math
from itertools import product
from typing import Any

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.config.schema import Preprocess, training_preprocess
from capsexp.data.loader import DeviceLoader, TrainingLoader, balanced, derived_seed, moved, shifts_within, warped
from capsexp.data.module import heldout_split
from capsexp.data.module import test_split as split_of
from capsexp.data.source import ImageSet

PLAIN = Preprocess(normalize=False, shift=0.0, crop_padding=0, flip=False)
MOVING = Preprocess(normalize=False, shift=0.1, crop_padding=2, flip=True)
IMAGES = torch.randint(0, 256, (50, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(50)


def epoch(preprocess: Preprocess, number: int = 0, seed: int = 0, batch_size: int = 8) -> tuple[Tensor, Tensor]:
    loader = TrainingLoader(IMAGES, LABELS, batch_size, preprocess, seed, lambda: number)
    batches = list(loader)
    assert len(batches) == len(loader)
    pixels, labels, _ = zip(*batches, strict=True)
    return torch.cat(pixels), torch.cat(labels)


def test_evaluation_covers_all_images_in_order() -> None:
    pixels, labels, _ = zip(*DeviceLoader(IMAGES, LABELS, 16), strict=True)
    assert [len(batch) for batch in labels] == [16, 16, 16, 2]
    torch.testing.assert_close(torch.cat(pixels), IMAGES / 255)
    assert torch.equal(torch.cat(labels), LABELS)


def test_two_processes_have_each_batch_between_them_and_weigh_their_parts() -> None:
    """In batches of nine and five images, one process has one more than the other."""
    loaders = [DeviceLoader(IMAGES, LABELS, 9, rank=rank, processes=2) for rank in range(2)]
    for batch, *parts in zip(DeviceLoader(IMAGES, LABELS, 9), *loaders, strict=True):
        assert sorted(torch.cat([part.labels for part in parts]).tolist()) == batch.labels.tolist()
        weighted = [part.weight * part.labels.double().mean().item() for part in parts]  # as of a mean loss
        assert sum(weighted) / 2 == pytest.approx(batch.labels.double().mean().item())
    every = torch.cat([part.labels for loader in loaders for part in loader])
    assert torch.equal(loaders[0].in_order(every), LABELS)


@pytest.mark.parametrize(("count", "sizes"), [(17, [8, 9]), (16, [8, 8]), (18, [8, 8, 2]), (9, [9]), (1, [1])])
def test_a_last_batch_of_one_image_joins_the_one_before(count: int, sizes: list[int]) -> None:
    images, labels = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1), torch.arange(count)
    loader = TrainingLoader(images, labels, 8, PLAIN, seed=0, epoch=lambda: 0, joined=True)
    batches = list(loader)
    assert ([len(batch.labels) for batch in batches], len(loader), loader.epoch_images) == (sizes, len(sizes), count)
    assert sorted(torch.cat([batch.labels for batch in batches]).tolist()) == labels.tolist()
    if count > 1:
        two = [list(dataclasses.replace(loader, rank=rank, processes=2)) for rank in (0, 1)]
        assert [len(a.labels) + len(b.labels) for a, b in zip(*two, strict=True)] == sizes


def test_an_epoch_has_every_image_once_with_its_label() -> None:
    pixels, labels = epoch(PLAIN)
    assert sorted(labels.tolist()) == list(range(50))
    assert labels.tolist() != list(range(50))
    torch.testing.assert_close(pixels, IMAGES[labels] / 255)


def test_randomness_follows_from_seed_and_epoch() -> None:
    whole = dataclasses.replace(MOVING, rotate=30.0, squeeze=0.25, margins=True, erase=4)
    first, again = epoch(whole, 3, seed=5), epoch(whole, 3, seed=5)
    assert all(map(torch.equal, first, again))
    assert torch.equal(first[1], epoch(PLAIN, 3, seed=5)[1])  # augmentation leaves the order as it is
    for other in (epoch(MOVING, 4, seed=5), epoch(MOVING, 3, seed=6), epoch(MOVING, 5, seed=3)):
        assert not torch.equal(first[1], other[1])
    assert len({derived_seed(seed, number) for seed in range(50) for number in range(50)}) == 2500


@pytest.mark.parametrize(("down", "right"), [(0, 0), (2, 0), (-3, 1), (0, 20), (19, -19)])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(("fill", "mode"), [("zeros", "constant"), ("nearest", "replicate")])
def test_moved_by_hand(down: int, right: int, mirrored: bool, fill: Any, mode: str) -> None:
    padded = torch.nn.functional.pad(IMAGES[:1], [20] * 4, mode)
    shifted = padded[..., 20 - down : 40 - down, 20 - right : 40 - right]
    expected = shifted.flip(-1) if mirrored else shifted
    assert torch.equal(moved(IMAGES[:1], torch.tensor([[down, right]]), torch.tensor([mirrored]), fill), expected)


EVERY = [*product(range(20), repeat=2)]


def augmented(white: list[tuple[int, int]], count: int = 4000, **options: Any) -> Tensor:
    """An epoch of images, [count, 20, 20], that are white at these rows and columns, and otherwise black."""
    images, labels = torch.zeros(count, 1, 20, 20, dtype=torch.uint8), torch.zeros(count, dtype=torch.long)
    images[(..., *zip(*white, strict=True))] = 255
    loader = TrainingLoader(images, labels, count, dataclasses.replace(PLAIN, **options), 0, lambda: 0)
    return next(iter(loader)).pixels[:, 0]


def test_every_pair_of_shifts_within_reach_occurs_and_none_beyond() -> None:
    places = augmented([(10, 10)], shift=0.1, crop_padding=2).nonzero()[:, 1:]  # a tenth of 20 pixels, and 2 of padding
    assert {(row, column) for row, column in places.tolist()} == set(product(range(6, 15), repeat=2))


def test_flip_mirrors_half_of_the_images() -> None:
    columns = augmented([(10, 3)], flip=True).nonzero()[:, 2]
    assert columns.unique().tolist() == [3, 16]
    assert 1870 < (columns == 3).sum() < 2130  # four standard deviations


def test_half_of_the_images_are_turned_by_normal_angles_within_their_bound() -> None:
    ink = augmented([(9, 17), (10, 17)], rotate=30.0)  # to the right of the centre
    rows, columns = ((ink.sum(dim=dim) * (torch.arange(20) - 9.5)).sum(dim=1) for dim in (2, 1))
    degrees = torch.atan2(-rows, columns).rad2deg()
    turned = degrees[degrees.abs() > 1e-3]
    assert 1870 < len(turned) < 2130
    assert turned.std() == pytest.approx(10, rel=0.05)
    assert (turned.min().item(), turned.max().item()) == pytest.approx((-30, 30), abs=0.3)
    fixed = [0, 4.74, 0, 0, -29.36]  # for good: the commands in records repeat them
    assert degrees[:5].tolist() == pytest.approx(fixed, abs=0.05)


def test_widths_are_half_normal_within_their_bound() -> None:
    ink = augmented([(10, column) for column in range(20)], squeeze=0.25)
    narrowed = 1 - ink.sum(dim=(1, 2)) / 20
    assert narrowed.mean() == pytest.approx(0.25 / 3 * math.sqrt(2 / math.pi), rel=0.05)
    assert (narrowed.min().item(), narrowed.max().item()) == pytest.approx((0, 0.25), abs=0.01)


def test_within_the_margins_every_place_is_reached_and_shifts_are_added() -> None:
    within = augmented([(5, 12)], margins=True)
    assert within.sum() == 4000
    assert all(within.any(dim=0).any(dim=dim).all() for dim in (0, 1))
    assert augmented([(5, 12)], margins=True, shift=0.1).sum() < 4000  # some have left the image


def test_what_is_moved_in_is_black_or_the_nearest_pixel() -> None:
    for option, value in {"rotate": 30.0, "squeeze": 0.25, "shift": 0.1}.items():
        assert augmented(EVERY, 50, **{option: value}).min() == 0
        assert augmented(EVERY, 50, **{option: value}, fill="nearest").min() > 0.999


def test_erased_squares_are_everywhere_and_whole() -> None:
    black = augmented(EVERY, erase=4) == 0
    assert (black.sum(dim=(1, 2)) == 16).all()
    assert all((black.any(dim=dim).sum(dim=1) == 4).all() for dim in (1, 2))
    assert black.any(dim=0).all()


@pytest.mark.parametrize("turns", [-1, 0, 1, 2])
def test_turns_rearrange_pixels_and_half_the_width_is_the_mean_of_two_columns_in_the_middle(turns: int) -> None:
    images, degrees = IMAGES[:4].float(), torch.full((4,), 90.0 * turns)
    turned, halved = images.rot90(turns, dims=(2, 3)), torch.zeros_like(images)
    halved[..., 5:15] = turned.unflatten(-1, (10, 2)).mean(-1)
    torch.testing.assert_close(warped(images, degrees, torch.ones(4)), turned, atol=0.01, rtol=0)
    torch.testing.assert_close(warped(images, degrees, torch.full((4,), 0.5)), halved, atol=0.02, rtol=0)


def test_a_shift_within_the_margins_loses_nothing_and_reaches_the_border() -> None:
    images = torch.zeros(4, 1, 9, 9)
    images[:, 0, 2:5, 3:8] = 1  # two rows above, four below; three columns to the left, one to the right
    fractions = torch.tensor([[0.0, 0.1], [-0.9999, 0.9999], [0.9999, -0.9999], [0.5, -0.5]])
    shifts = shifts_within(images, fractions)
    assert shifts.tolist() == [[0, 0], [-2, 1], [4, -3], [2, -2]]
    assert moved(images, shifts, torch.zeros(4, dtype=torch.bool)).sum() == images.sum()
    assert shifts_within(torch.zeros(4, 1, 9, 9), fractions).tolist() == [[0, 0]] * 4


def test_a_balanced_epoch_has_equally_many_images_of_each_class() -> None:
    """Two of 50 images in class 2, none in class 1; without shifts, an image drawn twice would be the same twice."""
    labels = torch.zeros(50, dtype=torch.int64)
    labels[:2] = 2
    options = dataclasses.replace(MOVING, balance=True)
    epochs = []
    for number in (0, 1, 0):
        loader = TrainingLoader(IMAGES, labels, 8, options, 0, lambda number=number: number)
        pixels, drawn, _ = zip(*loader, strict=True)
        pixels, drawn = torch.cat(pixels), torch.cat(drawn)
        assert drawn.bincount().tolist() == [25, 0, 25]
        assert drawn.tolist() != sorted(drawn.tolist())
        assert len(pixels[drawn == 2].flatten(1).unique(dim=0)) > 20
        epochs.append(pixels)
    assert torch.equal(epochs[0], epochs[2])
    assert not torch.equal(epochs[0], epochs[1])
    order = balanced(torch.arange(49, -1, -1), labels)
    assert sorted(order[labels[order] == 0].tolist()) == list(range(25, 50))  # the first in the order, each once
    assert order[labels[order] == 2].bincount().tolist() == [12, 13]


@pytest.mark.parametrize(
    ("data", "flips"), [("mnist", False), ("svhn", False), ("cifar10", True), ("fashion_mnist", True)]
)
def test_digits_are_never_mirrored(data: str, flips: bool) -> None:
    assert training_preprocess(composed_config(f"data={data}", "preprocess=huang")).flip is flips


def test_the_heldout_tenth() -> None:
    kept, held = heldout_split(5000, 3)
    assert (len(kept), len(held)) == (4500, 500)
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(5000))
    assert torch.equal(heldout_split(5000, 3)[1], held)
    assert not torch.equal(heldout_split(5000, 4)[1], held)
    assert [len(part) for part in heldout_split(3, 0)] == [2, 1]


@pytest.mark.parametrize(("repeated", "listed"), [(1, False), (2, False), (20, True)])
def test_a_part_is_the_first_images_or_a_random_one_where_they_are_listed_by_class(repeated: int, listed: bool) -> None:
    pixels, labels = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1), torch.arange(40) // repeated % 2
    images = ImageSet(None, "", None, pixels, labels, pixels, labels)
    chosen, of_chosen = split_of(images, composed_config("data=mnist_sample", "budget.test_images=20"))
    found = chosen.flatten().tolist()
    assert found == sorted(found)
    assert (found == [*range(20)]) != listed
    assert torch.equal(of_chosen, labels[found])
    assert of_chosen.unique().tolist() == [0, 1]

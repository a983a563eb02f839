"""DiverseMultiMNIST and affine MNIST: distributions, splits, and reproducibility from a seed."""

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import AFFINE, PAIRS, composed_config, refused
from torch import Generator, Tensor

from capsexp.config.schema import Config, Preprocess
from capsexp.data import source
from capsexp.data.loader import TrainingLoader
from capsexp.data.module import CapsuleData
from capsexp.data.synthesis import (
    AffineMNIST,
    Digits,
    DiverseMultiMNIST,
    Synthesis,
    free_shifts,
    of_other_classes,
    overlaid,
    placed,
    transformed,
)
from capsexp.run import keys

PLAIN = Preprocess(normalize=False, shift=0.0, crop_padding=0, flip=False)


def set_up(images: source.ImageSet, config: Config) -> CapsuleData:
    """A run's data, on the CPU, in its first epoch."""
    data = CapsuleData(images, config)
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    trainer: Any = SimpleNamespace(strategy=strategy, global_rank=0, world_size=1, current_epoch=0)
    trainer.lightning_module = torch.nn.Identity()
    data.trainer = trainer
    data.setup("fit")
    return data


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def unseen() -> Digits:
    """The test digits of the packaged sample."""
    images = source.load(composed_config("data=mnist_sample").data)
    return Digits(images.test_images, images.test_labels, 10)


def dots(count: int, classes: int = 10) -> Digits:
    """Images of 4×4 with one pixel of 50 + class in the upper left corner; the classes in turn."""
    labels = torch.arange(count) % classes
    images = torch.zeros(count, 1, 4, 4, dtype=torch.uint8)
    images[:, 0, 0, 0] = (50 + labels).to(torch.uint8)
    return Digits(images, labels, classes)


def drawn(synthesis: Synthesis, base: Digits, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A whole epoch."""
    return synthesis.training(base, size, generator(seed))(torch.arange(len(base.labels)))


def within_binomial_bounds(count: int, of: int, probability: float) -> bool:
    """Within four standard deviations."""
    return abs(count - of * probability) < 4 * math.sqrt(of * probability * (1 - probability))


# DiverseMultiMNIST


def test_a_sixth_of_the_images_has_one_digit_the_others_two_of_different_classes() -> None:
    images, sets = drawn(DiverseMultiMNIST(), dots(30_000), 12)
    assert set(sets.unique().tolist()) == {0, 1}
    sizes = sets.sum(dim=1)
    assert set(sizes.tolist()) == {1, 2}  # two of one class would leave a set of one with too much ink
    assert within_binomial_bounds(int((sizes == 1).sum()), 30_000, 1 / 6)
    classes = torch.arange(10)
    assert torch.equal(images.flatten(1).sum(dim=1), (sets * (50 + classes)).sum(dim=1))
    for single, size in ((0.0, 2), (1.0, 1)):  # the probability is an option
        assert drawn(DiverseMultiMNIST(single=single), dots(500), 12)[1].sum(dim=1).unique().tolist() == [size]


def test_every_other_digit_is_equally_likely_as_the_second() -> None:
    labels = torch.tensor([2, 0, 0, 1, 0, 2])
    digits = Digits(torch.zeros(6, 1, 1, 1, dtype=torch.uint8), labels, 4)
    for first in range(6):
        second = of_other_classes(digits, torch.full((4000,), first), generator(first))
        allowed = [index for index in range(6) if labels[index] != labels[first]]
        counts = torch.bincount(second, minlength=6)
        assert counts.nonzero().flatten().tolist() == allowed
        assert all(within_binomial_bounds(int(counts[index]), 4000, 1 / len(allowed)) for index in allowed)


def test_overlay_and_placement_by_hand() -> None:
    a = torch.tensor([0, 0, 100, 200, 255, 255, 1], dtype=torch.uint8)
    b = torch.tensor([0, 7, 100, 100, 255, 0, 254], dtype=torch.uint8)
    assert overlaid(a, b).tolist() == [0, 7, 200, 255, 255, 255, 255]
    image = torch.arange(1, 5, dtype=torch.uint8).view(1, 1, 2, 2)
    assert placed(image.expand(2, 1, 2, 2), torch.tensor([[0, 1], [1, 0]]), 3).tolist() == [
        [[[0, 1, 2], [0, 3, 4], [0, 0, 0]]],
        [[[0, 0, 0], [1, 2, 0], [3, 4, 0]]],
    ]


def test_all_shifts_by_up_to_four_pixels_are_reached_by_both_digits() -> None:
    base = Digits(torch.zeros(4000, 1, 28, 28, dtype=torch.uint8), torch.arange(4000) % 2, 2)
    base.images[:, 0, 14, 14] = (100 + base.labels).to(torch.uint8)
    images, _ = drawn(DiverseMultiMNIST(single=0.0), base, 36)
    for value in (100, 101):
        _, _, rows, columns = (images == value).nonzero(as_tuple=True)
        counts = torch.bincount((rows - 14) * 9 + columns - 14)
        assert len(counts) == 81
        assert all(within_binomial_bounds(int(count), len(rows), 1 / 81) for count in counts)
    one, other = (images == 100).flatten(1), (images == 101).flatten(1)
    both = one.any(1) & other.any(1)
    places = torch.stack([one.int().argmax(1), other.int().argmax(1)])[:, both].float()
    assert abs(torch.corrcoef(places)[0, 1].item()) < 0.07  # each has its own place


def test_no_image_contains_a_digit_of_another_split() -> None:
    """Each split has its own grey level: 1 for training and held-out digits, 100 for test digits."""
    config = composed_config("data=mnist_sample", "data.size=36", PAIRS, "protocol=heldout")
    images = source.load(config.data)
    images.train_images.copy_((images.train_images > 0) * 1)
    images.test_images.copy_((images.test_images > 0) * 100)
    data = set_up(images, config)
    assert data.evaluated[0].unique().tolist() == [0, 1, 2]
    assert data.test[0].unique().tolist() == [0, 100, 200]
    loader = data.train_dataloader().loader
    assert (len(loader.labels), len(data.evaluated[1])) == (4500, 500)
    pixels = torch.cat([batch.pixels for batch in loader])
    assert (pixels * 255).round().unique().tolist() == [0, 1, 2]


def test_the_digits_held_out_are_in_no_training_image() -> None:
    config = composed_config("data=mnist_sample", "data.size=40", AFFINE, "protocol=heldout")
    data = set_up(source.load(config.data), config)
    splits = data.train_dataloader().loader.images, data.evaluated[0]
    kept, held = ({image[image > 0].numpy().tobytes() for image in split} for split in splits)
    assert (len(kept), len(held)) == (4500, 500)
    assert not kept & held


# affine MNIST


def test_each_training_digit_occurs_once_an_epoch_anywhere_on_the_canvas(unseen: Digits) -> None:
    images, labels = drawn(AffineMNIST(), unseen, 40)
    assert torch.equal(labels, unseen.labels)
    assert torch.equal(images.flatten(1).sum(dim=1), unseen.images.flatten(1).sum(dim=1))
    marked = unseen._replace(images=torch.zeros_like(unseen.images))
    marked.images[:, 0, 0, 0] = 1
    places = drawn(AffineMNIST(), marked, 40)[0].nonzero()[:, 2:]
    assert all(places[:, axis].unique().tolist() == list(range(13)) for axis in (0, 1))


def parameters(maps: Tensor) -> Tensor:
    """Degrees, shear, horizontal and vertical scale [B, 4] of maps rotation · shear · scale."""
    a, b, c, d = maps.double().flatten(1).unbind(1)
    across = torch.hypot(a, c)
    cosine, sine = a / across, c / across
    down = cosine * d - sine * b
    shear = (cosine * b + sine * d) / down
    return torch.stack([torch.rad2deg(torch.atan2(sine, cosine)), shear, across, down], dim=1)


def test_the_parameters_of_the_maps_are_uniform_in_their_ranges() -> None:
    found = parameters(AffineMNIST().maps(20_000, generator()))
    for values, (low, high) in zip(found.unbind(1), [(-20, 20), (-0.2, 0.2), (0.8, 1.2), (0.8, 1.2)], strict=True):
        fractions = (values - low) / (high - low)
        assert (fractions.min(), fractions.max()) == pytest.approx((0, 1), abs=0.001)
        counts = torch.histc(fractions.clamp(0, 1), 10, 0, 1)
        assert all(within_binomial_bounds(int(count), 20_000, 0.1) for count in counts)
    assert (torch.corrcoef(found.T) - torch.eye(4)).abs().max() < 0.03


def test_without_ranges_only_the_place_changes(unseen: Digits) -> None:
    plain = AffineMNIST(rotation=0.0, shear=0.0, scale=0.0)
    assert torch.equal(plain.maps(3, generator()), torch.eye(2).expand(3, 2, 2))
    images, maps = unseen.images[:20], torch.eye(2).expand(20, 2, 2)
    still = transformed(images, maps, torch.zeros(20, 2), 40)
    assert torch.equal(still, torch.nn.functional.pad(images, [6] * 4))
    moved = transformed(images, maps, torch.tensor([[1.0, -2.0]]).expand(20, 2), 40)
    assert torch.equal(moved, still.roll((-2, 1), (2, 3)))


def test_a_map_by_hand() -> None:
    image = torch.zeros(1, 1, 5, 5, dtype=torch.uint8)
    image[0, 0, 1, 3] = 200  # p = (1, −1)
    quarter_turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])  # (x, y) -> (−y, x): p comes to (1, 1)
    turned = transformed(image, quarter_turn, torch.zeros(1, 2), 7)
    assert turned.nonzero().tolist() == [[0, 0, 4, 4]]
    half = transformed(image, torch.eye(2)[None], torch.tensor([[0.5, 0.0]]), 7)
    assert half[0, 0, 2, 3:6].tolist() == [0, 100, 100]


def test_the_whole_digit_stays_inside(unseen: Digits) -> None:
    """Also at the ends of the free shifts: on a larger canvas there is no ink outside the smaller one."""
    images = unseen.images[:1000]
    maps = AffineMNIST().maps(1000, generator())
    low, high = free_shifts(images, maps, 40)
    assert bool((low <= high).all())
    for shifts in (low, high, torch.stack([low[:, 0], high[:, 1]], dim=1)):
        on_40, on_80 = transformed(images, maps, shifts, 40), transformed(images, maps, shifts, 80)
        assert torch.equal(on_80[:, :, 20:60, 20:60], on_40)
        assert torch.equal(on_80.flatten(1).sum(1), on_40.flatten(1).sum(1))
    # The range is as large as possible: two pixels beyond it some ink is lost.
    on_40, on_80 = transformed(images, maps, low - 2, 40), transformed(images, maps, low - 2, 80)
    assert (on_80.flatten(1).sum(1) > on_40.flatten(1).sum(1)).float().mean() > 0.9


def test_ink_is_preserved_up_to_the_maps_area(unseen: Digits) -> None:
    maps = AffineMNIST().maps(1000, generator(1))
    images = AffineMNIST().mapped(unseen.images, 40, generator(1))  # draws the same maps first
    ink = images.flatten(1).sum(1) / unseen.images.flatten(1).sum(1)
    assert (ink / torch.linalg.det(maps) - 1).abs().max() < 0.05
    assert abs((ink / torch.linalg.det(maps)).mean().item() - 1) < 0.002


def test_each_test_digit_occurs_once_and_all_sides_are_reached(unseen: Digits) -> None:
    images, labels = AffineMNIST().test(unseen, 40)
    assert (images.shape, images.dtype) == ((1000, 1, 40, 40), torch.uint8)
    assert torch.equal(labels, unseen.labels)
    assert all((images > 32).any(0)[0].any(dim)[1:-1].all() for dim in (0, 1))


# Both


@pytest.mark.parametrize(("synthesis", "size"), [(DiverseMultiMNIST(), 36), (AffineMNIST(), 40)])
def test_epochs_follow_from_seed_and_epoch_alone(synthesis: Synthesis, size: int, unseen: Digits) -> None:
    def epoch(number: int, seed: int, steps: int | None = None) -> tuple[Tensor, Tensor]:
        draw, (images, digits, _) = partial(synthesis.training, unseen, size), unseen
        loader = TrainingLoader(images, digits, 128, PLAIN, seed, lambda: number, steps=steps, draw=draw, side=size)
        batches = list(loader)
        assert len(batches) == len(loader) == (steps or 8)
        pixels, labels, _ = zip(*batches, strict=True)
        return torch.cat(pixels), torch.cat(labels)

    pixels, labels = epoch(3, seed=5)
    assert (pixels.shape, pixels.dtype) == ((1000, 1, size, size), torch.float32)
    assert 0 <= pixels.min() < pixels.max() == 1
    for again, same in zip(epoch(3, seed=5), (pixels, labels), strict=True):
        assert torch.equal(again, same)
    assert torch.equal(epoch(3, seed=5, steps=2)[0], pixels[:256])
    for other in (epoch(4, seed=5), epoch(3, seed=6), epoch(5, seed=3)):
        assert not torch.equal(other[0], pixels)
        assert (other[0] == pixels).flatten(1).all(1).sum() < 10


@pytest.mark.parametrize(("synthesis", "size"), [(PAIRS, 36), (AFFINE, 40)])
def test_all_runs_are_tested_on_the_same_images(synthesis: str, size: int) -> None:
    tests = []
    for overrides in (["seed=0"], ["seed=7"], ["seed=7", "budget.test_images=300", "budget.train_images=100"]):
        config = composed_config("data=mnist_sample", f"data.size={size}", synthesis, *overrides)
        data = set_up(source.load(config.data), config)
        tests.append(data.test)
        assert len(data.train_dataloader().loader.labels) == (config.budget.train_images or 5000)
    assert [len(images) for images, _ in tests] == [1000, 1000, 300]
    for test in tests[1:]:
        assert all(torch.equal(part, whole[: len(part)]) for part, whole in zip(test, tests[0], strict=True))


def test_augmentation_shifts_on_the_canvas(unseen: Digits) -> None:
    moving = Preprocess(normalize=False, shift=0.1, crop_padding=0, flip=False)
    base = unseen._replace(images=torch.zeros_like(unseen.images))
    base.images[:, 0, 14, 14] = 255
    draw = partial(AffineMNIST().training, base, 40)
    loader = TrainingLoader(base.images, base.labels, 1000, moving, 0, lambda: 0, draw=draw, side=40)
    places = next(iter(loader))[0].nonzero()[:, 2:]
    assert (places.min(), places.max()) == (14 - 4, 14 + 12 + 4)


def test_a_synthesis_is_part_of_a_runs_identity() -> None:
    for words, expected in (
        (["data=mnist"], None),
        (["data=diverse_multimnist"], {"name": "diverse_multimnist"}),
        (["data=affine_mnist", "data.synthesis.rotation=30"], {"name": "affine_mnist", "rotation": 30.0}),
    ):
        assert keys.identity(composed_config(*words), "bf16", None)["data"].get("synthesis") == expected


def test_a_small_canvas_and_digits_of_one_class_are_refused() -> None:
    config = composed_config("data=mnist_sample", "data.size=20", PAIRS)
    line = refused(CapsuleData, source.load(config.data), config)
    assert line == "data.size=20: must be at least 28, the side of the digits' images"
    line = refused(DiverseMultiMNIST().training, dots(7, classes=1), 12, generator())
    assert line.endswith("7 digits of one class make no pairs of two classes")

"""Affine maps of test images, and the accuracy under them."""

import dataclasses

import torch
from support import Trained, composed_config

from capsexp.data import source
from capsexp.evaluate.robustness import GRID, mapped, matrix, robustness, unmapped
from capsexp.run.plan import LAST
from capsexp.run.restore import restore

PAIRS = ("+data.synthesis={name: pairs, _target_: capsexp.data.synthesis.DiverseMultiMNIST}", "data.size=36")
AFFINE = ("+data.synthesis={name: affine, _target_: capsexp.data.synthesis.AffineMNIST}", "data.size=40")


def test_without_a_change_the_accuracy_is_the_records(trained: Trained) -> None:
    grid = {"rotation": [0, 90], "shear": [0], "scale": [1, 0.5]}
    table = robustness(restore(trained.folder / LAST), grid)
    assert list(table["map"]) == ["rotation", "rotation", "shear", "scale", "scale"]
    assert list(table["value"]) == [0, 90, 0, 1, 0.5]
    assert set(table.accuracy[[0, 2, 3]]) == {trained.record.last_accuracy}
    assert table.accuracy[1] != table.accuracy[0]  # turned by 90°
    assert set(table.images) == {200}


def test_affine_mnist_is_mapped_once() -> None:
    whole = source.load(composed_config("data=mnist_sample").data)
    images = dataclasses.replace(whole, test_images=whole.test_images[:50], test_labels=whole.test_labels[:50])
    for words in ((), AFFINE):
        assert torch.equal(unmapped(images, composed_config("data=mnist_sample", *words))[0], images.test_images)
    assert unmapped(images, composed_config("data=mnist_sample", *PAIRS))[0].shape == (50, 1, 36, 36)


def test_maps_rotate_shear_and_scale() -> None:
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 1:3, 4] = 200  # above the middle
    assert torch.equal(mapped(image, matrix("rotation", 0), 9), image)
    assert torch.equal(mapped(image, matrix("rotation", 90), 9), image.rot90(-1, (2, 3)))  # clockwise
    assert torch.equal(mapped(image, matrix("rotation", -90), 9), image.rot90(1, (2, 3)))
    assert torch.equal(mapped(image, matrix("scale", 1), 13), torch.nn.functional.pad(image, [2] * 4))
    (column,) = mapped(image, matrix("shear", 1), 9)[0, 0, 1].nonzero()  # three pixels above the middle go three left
    assert column.item() == 1
    assert mapped(image, matrix("scale", 0.5), 9)[0, 0].nonzero().tolist() == [[3, 4]]  # two above the middle: now one


def test_the_grid_holds_affnists_ranges_and_no_change() -> None:
    for kind, inside in {"rotation": (-20, 0, 20), "shear": (-0.2, 0, 0.2), "scale": (0.8, 1, 1.2)}.items():
        assert set(inside) <= set(GRID[kind])

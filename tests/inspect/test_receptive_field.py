"""Receptive fields: by hand from the kernels, and by changing pixels."""

from functools import cache

import pytest
import torch
from support import composed_config
from torch import Tensor, nn

from capsexp.config.schema import Config
from capsexp.inspect.receptive_field import ReceptiveFields, receptive_fields
from capsexp.run.build import build
from capsexp.run.observe import Window, observe


@cache
def configured(words: str) -> Config:
    """A small network's configuration."""
    return composed_config(*words.split(), "model.width=0.1")


def made(words: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """A small network, and the shape of its images."""
    torch.manual_seed(0)
    config = configured(words)
    return build(config).network.eval(), (config.data.channels, config.data.size, config.data.size)


#: The number of positions in a row, and the pixels of the first and the last one's field.
BY_HAND = {
    "model=capsnet data=mnist_sample attention=cbam": (6, (0, 17), (10, 27)),  # 9 + 8 pixels, stride 2
    "model=da_capsnet data=cifar10": (10, (0, 14), (18, 32)),  # 1 + 2 · (2 + 2 + 1) + 2 + 2 - 1, stride 2
    "model=inverted_capsnet data=cifar10": (16, (0, 2), (29, 32)),  # 3, stride 2, padded
    "model=em_capsnet data=cifar10": (16, (0, 3), (29, 32)),  # 4, stride 2, padded
    "model=dynamic_capsnet data=cifar10 model.backbone=resnet": (8, (0, 32), (0, 32)),
}


@pytest.mark.parametrize("words", BY_HAND)
def test_fields_from_the_kernels(words: str) -> None:
    found = receptive_fields(*made(words))
    count, first, last = BY_HAND[words]
    assert found.rows.shape == found.columns.shape == (count, found.rows.shape[1])
    assert found.box(0, count - 1) == (first[0], last[0], first[1], last[1])
    torch.testing.assert_close(found.rows.sum(dim=1), torch.ones(count))
    middles = found.rows @ torch.arange(found.rows.shape[1]).float()
    assert (middles.diff() > 0).all()


@pytest.mark.parametrize("words", ["model=capsnet data=mnist_sample", "model=inverted_capsnet data=cifar10"])
def test_only_pixels_in_the_box_change_a_capsule(words: str) -> None:
    network, shape = made(words)
    found = receptive_fields(network, shape)
    before = torch.rand(1, *shape)
    row, column = 2, 1
    top, left, bottom, right = found.box(row, column)
    inside = torch.zeros(1, *shape, dtype=torch.bool)
    inside[:, :, top:bottom, left:right] = True
    elsewhere = torch.where(inside, before, torch.rand(1, *shape))
    poses = observe(network, before).layers[0].poses[0, row, column]
    torch.testing.assert_close(observe(network, elsewhere).layers[0].poses[0, row, column], poses)
    for y, x in ((top, left), (bottom - 1, right - 1)):
        changed = before.clone()
        changed[:, :, y, x] += 10
        assert not torch.allclose(observe(network, changed).layers[0].poses[0, row, column], poses, atol=1e-6)


def test_a_parents_field_is_that_of_its_children() -> None:
    found = receptive_fields(*made("model=em_capsnet data=cifar10"))
    parents = found.parents(Window(3, 2))
    assert parents.rows.shape == (7, 32)
    torch.testing.assert_close(parents.rows.sum(dim=1), torch.ones(7))
    assert parents.box(0, 6) == (0, found.box(12, 12)[1], found.box(2, 2)[2], found.box(14, 14)[3])


def test_the_network_is_unchanged() -> None:
    network, shape = made("model=inverted_capsnet data=cifar10 attention=cbam")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    receptive_fields(network, shape)
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())


def test_a_pixel_gets_the_weighted_mean_of_the_positions() -> None:
    values = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    along: Tensor = torch.tensor([1.0, 0.5, 0.5, 0.0])
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0, 0.0], [0.0, 0.25, 0.25, 0.5, 0.0]])
    pixels = ReceptiveFields(weights, weights).to_pixels(values)
    torch.testing.assert_close(pixels[:4, :4], along[:, None] * along)
    assert pixels[4].isnan().all()
    assert pixels[:, 4].isnan().all()

"""The real data sets in the folder CAPSEXP_DATA: counts, classes and means equal the published ones."""

import os

import pytest
import torch

from capsexp.data import command as prepare_data
from capsexp.data.source import ImageSet, load
from capsexp.errors import InputError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("CAPSEXP_DATA" not in os.environ, reason="CAPSEXP_DATA doesn't name a folder with the data"),
]


@pytest.fixture
def full():
    def load_or_skip(name: str) -> ImageSet:
        try:
            return load(prepare_data.configuration(name, download=False))
        except InputError as error:
            if "data.download is false" in str(error):
                pytest.skip(f"{name} isn't there")
            raise

    return load_or_skip


def counts(labels: torch.Tensor) -> list[int]:
    return torch.bincount(labels).tolist()


MNIST_COUNTS = (
    [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
)


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [
        ("mnist", (1, 28, 28), *MNIST_COUNTS),
        ("fashion_mnist", (1, 28, 28), [6000] * 10, [1000] * 10),
        ("cifar10", (3, 32, 32), [5000] * 10, [1000] * 10),
        ("cifar100", (3, 32, 32), [500] * 100, [100] * 100),
        ("smallnorb", (3, 32, 32), [4860] * 5, [4860] * 5),
        ("coil20", (3, 32, 32), None, None),
    ],
)
def test_images_of_each_class_and_the_configured_mean_and_deviation(name: str, shape: tuple, train, test, full):
    images, data = full(name), prepare_data.configuration(name)
    assert images.train_images.shape[1:] == images.test_images.shape[1:] == shape
    if train:
        assert (counts(images.train_labels), counts(images.test_labels)) == (train, test)
    else:  # drawn at random
        assert (len(images.train_labels), len(images.test_labels)) == (648, 72)
        assert counts(torch.cat([images.train_labels, images.test_labels])) == [72] * 10
    pixels = images.train_images.double() / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=6e-5)
    assert pixels.std((0, 2, 3), correction=0).tolist() == pytest.approx(data.std, abs=6e-5)


def test_svhn(full):
    images = full("svhn")
    if images.note is None:
        assert (len(images.train_images), len(images.test_images)) == (73257, 26032)
    else:
        assert counts(images.train_labels) == [315, 871, 603, 507, 463, 428, 326, 321, 326, 274]
        assert counts(images.test_labels) == [136, 366, 297, 233, 194, 169, 149, 151, 134, 123]
        means = (images.train_images.double().mean((0, 2, 3)) / 255).tolist()
        assert means == pytest.approx([0.44495, 0.45112, 0.47926], abs=1e-5)


def test_the_packaged_sample_has_the_first_images_of_each_class_in_proportion(full):
    whole, sample = full("mnist"), full("mnist_sample")
    for images, labels, chosen_images, chosen_labels in (
        (whole.train_images, whole.train_labels, sample.train_images, sample.train_labels),
        (whole.test_images, whole.test_labels, sample.test_images, sample.test_labels),
    ):
        quotas = torch.bincount(chosen_labels)
        assert (quotas - torch.bincount(labels) * len(chosen_labels) / len(labels)).abs().max() < 1
        first = torch.cat([(labels == digit).nonzero()[:quota, 0] for digit, quota in enumerate(quotas)])
        chosen = first.sort().values
        assert torch.equal(images[chosen], chosen_images)
        assert torch.equal(labels[chosen], chosen_labels)

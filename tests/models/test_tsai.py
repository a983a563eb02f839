"""tsai's networks: numbers of parameters, the papers' choices."""

import pytest
import torch
from support import composed_config

from capsexp.models.inverted_capsnet import InvertedCapsNet
from capsexp.run import build

MULTIMNIST = ["data=diverse_multimnist"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model=dynamic_capsnet", "data=cifar10"], 7_992_576),
        (["model=dynamic_capsnet", "data=cifar100"], 31_585_536),
        (["model=dynamic_capsnet", "data=cifar10", "model.backbone=resnet"], 12_451_136),
        (["model=dynamic_capsnet", "data=cifar100", "model.backbone=resnet"], 36_044_096),
        (["model=em_capsnet", "data=cifar10"], 453_044),
        (["model=em_capsnet", "data=cifar100"], 499_304),
        (["model=em_capsnet", "data=cifar10", "model.backbone=resnet"], 1_710_580),
        (["model=em_capsnet", "data=cifar100", "model.backbone=resnet"], 1_756_840),
        (["model=inverted_capsnet", "data=cifar10"], 561_297),
        (["model=inverted_capsnet", "data=cifar10", "routing.norm=false"], 561_297 - 3 * 32),
        (
            ["model=inverted_capsnet", "data=cifar10", "routing.activations=true"],
            561_297 + (256 * 32 + 32) + 2 * (32 + 32 + 10),
        ),
        (["model=inverted_capsnet_cifar100", "data=cifar100"], 1_462_989),
        (["model=inverted_capsnet", "data=cifar10", "model.backbone=resnet"], 1_828_817),
        (["model=inverted_capsnet_cifar100", "data=cifar100", "model.backbone=resnet"], 2_799_629),
        (["model=inverted_capsnet_multimnist", *MULTIMNIST], 42_478_017),
        (["model=inverted_capsnet_multimnist_matrix", *MULTIMNIST], 9_963_969),
        (["model=dynamic_capsnet_multimnist", *MULTIMNIST], 42_477_568),
    ],
)
def test_parameters(overrides: list[str], expected: int):
    assert build.count_parameters(composed_config(*overrides)) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("dynamic_capsnet", ("dynamic", "margin", "adam", 0.001, 4)),
        ("em_capsnet", ("em", "spread", "adam", 0.01, 4)),
        ("inverted_capsnet", ("inverted", "cross_entropy", "sgd", 0.1, 4)),
        ("inverted_capsnet_cifar100", ("inverted", "cross_entropy", "sgd", 0.1, 4)),
    ],
)
def test_the_papers_choices_come_with_the_model(model: str, expected: tuple[object, ...]):
    chosen = composed_config(f"model={model}", "data=cifar10")
    names = (chosen.routing.name, chosen.loss.name, chosen.optim.name, chosen.optim.lr)
    assert (*names, chosen.preprocess.crop_padding) == expected
    assert (chosen.optim.epochs, chosen.optim.milestones, chosen.optim.batch_size) == (350, [150, 250], 128)
    assert chosen.model.name == model


def test_multimnist_has_no_augmentation_and_one_optimiser():
    for model in ("inverted_capsnet_multimnist", "inverted_capsnet_multimnist_matrix", "dynamic_capsnet_multimnist"):
        chosen = composed_config(f"model={model}", *MULTIMNIST)
        assert (chosen.preprocess.crop_padding, chosen.preprocess.flip, chosen.optim.name) == (0, False, "sgd")
        assert chosen.loss.name == "binary_cross_entropy"
    assert composed_config("model=dynamic_capsnet_multimnist", *MULTIMNIST).routing.name == "dynamic"


@pytest.mark.parametrize("model", ["dynamic_capsnet", "em_capsnet", "inverted_capsnet"])
def test_scores_are_float32_and_gradients_finite_under_bfloat16_autocast(model: str):
    network = build.build(composed_config(f"model={model}", "data=mnist_sample", "model.width=0.05")).network
    with torch.autocast("cpu", torch.bfloat16):
        scores, poses = network(torch.zeros(2, 1, 28, 28))
    assert scores.dtype == poses.dtype == torch.float32
    scores.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)


def test_images_of_a_batch_are_independent():
    network = InvertedCapsNet((1, 12, 12), 3, channels=8, capsule_types=2, pose=4, strides=[1], hidden=[4]).eval()
    images = torch.rand(3, 1, 12, 12)
    torch.testing.assert_close(network(images).scores[1:2], network(images[1:2]).scores)

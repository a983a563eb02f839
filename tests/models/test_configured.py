"""Each network as its configuration makes it: parameters, shapes, its paper's choices."""

from operator import attrgetter

import pytest
import torch
from support import composed_config

from capsexp.config.schema import Attention
from capsexp.run.build import build, count_parameters

CAPS = 2 * (16 * 16 + 16)

# CapsNet on MNIST
CAPSNET = 6_804_224
DECODER = 1_411_344
CBAM = 8_564

# DA-CapsNet
CIFAR = 280_640  # 1,792 + 36,928 + 73,856 + 147,584 + 128 · 160
MNIST = 156_608  # 640 + 36,928 + 32,896 + 65,664 + 128 · 160
CONV = 2 * (128 * 128 + 128)
DA_CBAM = (64 * 4 + 4 + 4 * 64 + 64) + (2 * 49 + 2)  # r = 16; then 7×7 and its batch norm
EXTRA = (128 * 9 * 256 + 256) + 128 * 160  # and twice as many numbers a child capsule

PARAMETERS = {
    "capsnet": {
        "": CAPSNET,
        "reconstruction.enabled=true": CAPSNET + DECODER,
        "attention.cbam=true": CAPSNET + CBAM,
        "attention.cbam=true attention.cbam_kernel=3": CAPSNET + CBAM - 2 * (49 - 9),
        "attention=se attention.first.reduction=8": CAPSNET + 2 * 256 * 32 + 256 + 32,
        "attention.cbam=true reconstruction.enabled=true": CAPSNET + DECODER + CBAM,
        "attention.conv=true": CAPSNET + 2 * (256 * 256 + 256),
        "attention.caps=true": CAPSNET + CAPS,
        "routing.iterations=1": CAPSNET,
        "routing.gradient=none": CAPSNET - 1152 * 160 * 8,  # untrained matrices are not counted
        "routing.iterations=7 model.squash_constant=0.5": CAPSNET,
    },
    "da_capsnet": {
        "data=cifar10 attention=none": CIFAR,
        "data=cifar10 attention.conv=false": CIFAR + CAPS,
        "data=cifar10 attention.caps=false": CIFAR + CONV,
        "data=cifar10": CIFAR + CONV + CAPS,
        "data=svhn attention.cbam=true": CIFAR + CONV + CAPS + DA_CBAM,
        "data=coil20 attention=cbam optim=huang_coil20": CIFAR + DA_CBAM,
        "data=smallnorb attention=none": CIFAR - 128 * 80,  # five classes
        "data=fashion_mnist attention=none": MNIST,
        "data=mnist": MNIST + CONV + CAPS,
        "data=cifar10 attention=none model.extra_convolution=true": CIFAR + EXTRA,
        "data=cifar10 model.extra_convolution=true": CIFAR + EXTRA + 2 * (256 * 256 + 256) + CAPS,
        "data=cifar10 model.caps_axis=parents": CIFAR + CONV + 2 * (10 * 10 + 10),
        "data=cifar10 model.caps_axis=children": CIFAR + CONV + 2 * (100 * 100 + 100),
        "data=cifar10 model.caps_axis=votes": CIFAR + CONV + 2 * (160 * 160 + 160),
        "data=cifar10 model.caps_axis=capsules": CIFAR + CONV + 1_610_200,
        "data=mnist attention=none model.second_kernel=3": MNIST + 5 * 128 * (64 + 128),
    },
    "efficient_capsnet": {
        "": 161_824,
        "reconstruction.enabled=true": 161_824 + DECODER,
        "routing=dynamic": 161_824 - 16 * 10,  # no bias a child and parent
        "attention.conv=true": 161_824 + CONV,
        "attention.caps=true": 161_824 + CAPS,
        "data.size=96": 161_824 + 128 * (43**2 - 9**2),
    },
    "dynamic_capsnet": {
        "data=cifar10": 7_992_576,
        "data=cifar100": 31_585_536,
        "data=cifar10 model.backbone=resnet": 12_451_136,
        "data=cifar100 model.backbone=resnet": 36_044_096,
    },
    "em_capsnet": {
        "data=cifar10": 453_044,
        "data=cifar100": 499_304,
        "data=cifar10 model.backbone=resnet": 1_710_580,
        "data=cifar100 model.backbone=resnet": 1_756_840,
    },
    "inverted_capsnet": {
        "data=cifar10": 561_297,
        "data=cifar10 routing.norm=false": 561_297 - 3 * 32,
        "data=cifar10 routing.activations=true": 561_297 + (256 * 32 + 32) + 2 * (32 + 32 + 10),
        "data=cifar10 model.backbone=resnet": 1_828_817,
    },
    "inverted_capsnet_cifar100": {"data=cifar100": 1_462_989, "data=cifar100 model.backbone=resnet": 2_799_629},
    "inverted_capsnet_multimnist": {"data=diverse_multimnist": 42_478_017},
    "inverted_capsnet_multimnist_matrix": {"data=diverse_multimnist": 9_963_969},
    "dynamic_capsnet_multimnist": {"data=diverse_multimnist": 42_477_568},
    "sabour_cnn": {"": 35_445_522},
    "huang_cnn": {
        "data=cifar10": 2_432 + 51_264 + 4_195_328 + 10_250,
        "data=mnist": 832 + 51_264 + (64 * 49 + 1) * 1024 + 10_250,
        "data=cifar10 model.padding=valid": 2_432 + 51_264 + 1601 * 1024 + 10_250,
        "data=cifar10 data.classes=5": 4_253_349 + 25 * 32,  # Hinton: "4.2M", of two channels
    },
    "tsai_cnn": {"data=cifar10": 18_919_434, "data=cifar100": 19_011_684},
    "tsai_cnn_multimnist": {
        "data=diverse_multimnist": 19_553_162,
        "data=diverse_multimnist model.head=connected": 42_490_762,
    },
    "resnet18": {"data=cifar10": 11_173_962, "data=cifar100": 11_220_132},
}


@pytest.mark.parametrize("model", PARAMETERS)
def test_the_number_of_parameters(model: str) -> None:
    found = {words: count_parameters(composed_config(f"model={model}", *words.split())) for words in PARAMETERS[model]}
    assert found == PARAMETERS[model]


@pytest.mark.parametrize(("model", "sizes"), {"da_capsnet": [14, 20, 29, 36, 40], "tsai_cnn": [21]}.items())
def test_images_may_have_other_sizes(model: str, sizes: list[int]) -> None:
    assert all(count_parameters(composed_config(f"model={model}", f"data.size={size}")) > 0 for size in sizes)


#: Of the outputs for two images, by layer; and the standard deviation of the initial transformation matrices.
SHAPES = {
    "capsnet data=mnist": (
        {"convolution": (2, 256, 20, 20), "primary": (2, 6, 6, 32, 8), "classes.matrices": (2, 1, 1152, 10, 16)},
        0.1,
    ),
    "da_capsnet data=cifar10 attention=none": ({"classes.matrices": (2, 100, 1, 10, 16)}, (2 / (128 + 160)) ** 0.5),
    "da_capsnet data=mnist attention=none": ({"classes.matrices": (2, 100, 1, 10, 16)}, (2 / (128 + 160)) ** 0.5),
    "efficient_capsnet data=mnist": (
        {"trunk": (2, 128, 9, 9), "depthwise": (2, 128, 1, 1), "classes.matrices": (2, 1, 16, 10, 16)},
        (2 / 1280) ** 0.5,
    ),
}


@pytest.mark.parametrize("words", SHAPES)
def test_the_layers_have_the_papers_shapes_and_the_scores_are_lengths(words: str) -> None:
    config, (shapes, deviation) = composed_config(*f"model={words} trainer.routing=reference".split()), SHAPES[words]
    network, found = build(config).network, dict[str, tuple[int, ...]]()
    for name in shapes:
        network.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, name=name: found.update({name: (*getattr(output, "poses", output).shape,)})
        )
    scores, poses = network(torch.rand(2, config.data.channels, config.data.size, config.data.size))
    assert found == shapes
    assert network.classes.matrices.weight.std().item() == pytest.approx(deviation, rel=0.05)
    assert poses.shape == (2, 10, 16)
    torch.testing.assert_close(scores, poses.norm(dim=-1))
    assert bool((scores < 1).all())


CHOSEN = attrgetter(
    *("routing.name", "loss.name", "optim.name", "optim.lr", "optim.epochs", "optim.batch_size", "optim.milestones"),
    *("preprocess.shift", "preprocess.flip", "preprocess.crop_padding", "preprocess.normalize"),
)
SGD, HUANG = ("sgd", 0.1, 350, 128, [150, 250]), ("adam", 0.001, 100, 128, [])
SHIFTED, CROPPED, PLAIN = (0.1, True, 0, False), (0.0, True, 4, True), (0.0, False, 0, False)
CHOICES = {
    "da_capsnet data=cifar10": ("dynamic", "margin", *HUANG, *SHIFTED),
    "da_capsnet data=coil20 optim=huang_coil20": ("dynamic", "margin", "adam", 0.001, 100, 16, [], *SHIFTED),
    "dynamic_capsnet data=cifar10": ("dynamic", "margin", "adam", 0.001, *SGD[2:], *CROPPED),
    "em_capsnet data=cifar10": ("em", "spread", "adam", 0.01, *SGD[2:], *CROPPED),
    "inverted_capsnet data=cifar10": ("inverted", "cross_entropy", *SGD, *CROPPED),
    "inverted_capsnet_cifar100 data=cifar10": ("inverted", "cross_entropy", *SGD, *CROPPED),
    "inverted_capsnet_multimnist data=diverse_multimnist": ("inverted", "binary_cross_entropy", *SGD, *PLAIN),
    "inverted_capsnet_multimnist_matrix data=diverse_multimnist": ("inverted", "binary_cross_entropy", *SGD, *PLAIN),
    "dynamic_capsnet_multimnist data=diverse_multimnist": ("dynamic", "binary_cross_entropy", *SGD, *PLAIN),
    "tsai_cnn_multimnist data=diverse_multimnist": ("none", "binary_cross_entropy", *SGD, *PLAIN),
    "tsai_cnn data=cifar10": ("none", "cross_entropy", *SGD, *CROPPED),
    "resnet18 data=cifar100": ("none", "cross_entropy", *SGD, *CROPPED),
    "sabour_cnn data=mnist": ("none", "cross_entropy", "adam", 0.001, 250, 128, [], *PLAIN),
    "huang_cnn data=smallnorb": ("none", "cross_entropy", *HUANG, *SHIFTED),
}


@pytest.mark.parametrize("words", CHOICES)
def test_the_papers_choices_come_with_the_model(words: str) -> None:
    overrides = f"model={words}".split()
    chosen, narrow = composed_config(*overrides), composed_config(*overrides, "budget.width=0.125")
    assert CHOSEN(chosen) == CHOICES[words]
    both = chosen.model.name == "da_capsnet"
    assert chosen.attention == Attention(cbam=False, conv=both, caps=both, cbam_reduction=16)
    assert (chosen.model.arguments["width"], narrow.model.arguments["width"]) == (1.0, 0.125)

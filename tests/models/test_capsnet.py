"""CapsNet: parameters, image sizes, layers, the place of CBAM."""

import pytest
import torch
from support import composed_config

from capsexp.run.build import build, count_parameters


@pytest.mark.parametrize(
    ("overrides", "parameters"),
    [
        ((), 6_804_224),
        (("reconstruction.enabled=true",), 8_215_568),
        (("attention.cbam=true",), 6_804_224 + 8_564),
        (("attention.cbam=true", "reconstruction.enabled=true"), 8_215_568 + 8_564),
        (("attention.conv=true",), 6_804_224 + 2 * (256 * 256 + 256)),
        (("attention.caps=true",), 6_804_224 + 2 * (16 * 16 + 16)),
        (("routing.iterations=1",), 6_804_224),
        (("routing.gradient=none",), 6_804_224 - 1152 * 160 * 8),  # untrained matrices are not counted
        (("routing.iterations=7", "model.squash_constant=0.5"), 6_804_224),
    ],
)
def test_parameters_on_mnist(overrides: tuple[str, ...], parameters: int) -> None:
    assert count_parameters(composed_config(*overrides)) == parameters


def test_scores_are_lengths_and_the_decoder_draws_images() -> None:
    config = composed_config("data=cifar10", "budget=demo", "attention.cbam=true", "reconstruction.enabled=true")
    built = build(config)
    assert built.decoder is not None
    pixels = torch.rand(2, config.data.channels, config.data.size, config.data.size)
    scores, poses = built.network(pixels)
    assert poses.shape == (2, config.data.classes, 16)
    torch.testing.assert_close(scores, poses.norm(dim=-1))
    assert built.decoder(poses, scores.argmax(1)).shape == pixels.shape


def test_the_layers_have_the_papers_shapes() -> None:
    network = build(composed_config()).network
    images = torch.rand(1, 1, 28, 28)
    features = network.convolution(images).relu()
    assert features.shape == (1, 256, 20, 20)
    assert network.primary(features).poses.shape == (1, 6, 6, 32, 8)
    assert network.classes.matrices.weight.shape == (1152, 10, 16, 8)


def test_cbam_stands_after_the_first_convolutions_relu() -> None:
    network = build(composed_config("attention.cbam=true", "budget=demo")).network.eval()
    images = torch.rand(2, 1, 28, 28)
    inputs_of_cbam: list[torch.Tensor] = []
    network.cbam.register_forward_pre_hook(lambda module, inputs: inputs_of_cbam.append(inputs[0]))
    network(images)
    torch.testing.assert_close(inputs_of_cbam[0], network.convolution(images).relu())


def test_feature_scale_multiplies_what_the_primary_capsules_read() -> None:
    scaled = build(composed_config("model.feature_scale=0.3", "budget=demo")).network
    images = torch.rand(2, 1, 28, 28)
    read: list[torch.Tensor] = []
    scaled.primary.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    scaled(images)
    torch.testing.assert_close(read[0], 0.3 * scaled.convolution(images).relu())


def test_an_empty_image_gives_finite_gradients() -> None:
    network = build(composed_config("budget=demo")).network
    scores, _ = network(torch.zeros(2, 1, 28, 28))
    scores.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())

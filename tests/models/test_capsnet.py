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
        (("attention.cbam=true", "attention.cbam_kernel=3"), 6_804_224 + 8_564 - 2 * (49 - 9)),
        (("attention=se", "attention.first.reduction=8"), 6_804_224 + 2 * 256 * 32 + 256 + 32),
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


@pytest.mark.parametrize(
    ("option", "module", "factor"), [("attention.cbam=true", "cbam", 1.0), ("model.feature_scale=0.3", "primary", 0.3)]
)
def test_what_reads_the_first_convolutions_relu(option: str, module: str, factor: float) -> None:
    network = build(composed_config(option, "budget=demo")).network
    images = torch.rand(2, 1, 28, 28)
    read: list[torch.Tensor] = []
    getattr(network, module).register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    network(images)
    torch.testing.assert_close(read[0], factor * network.convolution(images).relu())

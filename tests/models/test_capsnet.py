"""CapsNet: scores, layers, the place of CBAM."""

import pytest
import torch
from support import composed_config

from capsexp.run.build import build


def test_scores_are_lengths_and_the_decoder_draws_images() -> None:
    config = composed_config("data=cifar10", "budget=demo", "attention.cbam=true", "reconstruction.enabled=true")
    built = build(config)
    assert built.decoder is not None
    pixels = torch.rand(2, config.data.channels, config.data.size, config.data.size)
    scores, poses = built.network(pixels)
    assert poses.shape == (2, config.data.classes, 16)
    torch.testing.assert_close(scores, poses.norm(dim=-1))
    assert built.decoder(poses, scores.argmax(1)).shape == pixels.shape


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

"""tsai's networks: precision, independent images, the place of Caps-Attention."""

import pytest
import torch
from support import composed_config

from capsexp.models import EMCapsNet, InvertedCapsNet
from capsexp.nn import AttentionOptions
from capsexp.run import build


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


@pytest.mark.parametrize("kind", [EMCapsNet, InvertedCapsNet])
def test_caps_attention_is_on_the_votes_for_the_classes(kind: type[EMCapsNet | InvertedCapsNet]):
    network = kind((1, 28, 28), 5, attention=AttentionOptions(caps=True), width=0.1)
    attention = [type(layer.attention).__name__ for layer in network.classes.layers]
    assert attention == ["Identity", "Identity", "CapsAttention"]

"""Reconstructions with one component of a class capsule changed (Sabour et al. 2017, section 5.1)."""

import torch
from torch import Tensor

from capsexp.run.module import CapsuleModule

#: What is added to one dimension of the predicted capsule: from −0.25 to 0.25 in steps of 0.05.
OFFSETS = tuple(step / 20 for step in range(-5, 6))


@torch.no_grad()
def traverse(module: CapsuleModule, pixels: Tensor) -> Tensor:
    """One image's reconstructions, [D, 11, channels, H, W], for each dimension of the predicted capsule and offset.

    At offset 0, [:, 5], is the reconstruction itself.

    Args:
        module: with a decoder, in evaluation mode.
        pixels: of one image, [channels, H, W], between 0 and 1.
    """
    assert module.decoder is not None
    scores, poses = module(pixels[None])
    assert poses is not None
    predicted = scores[0].argmax()
    dimensions = poses.shape[-1]
    offsets = torch.tensor(OFFSETS, device=poses.device, dtype=poses.dtype)
    steps = torch.eye(dimensions, device=poses.device, dtype=poses.dtype)[:, None] * offsets[:, None]  # [D, 11, D]
    changed = poses.repeat(dimensions * len(OFFSETS), 1, 1)
    changed[:, predicted] += steps.flatten(0, 1)
    reconstructions: Tensor = module.decoder(changed, predicted.expand(len(changed)))
    return reconstructions.view(dimensions, len(OFFSETS), *reconstructions.shape[1:])

"""What a class capsule's numbers mean: each moved a little, and the picture drawn anew (Sabour et al. 2017, 5.1)."""

import torch
from torch import Tensor

from capsexp.run.module import CapsuleModule

#: What is added to one dimension of the winning capsule: from −0.25 to 0.25 in steps of 0.05.
OFFSETS = tuple(step / 20 for step in range(-5, 6))


@torch.no_grad()
def traverse(module: CapsuleModule, pixels: Tensor, label: int | None = None) -> Tensor:
    """One image's reconstructions while each dimension of one class capsule is moved by each of OFFSETS.

    Args:
        module: with a decoder, in evaluation mode.
        pixels: of one image, [channels, H, W], between 0 and 1.
        label: the class whose capsule is moved; the winner's, where none is given.

    Gives [D, 11, channels, H, W]; in the middle, [:, 5], is the reconstruction itself.
    """
    assert module.decoder is not None
    scores, poses = module(pixels[None])
    assert poses is not None
    winner = scores[0].argmax() if label is None else torch.tensor(label, device=scores.device)
    dimensions = poses.shape[-1]
    offsets = torch.tensor(OFFSETS, device=poses.device, dtype=poses.dtype)
    moved = torch.eye(dimensions, device=poses.device, dtype=poses.dtype)[:, None] * offsets[:, None]  # [D, 11, D]
    changed = poses.repeat(dimensions * len(OFFSETS), 1, 1)
    changed[:, winner] += moved.flatten(0, 1)
    drawn: Tensor = module.decoder(changed, winner.expand(len(changed)))
    return drawn.view(dimensions, len(OFFSETS), *drawn.shape[1:])

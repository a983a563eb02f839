"""The decoder that reconstructs the image from the class capsules (Sabour et al. 2017, section 4.1)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from capsexp.errors import check_choice
from capsexp.nn.losses import multi_hot


def mask(poses: Tensor, labels: Tensor) -> Tensor:
    """All class capsules but the labelled ones set to zero: [B, J, D], labels [B] or multi-hot [B, J] -> [B, J·D].

    So the decoder's input depends on which capsule is chosen, not on its D components alone.
    """
    chosen = multi_hot(labels, poses.shape[1]).to(poses.dtype).view(poses.shape[:2])
    return (poses * chosen[:, :, None]).flatten(1)


class Decoder(nn.Module):
    """Fully connected layers with ReLU between them, or tanh behind the last hidden one, and a sigmoid at the end.

    Args:
        image_shape: (channels, height, width) of the reconstruction.
        capsules, pose: J and D of the class capsules.
        hidden: widths of the hidden layers.
        last_activation: of the last of them; huang's decoder is "controlled by ReLU and tanh".
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        capsules: int,
        pose: int = 16,
        hidden: Sequence[int] = (512, 1024),
        last_activation: Literal["relu", "tanh"] = "relu",
    ) -> None:
        super().__init__()
        check_choice("last_activation", last_activation, "relu", "tanh")
        self.image_shape = image_shape
        channels, height, width = image_shape
        sizes = [capsules * pose, *hidden, channels * height * width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes[:-1]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        if last_activation == "tanh" and hidden:
            layers[-1] = nn.Tanh()
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))

    def forward(self, poses: Tensor, labels: Tensor) -> Tensor:
        """Poses [B, J, D], labels [B] or multi-hot [B, J] -> pixels between 0 and 1, [B, channels, H, W]."""
        return torch.sigmoid(self.layers(mask(poses, labels))).view(-1, *self.image_shape)

"""Receptive fields of capsules: the weight of each pixel in the capsules at each position.

The weights are the derivative of the poses in a copy of the network whose convolutions are means, so that nothing
cancels and no ReLU is closed, without normalisation, and without attention on features, part of which pools over the
whole image. This needs no knowledge of the layers, and is the effective receptive field of Luo et al. 2016.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsexp.nn.attention import CBAM, ConvAttention
from capsexp.run.observe import Window, observe


class ReceptiveFields(NamedTuple):
    """Of the capsules at H × W positions: the weights of a position's field are a product over rows and columns."""

    rows: Tensor  # [H, size], each sums to 1; 0 outside the field
    columns: Tensor  # [W, size]

    def parents(self, window: Window) -> "ReceptiveFields":
        """Those of parents whose children these are."""
        return ReceptiveFields(*(weights.unfold(0, *window).mean(dim=-1) for weights in self))

    def box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """The field of one position: top, left, and the row and the column after the last."""
        rows, columns = self.rows[row].nonzero(), self.columns[column].nonzero()
        return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1

    def to_pixels(self, values: Tensor) -> Tensor:
        """Values of the positions, [H, W] -> of the pixels, [size, size]: the mean over the positions by their weights.

        NaN outside all fields.
        """
        rows, columns = (weights / weights.sum(dim=0) for weights in self)  # 0 / 0 outside all fields
        return rows.mT @ values @ columns


def receptive_fields(network: nn.Module, image_shape: tuple[int, int, int]) -> ReceptiveFields:
    """Those of the children of a network's lowest layer, in images of (channels, size, size)."""
    pixels = torch.full((1, *image_shape), 0.01, requires_grad=True)  # small: there squash is monotonic in all inputs
    poses = observe(_averaging(network), pixels).layers[0].poses[0]
    height, width = poses.shape[:2]
    fields = []
    for position in range(max(height, width)):  # on the diagonal, for rows and columns together
        total = poses[min(position, height - 1), min(position, width - 1)].sum()
        (derivative,) = torch.autograd.grad(total, pixels, retain_graph=True)
        fields.append(derivative[0].sum(dim=0) / derivative.sum())
    weights = torch.stack(fields)
    return ReceptiveFields(weights[:height].sum(dim=2), weights[:width].sum(dim=1))


@torch.no_grad()
def _averaging(network: nn.Module) -> nn.Module:
    copy = deepcopy(network).requires_grad_(False)
    for parent in list(copy.modules()):
        for name, module in parent.named_children():
            if isinstance(module, CBAM | ConvAttention | nn.BatchNorm2d | nn.LayerNorm):
                setattr(parent, name, nn.Identity())
            elif isinstance(module, nn.Conv2d):
                module.weight.fill_(1 / module.weight[0].numel())
                if module.bias is not None:
                    module.bias.zero_()
    return copy

"""Where in the image a capsule is: how much the capsules at a position look at each pixel.

That is their derivative in a copy of the network whose convolutions are means, so that nothing cancels and no ReLU is
closed, without normalisation, and without attention on features, part of which looks at the whole image. It works for
any network, whatever its convolutions are, and is what Luo et al. 2016 call an effective receptive field.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsexp.nn.attention import CBAM, ConvAttention
from capsexp.nn.capture import Window, observe


class Fields(NamedTuple):
    """How much the H rows of a layer's positions look at each row of pixels, and its W columns at each column."""

    rows: Tensor  # [H, size], each sums to 1; 0 where it sees nothing
    columns: Tensor  # [W, size]

    def above(self, window: Window) -> "Fields":
        """The same for positions that see these through a window."""
        return Fields(*(looks.unfold(0, *window).mean(dim=-1) for looks in self))

    def box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """What the capsules at one position see: top, left, and the row and the column after the last."""
        rows, columns = self.rows[row].nonzero(), self.columns[column].nonzero()
        return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1

    def spread(self, values: Tensor) -> Tensor:
        """Values of the positions, [H, W], as values of the pixels, [size, size]; NaN where nobody looks.

        A pixel gets the mean of the positions, weighted with how much they look at it.
        """
        rows, columns = (looks / looks.sum(dim=0) for looks in self)  # 0 / 0 where nobody looks
        return rows.mT @ values @ columns


def fields(network: nn.Module, image_shape: tuple[int, int, int]) -> Fields:
    """Those of the children of a network's lowest layer, in images of (channels, size, size)."""
    pixels = torch.full((1, *image_shape), 0.01, requires_grad=True)  # so small that squash lets everything grow
    poses = observe(_averaging(network), pixels).layers[0].poses[0]
    height, width = poses.shape[:2]
    seen = []
    for at in range(max(height, width)):  # rows and columns are found together, on the diagonal
        wanted = poses[min(at, height - 1), min(at, width - 1)].sum()
        (derivative,) = torch.autograd.grad(wanted, pixels, retain_graph=True)
        seen.append(derivative[0].sum(dim=0) / derivative.sum())
    together = torch.stack(seen)
    return Fields(together[:height].sum(dim=2), together[:width].sum(dim=1))


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

"""The baseline CNN of Sabour et al. 2017, section 5, which alberti compares CapsNet with.

| layer                   | on MNIST                 | gives         |
|-------------------------|--------------------------|---------------|
| convolution, ReLU       | 256 kernels of 5×5       | 256 × 28 × 28 |
| convolution, ReLU       | 256 kernels of 5×5       | 256 × 28 × 28 |
| convolution, ReLU       | 128 kernels of 5×5       | 128 × 28 × 28 |
| fully connected, ReLU   | 328                      | 328           |
| fully connected, ReLU   | 192, dropout             | 192           |
| fully connected         | J                        | J             |

The text mentions neither padding nor pooling. Sabour et al. count 35.4M parameters, which implies zero padding to the
input's size and no pooling. alberti prints 34.4M.
"""

import math
from typing import Annotated

from annotated_types import Ge, Lt
from torch import nn

from capsexp import WidthFraction
from capsexp.models.parts import ConvolutionalNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions


class SabourCNN(ConvolutionalNetwork):
    """Three convolutions and three fully connected layers, for images of any size.

    Args, besides those of `ConvolutionalNetwork`:
        dropout: fraction of the 192 hidden units that are zero in training; the paper doesn't give it.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.5,
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        wide, narrow, hidden, last = (at_width(channels, width) for channels in (256, 128, 328, 192))
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, wide, 5, padding=2),
            nn.ReLU(),
            cbam(wide, attention, capsules=False),
            nn.Conv2d(wide, wide, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(wide, narrow, 5, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(narrow * math.prod(size), hidden),
            nn.ReLU(),
            nn.Linear(hidden, last),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(last, classes),
        )

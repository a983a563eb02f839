"""huang's baseline CNN ("COIL-20 and smallNORB results"; the CNN column of Table 4).

| layer                 | on 3×32×32        | gives        |
|-----------------------|-------------------|--------------|
| convolution, ReLU     | 32 kernels of 5×5 | 32 × 32 × 32 |
| max pooling           | 2×2               | 32 × 16 × 16 |
| convolution, ReLU     | 64 kernels of 5×5 | 64 × 16 × 16 |
| max pooling           | 2×2               | 64 × 8 × 8   |
| fully connected, ReLU | 1024, dropout     | 1024         |
| fully connected       | J                 | J            |

The text doesn't give the padding. Its sentence is that of Hinton et al. 2018 (matrix capsules, smallNORB), who count
4.2M parameters on 2×32×32 images of five classes: there, zero padding to the input's size gives 4,253,349, no padding
1.7M. Activations and the dropout rate aren't given either; here they are ReLU and 0.5.
"""

import math
from typing import Annotated, Literal

from annotated_types import Ge, Lt
from torch import nn

from capsexp import WidthFraction
from capsexp.errors import check_choice
from capsexp.models.parts import ConvolutionalNetwork, at_width, cbam, initialise_as_keras
from capsexp.nn.attention import AttentionOptions
from capsexp.nn.capsules import output_size


class HuangCNN(ConvolutionalNetwork):
    """Two convolutions and two fully connected layers; initialised as in Keras, like DA-CapsNet.

    Args, besides those of `ConvolutionalNetwork`:
        padding: of the convolutions, `same` or `valid` (none).
        dropout: fraction of the 1024 hidden units that are zero in training.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        padding: Literal["same", "valid"] = "same",
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.5,
    ) -> None:
        super().__init__()
        check_choice("padding", padding, "same", "valid")
        inputs, size = image_shape[0], image_shape[1:]
        first, second, hidden = (at_width(channels, width) for channels in (32, 64, 1024))
        zeros = 2 if padding == "same" else 0
        for _ in range(2):
            size = output_size(output_size(size, 5, padding=zeros), 2, stride=2)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, first, 5, padding=zeros),
            nn.ReLU(),
            cbam(first, attention, capsules=False),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=zeros),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * math.prod(size), hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        initialise_as_keras(self)

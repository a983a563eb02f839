"""tsai's CapsNet (Fig. 1, Tables 8 to 11).

| layer                  | CIFAR-10                   | CIFAR-100                  | DiverseMultiMNIST           |
|------------------------|----------------------------|----------------------------|-----------------------------|
| backbone               | 256 of 3×3, stride 2, ReLU | 128 of 3×3, stride 2, ReLU | 1024 of 3×3, stride 2, ReLU |
|  or                    | ResNet, 128 channels       | ResNet, 128 channels       |                             |
| CBAM (a flag)          |                            |                            |                             |
| primary capsules       | 16×16×32 of 4×4            | 16×16×32 of 6×6            | 8×8×16 of 64, or of 8×8     |
|  by                    | 1×1                        | 1×1                        | 3×3, stride 2               |
| convolutional capsules | 7×7×32 by 3×3, stride 2    | 7×7×32 by 3×3, stride 2    | 6×6×16 by 3×3, stride 1     |
| convolutional capsules | 5×5×32 by 3×3, stride 1    | 5×5×32 by 3×3, stride 1    |                             |
| linear capsules        |                            | 20                         |                             |
| class capsules         | 10                         | 100                        | 10                          |
| linear classifier      | 16 → 1, shared             | 36 → 1, shared             | 64 → 1, shared              |

In linear capsules each child at each position has its own matrices, and the primary convolution has no bias, as in the
authors' release; the numbers of parameters agree. With dynamic routing, squashes replace the LayerNorms, and the scores
are the lengths of the class capsules: "CapsNet*" of Fig. 5.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from capsexp import Count, WidthFraction
from capsexp.models.parts import BackboneNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions, CapsAttention, ConvAttention
from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules, output_size
from capsexp.nn.hierarchy import Hierarchy
from capsexp.nn.primary import PrimaryCapsules
from capsexp.nn.routing import RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.routing.inverted import InvertedRouting


class InvertedCapsNet(BackboneNetwork):
    """The network of inverted dot-product attention routing.

    Args, besides those of `BackboneNetwork`:
        primary_kernel, primary_stride: of the primary capsules' convolution.
        capsule_types: of the primary and the convolutional capsules.
        pose: D of every capsule.
        structure: of the poses; `matrix` needs a square number for D.
        strides: of the convolutional layers, one each; their kernels are 3×3.
        hidden: capsules of the linear layers before the last.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = InvertedRouting,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        backbone: Literal["simple", "resnet"] = "simple",
        channels: Count = 256,
        resnet_channels: Count = 128,
        resnet_stem: Count = 64,
        primary_kernel: Count = 1,
        primary_stride: Count = 1,
        capsule_types: Count = 32,
        pose: Count = 16,
        structure: Literal["vector", "matrix"] = "matrix",
        strides: Sequence[Count] = (2, 1),  # tuples: in the keys of runs, these are no defaults
        hidden: Sequence[Count] = (),
    ) -> None:
        super().__init__(image_shape, width, backbone, (channels, resnet_channels, resnet_stem), (3, 2, 1, False))
        types = at_width(capsule_types, width)
        size = output_size(self.size, primary_kernel, primary_stride)
        layers: list[CapsuleLayer] = []
        for stride in strides:
            size = output_size(size, 3, stride)
            procedure = make_routing(routing, 9 * types, types, pose, pose)
            layers.append(ConvCapsules(types, types, pose, pose, 3, stride, procedure, structure=structure))
        linear = [types * math.prod(size), *(at_width(capsules, width) for capsules in hidden), classes]
        self.cbam = cbam(self.features, attention)
        for number, sizes in enumerate(pairwise(linear), 2 - len(linear)):  # 0 is the last
            procedure = make_routing(routing, *sizes, pose, pose, last=number == 0)
            on_votes = CapsAttention(pose) if attention.caps and number == 0 else None
            layers.append(LinearCapsules(*sizes, pose, pose, procedure, on_votes, structure, scale=None))
        self.primary = PrimaryCapsules(
            self.features,
            types,
            pose,
            primary_kernel,
            primary_stride,
            presence=layers[0].routing.presence,
            activations=layers[0].routing.uses_activations,
            bias=False,
            attention=ConvAttention(types * pose) if attention.conv else None,
        )
        self.classes = Hierarchy(layers)
        self.scores = ClassScores(layers[-1].routing, pose)

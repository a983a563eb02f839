"""The CapsNet of EM routing that tsai compares with (Tables 6 and 7; Hinton et al. 2018, Fig. 1).

| layer                  | on 3×32×32                                                          | gives        |
|------------------------|---------------------------------------------------------------------|--------------|
| backbone               | 256 kernels of 4×4, stride 2, batch norm, ReLU; or ResNet, 128 channels | 256 × 16 × 16 |
| CBAM (a flag)          |                                                                     | the same     |
| primary capsules       | 32 types of 4×4 numbers and an activation, 1×1                      | 16 × 16 × 32 |
| convolutional capsules | 32 types of 4×4, kernel 3×3, stride 2, by routing                   | 7 × 7 × 32   |
| convolutional capsules | 32 types of 4×4, kernel 3×3, stride 1, by routing                   | 5 × 5 × 32   |
| class capsules         | J of 4×4, matrices shared over the 5×5 positions, by routing        | J × 16       |

The shared class matrices are Hinton et al.'s, and follow from the 0.45M and 0.50M parameters. Their coordinate addition
is in none of tsai's tables, and left out here.
"""

import math
from typing import Literal

from capsexp import Count, Positive, WidthFraction
from capsexp.models.parts import BackboneNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions, CapsAttention, ConvAttention
from capsexp.nn.capsules import ConvCapsules, LinearCapsules, output_size
from capsexp.nn.hierarchy import Hierarchy
from capsexp.nn.primary import PrimaryCapsules
from capsexp.nn.routing import RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.routing.em import EMRouting


class EMCapsNet(BackboneNetwork):
    """The network of EM routing.

    Args, besides those of `BackboneNetwork`:
        capsule_types: of each layer but the last.
        pose: D of every capsule, a square number.
        scale: standard deviation of the initial transformation matrices. The papers don't give it. None: the routing's
            own; of EM routing 1, since poses are not normalised in this network: with much smaller matrices they vanish
            before the class capsules.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = EMRouting,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        backbone: Literal["simple", "resnet"] = "simple",
        channels: Count = 256,
        resnet_channels: Count = 128,
        resnet_stem: Count = 64,
        capsule_types: Count = 32,
        pose: Count = 16,
        scale: Positive | None = None,
    ) -> None:
        super().__init__(image_shape, width, backbone, (channels, resnet_channels, resnet_stem), (4, 2, 1, True))
        types = at_width(capsule_types, width)
        size = output_size(output_size(self.size, 3, stride=2), 3)  # of the children of the class capsules
        layers = (9 * types, types), (9 * types, types), (types * math.prod(size), classes)
        procedures = [make_routing(routing, *layer, pose, pose, last=layer is layers[-1]) for layer in layers]
        self.cbam = cbam(self.features, attention)
        self.primary = PrimaryCapsules(
            self.features,
            types,
            pose,
            kernel=1,
            presence=procedures[0].presence,
            activations=procedures[0].uses_activations,
            attention=ConvAttention(types * pose) if attention.conv else None,
        )
        self.classes = Hierarchy(
            [
                ConvCapsules(types, types, pose, pose, 3, stride=2, routing=procedures[0], scale=scale),
                ConvCapsules(types, types, pose, pose, 3, stride=1, routing=procedures[1], scale=scale),
                LinearCapsules(
                    types,
                    classes,
                    pose,
                    pose,
                    procedures[2],
                    attention=CapsAttention(pose) if attention.caps else None,
                    structure="matrix",
                    scale=scale,
                    shared=True,
                ),
            ]
        )
        self.scores = ClassScores(procedures[-1], pose)

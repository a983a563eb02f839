"""The CapsNet of dynamic routing that tsai compares with (Tables 4 and 5; "modifications" in A.1).

| layer            | simple backbone                  | gives         | ResNet backbone     | gives         |
|------------------|----------------------------------|---------------|---------------------|---------------|
| backbone         | 256 kernels of 9×9, ReLU         | 256 × 24 × 24 | 7 residual blocks   | 256 × 16 × 16 |
| CBAM (a flag)    |                                  | the same      |                     | the same      |
| primary capsules | 32 types of 8 numbers, squash: 9×9, stride 2 | 2048 × 8 | 9×9, stride 1 | 2048 × 8      |
| class capsules   | J of 16 numbers, by routing      | J × 16        | the same            | J × 16        |

With the simple backbone it is Sabour et al.'s CapsNet for 3×32×32. Table 1's 12.45M parameters imply a ResNet of 256
channels; with the text's 128 there would be fewer.
"""

import math
from typing import Literal

from capsexp import Count, WidthFraction
from capsexp.models.parts import BackboneNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions, CapsAttention, ConvAttention
from capsexp.nn.capsules import LinearCapsules, output_size
from capsexp.nn.primary import PrimaryCapsules
from capsexp.nn.routing import RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.routing.dynamic import DynamicRouting


class DynamicCapsNet(BackboneNetwork):
    """Its primary poses are always squashed.

    Args, besides those of `BackboneNetwork`:
        kernel: side of the simple backbone's kernels and of the primary capsules'.
        capsule_types, primary_pose: of the primary capsules.
        class_pose: D.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = DynamicRouting,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        backbone: Literal["simple", "resnet"] = "simple",
        channels: Count = 256,
        resnet_channels: Count = 256,
        resnet_stem: Count = 64,
        kernel: Count = 9,
        capsule_types: Count = 32,
        primary_pose: Count = 8,
        class_pose: Count = 16,
    ) -> None:
        widths = channels, resnet_channels, resnet_stem
        super().__init__(image_shape, width, backbone, widths, (kernel, 1, 0, False))
        types, stride = at_width(capsule_types, width), 2 if backbone == "simple" else 1
        self.cbam = cbam(self.features, attention)
        self.primary = PrimaryCapsules(
            self.features,
            types,
            primary_pose,
            kernel,
            stride,
            attention=ConvAttention(types * primary_pose) if attention.conv else None,
        )
        sizes = types * math.prod(output_size(self.size, kernel, stride)), classes, primary_pose, class_pose
        procedure = make_routing(routing, *sizes, last=True)
        self.classes = LinearCapsules(
            *sizes,
            procedure,
            attention=CapsAttention(class_pose) if attention.caps else None,
            scale=procedure.scale or 0.1,  # that of Sabour et al.'s release
            types_first=True,
        )
        self.scores = ClassScores(procedure, class_pose)

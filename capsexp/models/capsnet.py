"""CapsNet (Sabour et al. 2017, Fig. 1; jiao, Table I), with CBAM after the first convolution (jiao, Fig. 5).

| layer           | on MNIST                                              | gives        |
|-----------------|-------------------------------------------------------|--------------|
| convolution     | 256 kernels of 9×9, stride 1, ReLU                    | 256 × 20 × 20 |
| CBAM (a flag)   | 256 channels, 7×7                                     | the same     |
| primary capsules| 32 types of 8 numbers, 9×9, stride 2, squash          | 1152 × 8     |
| class capsules  | 10 of 16 numbers, by routing                          | 10 × 16      |
"""

import math

from torch import Tensor, nn

from capsexp import Count, Positive, WidthFraction
from capsexp.models.parts import CapsuleNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions, CapsAttention, ConvAttention
from capsexp.nn.capsules import LinearCapsules, output_size
from capsexp.nn.primary import PrimaryCapsules
from capsexp.nn.routing import Capsules, RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.routing.dynamic import DynamicRouting


class CapsNet(CapsuleNetwork):
    """CapsNet for images of any size that its two kernels fit on.

    Args:
        routing: makes the class capsules' procedure, see `capsexp.nn.Routing`; the primary poses are always squashed.
        attention: `cbam` after the first convolution, `conv` on the primary capsules' convolution, `caps` on the votes.
        width: fraction of the channels and of the primary capsule types.
        channels: of the first convolution.
        kernel: side of both convolutions.
        capsule_types, primary_pose: of the primary capsules.
        class_pose: D.
        squash_constant: k of the squash function; 1 in Sabour et al., 0.5 in huang.
        feature_scale: factor on the features that the primary capsules' convolution reads. CBAM's sigmoids multiply
            them by about 0.3 at first: 0.3 without CBAM is the control of its other effects.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = DynamicRouting,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        channels: Count = 256,
        kernel: Count = 9,
        capsule_types: Count = 32,
        primary_pose: Count = 8,
        class_pose: Count = 16,
        squash_constant: Positive = 1.0,
        feature_scale: Positive = 1.0,
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        channels, types = at_width(channels, width), at_width(capsule_types, width)
        positions = output_size(output_size(size, kernel), kernel, stride=2)
        self.convolution = nn.Conv2d(inputs, channels, kernel)
        self.feature_scale = feature_scale
        self.cbam = cbam(channels, attention)
        self.primary = PrimaryCapsules(
            channels,
            types,
            primary_pose,
            kernel,
            stride=2,
            squash_constant=squash_constant,
            attention=ConvAttention(types * primary_pose) if attention.conv else None,
        )
        sizes = types * math.prod(positions), classes, primary_pose, class_pose
        procedure = make_routing(routing, *sizes, squash_constant, last=True)
        self.classes = LinearCapsules(
            *sizes,
            procedure,
            attention=CapsAttention(class_pose) if attention.caps else None,
            scale=procedure.scale or 0.1,  # that of Sabour et al.'s release
            types_first=True,
        )
        self.scores = ClassScores(procedure, class_pose)

    def forward_features(self, images: Tensor) -> Capsules:
        """[B, channels, H, W] -> the primary capsules: poses [B, H', W', I, C], activations [B, H', W', I]."""
        features = self.cbam(self.convolution(images).relu())
        return self.primary(features if self.feature_scale == 1 else features * self.feature_scale)

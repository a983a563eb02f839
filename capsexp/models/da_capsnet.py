"""DA-CapsNet, the dual attention mechanism capsule network (huang, Fig. 4 and Table 3).

| layer                    | on 3×32×32 | on 1×28×28 | gives          |
|--------------------------|------------|------------|----------------|
| convolution, ReLU        | 64 of 3×3  | 64 of 3×3  | 64 × 30 × 30, 64 × 26 × 26   |
| convolution, ReLU        | 64 of 3×3  | 64 of 3×3  | 64 × 28 × 28, 64 × 24 × 24   |
| average pooling          | 2×2        | 2×2        | 64 × 14 × 14, 64 × 12 × 12   |
| convolution, ReLU        | 128 of 3×3 | 128 of 2×2 | 128 × 12 × 12, 128 × 11 × 11 |
| convolution, ReLU        | 128 of 3×3 | 128 of 2×2 | 128 × 10 × 10  |
| Conv-Attention (a flag)  |            |            | the same       |
| votes, linear            | J · 16 of 1×1, no bias | the same | 100 × J × 16 |
| Caps-Attention (a flag)  |            |            | the same       |
| class capsules           | by routing | by routing | J × 16         |

With both flags off it is the paper's CapsNet. The paper cites the Keras example of a convolutional network with a
capsule layer (CIFAR-10) as its base. Details that the paper doesn't give are that example's: no padding, ReLU before
the votes, the 128 channels of a position as its child capsule without a squash, Glorot's initialisation.
"""

import math

import torch
from torch import Tensor, nn

from capsexp import Count, Positive, WidthFraction
from capsexp.models.parts import CapsuleNetwork, at_width, cbam, initialise_as_keras
from capsexp.nn.attention import AttentionOptions, Axis, AxisAttention, ConvAttention
from capsexp.nn.capsules import LinearCapsules, output_size
from capsexp.nn.precision import at_least_float32
from capsexp.nn.routing import Capsules, RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.nn.squash import squash
from capsexp.routing.dynamic import DynamicRouting


class DACapsNet(CapsuleNetwork):
    """huang's network for images of any size that its kernels fit on.

    Args:
        routing: of the class capsules; a child's activation is the length of its squashed pose.
        attention: `cbam` after the first convolution's ReLU, `conv` on the last convolution's output, `caps` on the
            votes.
        width: fraction of the channels.
        channels: of the first two convolutions; the next two have twice as many.
        second_kernel: side of the second pair of kernels; null: 3 for images larger than 28×28, else 2 (Table 3).
        extra_convolution: a fifth convolution of 4 · `channels` kernels of 3×3, which Table 3 has for 32×32 images; it
            contradicts the text's [10, 10, 128].
        class_pose: D.
        caps_axis: the axis of the votes that Caps-Attention acts along, see `AxisAttention`; the paper doesn't give it.
        squash_constant: k of the squash function; 1 in the first row of Table 1.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = DynamicRouting,
        attention: AttentionOptions = AttentionOptions(conv=True, caps=True),
        *,
        width: WidthFraction = 1.0,
        channels: Count = 64,
        second_kernel: Count | None = None,
        extra_convolution: bool = False,
        class_pose: Count = 16,
        caps_axis: Axis = "pose",
        squash_constant: Positive = 0.5,
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        second = second_kernel or (3 if min(size) > 28 else 2)
        first, child = at_width(channels, width), at_width(2 * channels, width)
        size = output_size(output_size(output_size(size, 3), 3), 2, stride=2)
        size = output_size(output_size(size, second), second)
        trunk = [
            nn.Conv2d(first, first, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(first, child, second),
            nn.ReLU(),
            nn.Conv2d(child, child, second),
            nn.ReLU(),
        ]
        if extra_convolution:
            inner, child = child, at_width(4 * channels, width)
            size = output_size(size, 3)
            trunk += [nn.Conv2d(inner, child, 3), nn.ReLU()]
        self.convolution = nn.Conv2d(inputs, first, 3)
        self.cbam = cbam(first, attention)
        self.trunk = nn.Sequential(*trunk)
        self.attention = ConvAttention(child) if attention.conv else nn.Identity()
        self.squash_constant = squash_constant
        positions = math.prod(size)
        procedure = make_routing(routing, positions, classes, child, class_pose, squash_constant, last=True)
        self.classes = LinearCapsules(
            1,  # child at each position; the matrices are shared over positions: "each capsule shares the weight"
            classes,
            child,
            class_pose,
            procedure,
            attention=AxisAttention(caps_axis, positions, classes, class_pose) if attention.caps else None,
            shared=True,
            scale=math.sqrt(2 / (child + classes * class_pose)),  # Glorot's, of one matrix of J · D × C
        )
        self.scores = ClassScores(procedure, class_pose)
        initialise_as_keras(self)

    def forward_features(self, images: Tensor) -> Capsules:
        """[B, channels, H, W] -> the children of the class capsules: poses [B, H', W', 1, C], activations likewise."""
        features = self.attention(self.trunk(self.cbam(self.convolution(images).relu())))
        children, grid = features.flatten(2).mT, (*features.shape[2:], 1)  # a child at each position
        lengths = torch.linalg.vector_norm(squash(at_least_float32(children), self.squash_constant), dim=-1)
        return Capsules(children.unflatten(1, grid), lengths.unflatten(1, grid))

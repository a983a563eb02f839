"""Efficient-CapsNet (mazzia, "Efficient-CapsNet").

| layer                                    | on MNIST               | gives         |
|------------------------------------------|------------------------|---------------|
| convolution, ReLU, batch norm            | 32 kernels of 5×5      | 32 × 24 × 24  |
| CBAM (a flag)                            |                        | the same      |
| convolution, ReLU, batch norm            | 64 kernels of 3×3      | 64 × 22 × 22  |
| convolution, ReLU, batch norm            | 64 kernels of 3×3      | 64 × 20 × 20  |
| convolution, ReLU, batch norm            | 128 of 3×3, stride 2   | 128 × 9 × 9   |
| Conv-Attention (a flag)                  |                        | the same      |
| depthwise convolution, squash            | 9×9, all that is left  | 16 × 8        |
| Caps-Attention on the votes (a flag)     |                        | 16 × J × 16   |
| class capsules, self-attention routing   |                        | J × 16        |

161,824 parameters on MNIST. From the authors' release, not the text: ReLU before batch norm, Glorot's initialisation of
the depthwise convolution, and He's of the transformation matrices with J · I · C in place of the number of inputs.

Not as in the release: its batch norms have Keras' epsilon, 0.001, and momentum, 0.01 in torch's terms; here they have
torch's, 1e-5 and 0.1, the latter since small data sets need it. It shifts images before it squeezes them, to the left
and up by amounts rounded up, so that none with a margin stays in its place, and rotates by whole degrees; with
preprocess=mazzia they are squeezed first, and shifts to all sides are rounded towards 0.
"""

import math

import torch
from torch import Tensor, nn

from capsexp import Count, WidthFraction
from capsexp.models.parts import CapsuleNetwork, at_width, cbam
from capsexp.nn.attention import AttentionOptions, CapsAttention, ConvAttention
from capsexp.nn.capsules import LinearCapsules, output_size
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores
from capsexp.nn.squash import exponential_squash
from capsexp.routing.self_attention import SelfAttentionRouting


class EfficientCapsNet(CapsuleNetwork):
    """For images of 11×11 pixels and more; the depthwise kernel is as large as the feature map.

    Args:
        routing: makes the class capsules' procedure, see `capsexp.nn.Routing`; the primary poses are always squashed.
        attention: `cbam` after the first batch norm, `conv` on the last feature map, `caps` on the votes.
        width: fraction of the channels and of the primary capsules.
        capsule_types, primary_pose: number and size of the primary capsules.
        class_pose: D.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        routing: RoutingFactory = SelfAttentionRouting,
        attention: AttentionOptions = AttentionOptions(),
        *,
        width: WidthFraction = 1.0,
        capsule_types: Count = 16,
        primary_pose: Count = 8,
        class_pose: Count = 16,
    ) -> None:
        super().__init__()
        inputs, size = image_shape[0], image_shape[1:]
        first, second = at_width(32, width), at_width(64, width)
        children = at_width(capsule_types, width)
        features = children * primary_pose
        size = output_size(output_size(output_size(output_size(size, 5), 3), 3), 3, stride=2)
        self.trunk = nn.Sequential(
            *_normed(inputs, first, 5),
            cbam(first, attention),
            *_normed(first, second, 3),
            *_normed(second, second, 3),
            *_normed(second, features, 3, stride=2),
            ConvAttention(features) if attention.conv else nn.Identity(),
        )
        self.depthwise = nn.Conv2d(features, features, size, groups=features)
        nn.init.xavier_uniform_(self.depthwise.weight)
        nn.init.zeros_(self.depthwise.bias)  # type: ignore[arg-type]
        layer = children, classes, primary_pose, class_pose
        self.classes = LinearCapsules(
            *layer,
            make_routing(routing, *layer, last=True),
            attention=CapsAttention(class_pose) if attention.caps else None,
            scale=math.sqrt(2 / (classes * children * primary_pose)),
        )
        self.sizes = children, primary_pose
        self.scores = ClassScores(self.classes.routing, class_pose)

    def forward_features(self, images: Tensor) -> Capsules:
        """[B, channels, H, W] -> the primary capsules: poses [B, 1, 1, I, C], activations [B, 1, 1, I]."""
        components = at_least_float32(self.depthwise(self.trunk(images)).movedim(1, -1))
        with full_precision(components):
            children = exponential_squash(torch.unflatten(components, -1, self.sizes))
            return Capsules(children, torch.linalg.vector_norm(children, dim=-1))


def _normed(inputs: int, channels: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, channels, kernel, stride)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return [convolution, nn.ReLU(), nn.BatchNorm2d(channels)]

"""What several networks share: sizes, CBAM, the backbone, initialisation, the forward pass."""

from typing import ClassVar, Literal

from torch import Tensor, nn

from capsexp.errors import check_choice
from capsexp.nn.attention import CBAM, AttentionOptions
from capsexp.nn.backbones import ResNetBackbone
from capsexp.nn.capsules import output_size
from capsexp.nn.routing import Capsules
from capsexp.nn.scores import Prediction


def at_width(channels: int, width: float) -> int:
    """The number of channels at a fraction `width` of the paper's, at least one; raises ValueError for no fraction."""
    if not 0 < width <= 1:
        raise ValueError(f"width={width}: must be above 0 and at most 1")
    return max(1, round(channels * width))


def cbam(channels: int, attention: AttentionOptions, capsules: bool = True) -> nn.Module:
    """CBAM for a feature map of so many channels, or the module in its place; the identity where there is neither.

    Raises ValueError for both, and without `capsules` for the attention flags of capsule networks.
    """
    if not isinstance(attention, AttentionOptions):
        raise TypeError(f"attention={attention}: must be capsexp.nn.AttentionOptions(…)")
    if flags := [f"attention.{flag}=true" for flag in ("conv", "caps") if getattr(attention, flag) and not capsules]:
        only = "this network has no capsules; it takes only attention.cbam and attention.first"
        raise ValueError(f"{' and '.join(flags)}: {only}")
    if attention.first:
        if attention.cbam:
            raise ValueError("attention.cbam=true: attention.first is in its place")
        return attention.first(channels)
    if not attention.cbam:
        return nn.Identity()
    return CBAM(channels, attention.cbam_reduction, attention.cbam_momentum, attention.cbam_kernel)


def initialise_as_keras(network: nn.Module) -> None:
    """Sets Keras' defaults in place: Glorot's uniform weights and zero biases in all convolutions and linear layers.

    torch's weights have a third of that variance where a layer has as many inputs as outputs, and its biases aren't
    zero: DA-CapsNet then learns more slowly at first.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class CapsuleNetwork(nn.Module):
    """Images -> primary capsules -> class capsules -> scores.

    A subclass sets the two layers and writes `forward_features`.
    """

    classes: nn.Module  # from the primary to the class capsules
    scores: nn.Module

    def forward_features(self, images: Tensor) -> Capsules:
        """[B, channels, H, W] -> the primary capsules: poses [B, H', W', I, C], activations [B, H', W', I] or None."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Prediction:
        """[B, channels, H, W] -> scores [B, J], and the classes' poses [B, J, D]."""
        if images.ndim != 4:
            raise ValueError(f"images must be [B, channels, H, W], not {[*images.shape]}")
        classes = self.classes(self.forward_features(images))
        return Prediction(self.scores(classes), classes.poses)


class BackboneNetwork(CapsuleNetwork):
    """tsai's order of the lower layers, for images of any size that the kernels fit on.

    Args, of all its networks:
        routing: makes a layer's procedure; see `capsexp.nn.routing.Routing` for primary poses and scores.
        attention: `cbam` after the backbone, `conv` on the convolution that gives the primary poses, `caps` on the
            votes for the class capsules.
        width: fraction of the channels and of the capsule types.
        backbone: one convolution, or residual blocks.
        channels, resnet_channels: of the simple and the ResNet backbone's feature map.
        resnet_stem: channels of the ResNet's first half.
    """

    #: Arguments that mean something only beside a value of another: (its name, the value).
    only_with: ClassVar = {
        "channels": ("backbone", "simple"),
        "resnet_channels": ("backbone", "resnet"),
        "resnet_stem": ("backbone", "resnet"),
    }
    cbam: nn.Module
    primary: nn.Module

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        width: float,
        kind: Literal["simple", "resnet"],
        channels: tuple[int, int, int],
        convolution: tuple[int, int, int, bool],
    ) -> None:
        """Makes the backbone, and sets channels, height and width of its feature map: `features`, `size`.

        Args:
            channels: of the feature map, by kind; then of the residual blocks' first half.
            convolution: kernel, stride and padding of the one convolution, and whether batch norm follows.
        """
        super().__init__()
        check_choice("backbone", kind, "simple", "resnet")
        simple, residual, stem = (at_width(count, width) for count in channels)
        inputs, size = image_shape[0], image_shape[1:]
        if kind == "simple":
            kernel, stride, padding, normed = convolution
            self.features, self.size = simple, output_size(size, kernel, stride, padding)
            norms = [nn.BatchNorm2d(simple)] if normed else []
            convolved = nn.Conv2d(inputs, simple, kernel, stride, padding)
            self.backbone: nn.Module = nn.Sequential(convolved, *norms, nn.ReLU())
        else:
            self.features, self.size = residual, output_size(size, 3, stride=2, padding=1)
            self.backbone = ResNetBackbone(inputs, stem, residual)

    def forward_features(self, images: Tensor) -> Capsules:
        """See `CapsuleNetwork`."""
        return self.primary(self.cbam(self.backbone(images)))


class ConvolutionalNetwork(nn.Module):
    """A network without capsules: `layers` from images to logits.

    Args, of all of them:
        attention: `cbam` after the first convolution's ReLU; no other.
        width: fraction of the channels and of the hidden units.
    """

    layers: nn.Sequential

    def forward(self, images: Tensor) -> Prediction:
        """[B, channels, H, W] -> logits [B, J]."""
        if images.ndim != 4:
            raise ValueError(f"images must be [B, channels, H, W], not {[*images.shape]}")
        return Prediction(self.layers(images), None)

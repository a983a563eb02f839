"""Building blocks: capsule layers, attention, decoder, losses. They need torch and nothing else of a run.

Shape letters, everywhere: B batch, I child capsules, J parent capsules, C child pose size,
D parent pose size, K kernel positions, H W space.
"""

from capsexp.nn.attention import CBAM, AttentionOptions, AxisAttention, CapsAttention, ConvAttention, SqueezeExcitation
from capsexp.nn.backbones import ResidualBlock, ResNetBackbone
from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules
from capsexp.nn.decoder import Decoder
from capsexp.nn.hierarchy import Hierarchy
from capsexp.nn.losses import BinaryCrossEntropyLoss, CrossEntropyLoss, MarginLoss, SpreadLoss, reconstruction_loss
from capsexp.nn.matrices import TransformationMatrices
from capsexp.nn.primary import PrimaryCapsules
from capsexp.nn.routing import Capsules, Routing, RoutingFactory, make_routing
from capsexp.nn.scores import ClassScores, Prediction
from capsexp.nn.squash import exponential_squash, squash

__all__ = [
    "CBAM", "AttentionOptions", "AxisAttention", "BinaryCrossEntropyLoss", "CapsAttention", "CapsuleLayer",
    "Capsules", "ClassScores", "ConvAttention", "ConvCapsules", "CrossEntropyLoss", "Decoder", "Hierarchy",
    "LinearCapsules", "MarginLoss", "Prediction", "PrimaryCapsules", "ResNetBackbone",
    "ResidualBlock", "Routing", "RoutingFactory", "SpreadLoss", "SqueezeExcitation", "TransformationMatrices",
    "exponential_squash", "make_routing", "reconstruction_loss", "squash",
]  # fmt: skip

"""Each published network, assembled from `nn` and `routing`: a page each, with the paper's defaults.

A network with capsules is made as `Network(image_shape, classes, routing, attention, *, …)`, one without as
`Network(image_shape, classes, attention, *, …)`: (channels, height, width); J; what makes a layer's routing procedure,
a class of capsexp.routing for example; and its attention modules. `capsexp.nn.routing.Routing` defines the scores of
each procedure, and the primary capsules of EMCapsNet and InvertedCapsNet; where capsules have no activations of their
own, EM routing takes their lengths. The keyword-only arguments are the keys under `model` of a configuration. Its
forward pass takes images [B, channels, H, W] and returns a `Prediction`, scores [B, J] and poses [B, J, D]. Arguments
that make no network, such as a kernel that doesn't fit, raise ValueError with one line.
"""

from capsexp.models.capsnet import CapsNet
from capsexp.models.da_capsnet import DACapsNet
from capsexp.models.dynamic_capsnet import DynamicCapsNet
from capsexp.models.efficient_capsnet import EfficientCapsNet
from capsexp.models.em_capsnet import EMCapsNet
from capsexp.models.huang_cnn import HuangCNN
from capsexp.models.inverted_capsnet import InvertedCapsNet
from capsexp.models.resnet18 import ResNet18
from capsexp.models.sabour_cnn import SabourCNN
from capsexp.models.tsai_cnn import TsaiCNN, TsaiMultiCNN

__all__ = [
    "CapsNet", "DACapsNet", "DynamicCapsNet", "EMCapsNet", "EfficientCapsNet", "HuangCNN", "InvertedCapsNet",
    "ResNet18", "SabourCNN", "TsaiCNN", "TsaiMultiCNN",
]  # fmt: skip

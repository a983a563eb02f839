"""How weights begin, where a paper's code base says so."""

from torch import nn


def begin_as_keras(network: nn.Module) -> None:
    """Glorot's uniform weights and zero biases in every convolution and linear layer, in place.

    They are Keras' defaults. torch's weights have a third of that variance where a layer has as many inputs as
    outputs, and its biases aren't zero: DA-CapsNet then learns more slowly at first.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

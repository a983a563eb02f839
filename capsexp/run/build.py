"""From a configuration to a network: checked on the meta device, before any data is read."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from capsexp.config.checks import NAME, Component, import_target, make
from capsexp.config.schema import Config
from capsexp.errors import InputError, first_line
from capsexp.nn.capsules import use_reference
from capsexp.nn.decoder import Decoder
from capsexp.nn.losses import BinaryCrossEntropyLoss
from capsexp.nn.routing import Routing, RoutingFactory
from capsexp.nn.scores import Prediction, Scores


@dataclass(frozen=True)
class Built:
    """A network, and the decoder of its class capsules where there is one."""

    network: nn.Module
    decoder: nn.Module | None

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        modules = [self.network] + ([self.decoder] if self.decoder is not None else [])
        return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


def build(config: Config) -> Built:
    """The network and decoder of a configuration, with parameters drawn from torch's random state.

    Raises InputError with one line when they can't be built.
    """
    image_shape = (config.data.channels, config.data.size, config.data.size)
    try:
        routing = routing_factory(config.routing)
        network = make(config.model, "model", image_shape, config.data.classes, routing, config.attention)
        if config.trainer.routing == "reference":
            use_reference(network)
        prediction = _predict_zeros(network, image_shape)
    except (ValueError, RuntimeError) as error:
        name, data = config.model[NAME], config.data
        raise InputError(f"model={name} on {data.name} ({data.size}×{data.size}): {first_line(error)}") from error
    if prediction.poses is None and config.routing[NAME] != "none":
        raise InputError(
            f"routing={config.routing[NAME]}: model={config.model[NAME]} has no capsules; leave it at none"
        )
    if not config.reconstruction.enabled:
        return Built(network, None)
    if prediction.poses is None:
        raise InputError(f"reconstruction.enabled=true: model={config.model[NAME]} has no class capsules to draw from")
    _, capsules, pose = prediction.poses.shape
    return Built(network, Decoder(capsules, pose, config.reconstruction.hidden, image_shape))


def count_parameters(config: Config) -> int:
    """The number of trainable parameters, without allocating them; raises InputError as `build` does."""
    with torch.device("meta"):
        return build(config).parameters


def make_loss(node: Component, network: nn.Module) -> Any:
    """The loss; binary cross-entropy for logits where the network's scores are logits."""
    loss = make(node, "loss")
    if isinstance(loss, BinaryCrossEntropyLoss):
        scores = getattr(network, "scores", None)
        loss.logits = not isinstance(scores, Scores) or scores.classifier is not None
    return loss


def routing_factory(node: Component) -> RoutingFactory:
    """Makes the routing procedures of a network's layers; the squash constant goes only to a class that takes one."""
    squashes = "squash_constant" in inspect.signature(import_target(node, "routing")).parameters

    def procedure(parents: int, pose: int, squash_constant: float = 1.0) -> Routing:
        made: Routing = make(node, "routing", parents, pose, *([squash_constant] if squashes else []))
        return made

    return procedure


def _predict_zeros(network: nn.Module, image_shape: tuple[int, int, int]) -> Prediction:
    """The network's output for two empty images; on the meta device nothing is computed."""
    with torch.no_grad():
        training = network.training
        prediction: Prediction = network.eval()(torch.zeros(2, *image_shape))
        network.train(training)
    return prediction

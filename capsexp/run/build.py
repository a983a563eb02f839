"""From a configuration to a network: checked on the meta device, before any data is read."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsexp.config.checks import Component, parameters
from capsexp.config.compose import described
from capsexp.config.schema import Config
from capsexp.errors import InputError, first_line, located, place, raise_interruption
from capsexp.nn.attention import AttentionOptions
from capsexp.nn.decoder import Decoder
from capsexp.nn.losses import ProbabilityLoss
from capsexp.nn.scores import ClassScores, Prediction
from capsexp.routing import fast


@dataclass(frozen=True)
class Built:
    """A network, and the decoder of its class capsules where there is one."""

    network: nn.Module
    decoder: nn.Module | None

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        modules = [module for module in (self.network, self.decoder) if module is not None]
        return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


def build(config: Config, tried: bool = True) -> Built:
    """The network and decoder of a configuration, with parameters drawn from torch's random state.

    Args:
        tried: whether the network's output is checked; a decoder needs its shape.

    Raises InputError with one line when they can't be built.
    """
    image_shape = (config.data.channels, config.data.size, config.data.size)
    flags, first = vars(config.attention), config.attention.first
    given: dict[str, Any] = {"attention": AttentionOptions(**{**flags, "first": first and first.make})}
    if _has_capsules(config):
        given["routing"] = partial(config.routing.cls, **config.routing.arguments)
    try:
        network = config.model.cls(image_shape, config.data.classes, **given, **config.model.arguments)
        prediction = _predict_zeros(network, image_shape, config.data.classes) if tried else None
        if config.trainer.routing == "fast":  # after the zeros, for which nothing need be compiled
            fast.enable(network)
    except Exception as error:  # of networks here ValueError or RuntimeError, of the user's any
        raise_interruption(error)
        name, data = config.model.name, config.data
        known = isinstance(error, ValueError | RuntimeError)
        reason = f"{first_line(error)}{place(error)}" if known else located(error)
        raise InputError(f"model={name} on {data.name} ({data.size}×{data.size}): {reason}") from error
    if not config.reconstruction.enabled or prediction is None:
        return Built(network, None)
    if prediction.poses is None:
        raise InputError(f"reconstruction.enabled=true: model={config.model.name} has no class capsules to draw from")
    _, capsules, pose = prediction.poses.shape
    chosen = config.reconstruction
    return Built(network, Decoder(image_shape, capsules, pose, chosen.hidden, chosen.last_activation))


def count_parameters(config: Config) -> int:
    """The number of trainable parameters, without allocating them; raises InputError as `build` does.

    The output is checked only where a decoder depends on it: on the meta device, a forward pass imports torch._dynamo
    and sympy, in 1.5 seconds and 150 MB.
    """
    with torch.device("meta"), _NoNormalValues():
        try:
            return build(config, tried=config.reconstruction.enabled).parameters
        except ValueError as error:  # of layers that wait for a first batch
            raise InputError(f"model={config.model.name}: {first_line(error)}") from error
        except InputError as error:
            size = config.data.size
            most = size + 64 if config.data.path else described(config.data.name).get("size", size)
            larger = (replace(config, data=replace(config.data, size=size)) for size in range(size + 1, most + 1))
            if smallest := next((other.data.size for other in larger if _is_possible(other)), None):
                raise InputError(f"{error}; data.size={smallest} is the smallest that fits") from error
            raise


def count_operations(config: Config) -> int:
    """The floating-point operations of products and convolutions in a forward pass of one image, decoder left out."""
    from torch.utils.flop_counter import FlopCounterMode

    config = replace(config, trainer=replace(config.trainer, routing="reference"))
    network = build(config, tried=False).network.eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, config.data.channels, config.data.size, config.data.size))
    return counter.get_total_flops()


def _is_possible(config: Config) -> bool:
    with suppress(InputError):
        return build(config, tried=False).parameters > 0
    return False


def make_loss(component: Component, network: nn.Module) -> Any:
    """The loss; a loss of probabilities takes logits where the network's scores are logits."""
    loss = component.make()
    if isinstance(loss, ProbabilityLoss):
        scores = getattr(network, "scores", None)
        loss.logits = not isinstance(scores, ClassScores) or scores.classifier is not None
    return loss


class _NoNormalValues(TorchFunctionMode):
    """Leaves out drawing and scaling normal values, which on the meta device would import the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.mul and not isinstance(args[1], Tensor):
            return args[0]
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


def _has_capsules(config: Config) -> bool:
    """Whether the network takes a routing; raises InputError where it has to and there is none, and the reverse."""
    takes = "routing" in parameters(config.model.cls)
    chosen, model = config.routing.name, config.model.name
    if takes and chosen == "none":
        raise InputError(f"routing=none: model={model} has capsules; choose another of conf/routing")
    if not takes and chosen != "none":
        raise InputError(f"routing={chosen}: model={model} has no capsules: routing=none, typed or in its file")
    return takes


def _predict_zeros(network: nn.Module, image_shape: tuple[int, int, int], classes: int) -> Prediction:
    """The network's output for two empty images; on the meta device nothing is computed.

    Raises ValueError for an output that is none.
    """
    with torch.no_grad():
        training = network.training
        prediction = network.eval()(torch.zeros(2, *image_shape))
        network.train(training)
    if not isinstance(prediction, Prediction) or prediction.scores.shape != (2, classes):
        raise ValueError(f"must return a capsexp.nn.Prediction with scores of {classes} classes")
    return prediction

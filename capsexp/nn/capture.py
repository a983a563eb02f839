"""What a network does with a batch of images: routing coefficients, child capsules, attention.

The routing is the reference's, which holds votes and coefficients; the fast one never has them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp.nn.attention import AxisAttention, CapsAttention, ChannelAttention, ConvAttention, SpatialAttention
from capsexp.nn.capsules import CapsuleLayer, LinearCapsules, PrimaryCapsules
from capsexp.nn.conv_capsules import ConvCapsules
from capsexp.nn.routing import Capsules, Votes
from capsexp.nn.scores import Prediction


class Window(NamedTuple):
    """What one position of a convolutional layer sees of the layer below."""

    kernel: int
    stride: int


class AttentionMap(NamedTuple):
    """What an attention module multiplies its input with: between 0 and 1 in CBAM, between 0 and 2 in huang's two.

    | kind    | module                                 | values                                        |
    |---------|----------------------------------------|-----------------------------------------------|
    | channel | CBAM                                   | [B, channels]                                 |
    | spatial | CBAM                                   | [B, H, W]                                     |
    | conv    | Conv-Attention                         | [B, channels]                                 |
    | caps    | Caps-Attention, on the votes of a layer | as that layer's coefficients, and D: [..., D] |
    """

    kind: Literal["channel", "spatial", "conv", "caps"]
    name: str  # the module's, in the network
    values: Tensor


@dataclass(frozen=True)
class ObservedLayer:
    """The routing of one layer. Its children stand at H × W positions, I at each; 1 × 1 where they have no place.

    Args:
        name: the layer's, in the network.
        coefficients: one tensor an iteration, each a distribution over the parents J. In a linear layer
            [B, H, W, I, J]. In a convolutional one [B, H', W', K · I, J]: the children that the parents at (h, w) see,
            position by position (row by row), then type. They are c of dynamic routing, R of EM routing (before it is
            multiplied with the child's activation), r of inverted routing. Where all layers route concurrently, each
            does one iteration less than the one above.
        poses: the children's, [B, H, W, I, C]; where they change from iteration to iteration, those of the last.
        presence: how much the children are there, [B, H, W, I], between 0 and 1: their activations where they have
            any, the lengths of squashed poses; 1 for poses behind a LayerNorm, which don't say it.
        window: None in a linear layer.
    """

    name: str
    coefficients: list[Tensor]
    poses: Tensor
    presence: Tensor
    window: Window | None

    @property
    def lengths(self) -> Tensor:
        """The norms of the children's poses, [B, H, W, I]."""
        return torch.linalg.vector_norm(self.poses, dim=-1)

    def shares(self, parents: Tensor, iteration: int = -1) -> Tensor:
        """How much of each child goes where so much of its parents goes: Σ_j c_ij · parents_j.

        Args:
            parents: [B, H', W', J]; H' and W' are 1 above a linear layer.
            iteration: counted from 0; a layer that does fewer has its last.

        Gives [B, H, W, I]: the mean over the positions that see the child; 0 where none does.
        """
        coefficients = self.coefficients[min(iteration, len(self.coefficients) - 1)]
        through = (coefficients * parents[:, :, :, None]).sum(dim=-1)
        if self.window is None:
            return through
        return self._folded(through) / self._folded(torch.ones_like(through)).clamp(min=1)

    def _folded(self, seen: Tensor) -> Tensor:
        """[B, H', W', K · I] -> [B, H, W, I], the sum over the positions that see a child."""
        assert self.window is not None
        kernel, stride = self.window
        batch, height, width, types = self.poses.shape[:4]
        blocks = seen.reshape(batch, -1, kernel**2, types).permute(0, 3, 2, 1).flatten(1, 2)  # [B, I · K, H' · W']
        return functional.fold(blocks, (height, width), kernel, stride=stride).movedim(1, -1)


@dataclass(frozen=True)
class Observation:
    """What happened to a batch. `layers` from the lowest to the class capsules; none in a network without capsules."""

    prediction: Prediction
    layers: list[ObservedLayer]
    attention: list[AttentionMap]

    def shares(self, classes: Tensor, iteration: int = -1) -> list[Tensor]:
        """How much of each child goes to the class [B], through all layers between: [B, H, W, I] for each layer.

        Args:
            iteration: counted from 0, in all layers; those that do fewer have their last.
        """
        assert self.prediction.poses is not None
        count = self.prediction.poses.shape[1]
        wanted = functional.one_hot(classes, count).to(self.prediction.poses.dtype)[:, None, None]
        found = []
        for layer in reversed(self.layers):
            wanted = layer.shares(wanted, iteration)
            found.append(wanted)
        return found[::-1]


def entropy(coefficients: Tensor) -> float:
    """[..., J] -> the mean over the children of −Σ_j c_ij log c_ij, in nats: log J where all parents get the same."""
    return float(torch.special.entr(coefficients).sum(dim=-1).mean())


def observe(network: nn.Module, pixels: Tensor) -> Observation:
    """What a network, or the LightningModule around one, does with images [B, channels, H, W].

    It runs in evaluation mode, without gradients unless the pixels require one, and is left as it was. All votes are
    held at the same time: in CapsNet, for 28×28 pixels, 0.7 MB an image.
    """
    modules = [(name.removeprefix("network."), module) for name, module in network.named_modules()]
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(pixels.requires_grad))
        stack.enter_context(_evaluating(network))
        listeners = [_Listener(name, module, stack) for name, module in modules if isinstance(module, CapsuleLayer)]
        primary = [(module, _Said(module, stack)) for _, module in modules if isinstance(module, PrimaryCapsules)]
        maps = [(name, module, _Said(_gate(module), stack)) for name, module in modules if isinstance(module, _MAPS)]
        prediction: Prediction = network(pixels)
    types = [(said.last.poses, module.convolution.out_channels // module.pose) for module, said in primary]
    layers = [listener.observed(types) for listener in listeners]
    attention = [_map(name, module, said.last) for name, module, said in maps]
    attention += [listener.map(types) for listener in listeners if listener.gate]
    return Observation(prediction, layers, attention)


_MAPS = (ChannelAttention, SpatialAttention, ConvAttention)


def _gate(module: nn.Module) -> nn.Module:
    """The part of an attention module that says what the features are multiplied with."""
    return module.gate if isinstance(module, ConvAttention) else module


def _map(name: str, module: nn.Module, said: Tensor) -> AttentionMap:
    if isinstance(module, ConvAttention):
        return AttentionMap("conv", name, 1 + said)
    if isinstance(module, ChannelAttention):
        return AttentionMap("channel", name, said[:, :, 0, 0])
    return AttentionMap("spatial", name, said[:, 0])


class _Said:
    """What a module gives, each time that it is called."""

    def __init__(self, module: nn.Module, stack: ExitStack) -> None:
        self.all: list[Any] = []
        stack.callback(module.register_forward_hook(lambda _, __, output: self.all.append(output)).remove)

    @property
    def last(self) -> Any:
        """In its last call."""
        return self.all[-1]


#: Poses [B, I, C] whose capsules are ordered type, row, column, and the number of types.
_Types = list[tuple[Tensor, int]]


class _Listener:
    """Hears a layer, and makes it route as the reference does, as long as the stack is open."""

    def __init__(self, name: str, layer: CapsuleLayer, stack: ExitStack) -> None:
        self.name, self.layer = name, layer
        self.heard: list[Capsules] = []
        self.coefficients = _Said(layer.routing.softmax, stack)
        self.axis = layer.attention if isinstance(layer.attention, AxisAttention) else None
        caps = self.axis.attention if self.axis else layer.attention
        self.gate = _Said(caps.gate, stack) if isinstance(caps, CapsAttention) else None
        stack.enter_context(_overheard(layer, self.heard))

    def observed(self, types: _Types) -> ObservedLayer:
        """The layer's part of the observation."""
        poses, activations = self.heard[-1]
        grid = self._grid(types)
        if activations is None and self.layer.routing.presence == "length":
            activations = torch.linalg.vector_norm(poses, dim=-1)
        presence = poses.new_ones(poses.shape[:-1]) if activations is None else activations
        window = Window(self.layer.kernel, self.layer.stride) if isinstance(self.layer, ConvCapsules) else None
        coefficients = [grid.placed(said) if window is None else said for said in self.coefficients.all]
        placed = grid.placed(poses.flatten(1, -2)), grid.placed(presence.flatten(1))
        return ObservedLayer(self.name, coefficients, *placed, window)

    def map(self, types: _Types) -> AttentionMap:
        """Of the attention on the votes."""
        assert self.gate is not None
        coefficients = self.coefficients.last  # [..., I, J]
        factors = 1 + self.gate.last
        if self.axis is not None:
            factors = factors.movedim(-1, self.axis.dim)
        factors = factors.reshape(*coefficients.shape, -1)
        linear = not isinstance(self.layer, ConvCapsules)
        return AttentionMap("caps", self.name, self._grid(types).placed(factors) if linear else factors)

    def _grid(self, types: _Types) -> "_Grid":
        poses = self.heard[-1].poses
        if poses.ndim == 5:
            return _Grid(*poses.shape[1:4])
        for primary, count in types:
            if poses is primary:
                side = isqrt(poses.shape[1] // count)
                return _Grid(side, side, count, types_first=True)
        # Matrices that are shared over positions tell how many capsules stand at one; images are square.
        shared = self.layer.group if isinstance(self.layer, LinearCapsules) else poses.shape[1]
        side = isqrt(poses.shape[1] // shared)
        return _Grid(side, side, shared)


class _Grid(NamedTuple):
    """Where a layer's children stand."""

    height: int
    width: int
    types: int
    types_first: bool = False  # else the positions

    def placed(self, flat: Tensor) -> Tensor:
        """[B, all children, ...] -> [B, H, W, I, ...]."""
        batch, _, *rest = flat.shape
        if self.types_first:
            return flat.reshape(batch, self.types, self.height, self.width, *rest).movedim(1, 3)
        return flat.reshape(batch, self.height, self.width, self.types, *rest)


@contextmanager
def _overheard(layer: CapsuleLayer, heard: list[Capsules]) -> Iterator[None]:
    """Adds the children that the layer makes votes of to `heard`; it makes them always."""
    votes, fast = layer.votes, layer.fast

    def listening(children: Capsules) -> Votes:
        heard.append(children)
        return votes(children)

    layer.votes, layer.fast = listening, False  # type: ignore[method-assign]
    try:
        yield
    finally:
        del layer.votes
        layer.fast = fast


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode

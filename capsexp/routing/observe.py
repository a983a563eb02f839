"""Routing coefficients, child capsules and attention maps of a forward pass, recorded with hooks.

The network runs the reference routing during the pass: the fast paths store neither votes nor coefficients.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp.nn.attention import AxisAttention, CapsAttention, ChannelAttention, ConvAttention, SpatialAttention
from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules
from capsexp.nn.routing import Capsules
from capsexp.nn.scores import Prediction
from capsexp.routing import fast
from capsexp.routing.self_attention import SelfAttentionRouting


class AttentionMap(NamedTuple):
    """The factors of an attention module: between 0 and 2 in huang's two, between 0 and 1 in the others.

    | kind    | module                                  | values                                        |
    |---------|-----------------------------------------|-----------------------------------------------|
    | channel | CBAM, squeeze-and-excitation            | [B, channels]                                 |
    | spatial | CBAM                                    | [B, H, W]                                     |
    | conv    | Conv-Attention                          | [B, channels]                                 |
    | caps    | Caps-Attention on the votes of a layer  | as that layer's coefficients, and D: [..., D] |
    """

    kind: Literal["channel", "spatial", "conv", "caps"]
    name: str  # the module's, in the network
    values: Tensor


@dataclass(frozen=True)
class ObservedLayer:
    """The routing of one layer. Its children are at H × W positions, I at each; 1 × 1 for children without positions.

    Args:
        name: the layer's, in the network.
        coefficients: one tensor an iteration, each a distribution over the parents J. In a linear layer
            [B, H, W, I, J]. In a convolutional one [B, H', W', K · I, J]: the children in the window of the parents at
            (h, w), position by position (row by row), then type. They are c of dynamic routing, R of EM routing (before
            it is multiplied with the child's activation), r of inverted routing, and c of self-attention routing, to
            which its learned biases are added: they needn't sum to 1. Where all layers route concurrently, each does
            one iteration less than the one above.
        entropies: one an iteration, see `entropy`; in self-attention routing of the distributions without biases.
        poses: the children's, [B, H, W, I, C]; where they change between iterations, those of the last.
        presence: of the children, [B, H, W, I], between 0 and 1: their activations if they have any, the lengths of
            squashed poses, 1 for poses behind a LayerNorm, which don't encode it.
        window: kernel and stride of a convolutional layer, None of a linear one.
    """

    name: str
    coefficients: list[Tensor]
    entropies: list[float]
    poses: Tensor
    presence: Tensor
    window: tuple[int, int] | None

    def coefficients_to(self, parents: Tensor, iteration: int = -1) -> Tensor:
        """Σ_j c_ij w_j, [B, H, W, I]: each child's coefficients to its parents, summed with the parents' weights.

        In a convolutional layer the mean over the positions whose window holds the child; 0 if there is none.

        Args:
            parents: w, [B, H', W', J]; H' and W' are 1 above a linear layer.
            iteration: counted from 0; the last of a layer that does fewer.
        """
        coefficients = self.coefficients[min(iteration, len(self.coefficients) - 1)]
        weighted = (coefficients * parents[:, :, :, None]).sum(dim=-1)
        if self.window is None:
            return weighted
        return self._folded(weighted) / self._folded(torch.ones_like(weighted)).clamp(min=1)

    def _folded(self, windows: Tensor) -> Tensor:
        """[B, H', W', K · I] -> [B, H, W, I], the sum over the windows that hold a child."""
        assert self.window is not None
        kernel, stride = self.window
        batch, height, width, types = self.poses.shape[:4]
        blocks = windows.reshape(batch, -1, kernel**2, types).permute(0, 3, 2, 1).flatten(1, 2)  # [B, I · K, H' · W']
        return functional.fold(blocks, (height, width), kernel, stride=stride).movedim(1, -1)


@dataclass(frozen=True)
class Observed:
    """A forward pass. `layers` from the lowest to the class capsules; none in a network without capsules."""

    prediction: Prediction
    layers: list[ObservedLayer]
    attention: list[AttentionMap]

    def coefficients_to(self, classes: Tensor, iteration: int = -1) -> list[Tensor]:
        """Each child's coefficient to the class [B], through all layers above it: [B, H, W, I] for each layer.

        Args:
            iteration: counted from 0, in all layers; the last of a layer that does fewer.
        """
        scores = self.prediction.scores
        parents = functional.one_hot(classes, scores.shape[1]).to(scores)[:, None, None]
        coefficients = []
        for layer in reversed(self.layers):
            parents = layer.coefficients_to(parents, iteration)
            coefficients.append(parents)
        return coefficients[::-1]


def entropy(coefficients: Tensor) -> float:
    """[..., J] -> the mean over the children of −Σ_j c_ij log c_ij, in nats: log J for equal coefficients."""
    return float(torch.special.entr(coefficients).sum(dim=-1).mean())


def observe(network: nn.Module, pixels: Tensor) -> Observed:
    """A forward pass of a network, or of the LightningModule around one, on images [B, channels, H, W].

    It runs in evaluation mode, without gradients, and leaves the network unchanged. All votes are stored at the same
    time: in CapsNet, for 28×28 pixels, 0.7 MB an image.
    """
    modules = [(name.removeprefix("network."), module) for name, module in network.named_modules()]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for _, module in modules:
            stack.callback(setattr, module, "training", module.training)
            stack.callback(setattr, module, "__class__", type(module))
        network.eval()
        fast.disable(network)
        recorders = [
            _LayerRecorder(name, module, stack) for name, module in modules if isinstance(module, CapsuleLayer)
        ]
        maps = []
        for name, module in modules:
            if isinstance(module, ChannelAttention | SpatialAttention | ConvAttention):
                gate = module.gate if isinstance(module, ConvAttention) else module
                maps.append((name, module, _outputs(gate, stack)))
        prediction: Prediction = network(pixels)
    attention = [_attention_map(name, module, outputs[-1]) for name, module, outputs in maps]
    attention += [recorder.attention_map() for recorder in recorders if recorder.gates is not None]
    return Observed(prediction, [recorder.observed_layer() for recorder in recorders], attention)


def _attention_map(name: str, module: nn.Module, gates: Tensor) -> AttentionMap:
    if isinstance(module, ConvAttention):
        return AttentionMap("conv", name, 1 + gates)
    if isinstance(module, ChannelAttention):
        return AttentionMap("channel", name, gates[:, :, 0, 0])
    return AttentionMap("spatial", name, gates[:, 0])


def _outputs(module: nn.Module, stack: ExitStack) -> list[Any]:
    """A list to which each call of the module appends its output, until the stack closes."""
    outputs: list[Any] = []
    stack.enter_context(module.register_forward_hook(lambda _, __, output: outputs.append(output)))
    return outputs


class _LayerRecorder:
    """Records a layer's children, coefficients and attention, until the stack closes."""

    def __init__(self, name: str, layer: CapsuleLayer, stack: ExitStack) -> None:
        self.name, self.layer = name, layer
        self.children: list[Capsules] = []
        self.coefficients = _outputs(layer.routing.softmax, stack)
        self.axis = layer.attention if isinstance(layer.attention, AxisAttention) else None
        attention = self.axis.attention if self.axis else layer.attention
        self.gates = _outputs(attention.gate, stack) if isinstance(attention, CapsAttention) else None
        votes = layer.votes

        def recorded(children: Capsules) -> Capsules:
            self.children.append(children)
            return votes(children)

        stack.callback(delattr, layer, "votes")
        # In concurrent routing only this method of a layer is called, so that no forward hook would run.
        layer.votes = recorded  # type: ignore[method-assign]

    def observed_layer(self) -> ObservedLayer:
        """The layer's part of the observation."""
        poses, activations = self.children[-1]
        if activations is None and self.layer.routing.presence == "length":
            activations = torch.linalg.vector_norm(poses, dim=-1)
        presence = poses.new_ones(poses.shape[:-1]) if activations is None else activations
        layer, routing = self.layer, self.layer.routing
        window = (layer.kernel, layer.stride) if isinstance(layer, ConvCapsules) else None
        bias = routing.bias if isinstance(routing, SelfAttentionRouting) else 0
        coefficients = [self._placed(each + bias) for each in self.coefficients]
        if poses.ndim == 3:
            poses, presence = poses[:, None, None], presence[:, None, None]
        return ObservedLayer(self.name, coefficients, [*map(entropy, self.coefficients)], poses, presence, window)

    def attention_map(self) -> AttentionMap:
        """Of the attention on the votes."""
        assert self.gates is not None
        factors = 1 + self.gates[-1]
        if self.axis is not None:
            factors = factors.movedim(-1, self.axis.dim)
            if self.axis.axis == "capsules":  # one of a child
                _, parents, rows, _ = self.layer.matrices.weight.shape
                factors = factors.repeat_interleave(parents * rows, dim=-1)
        factors = factors.reshape(*self.coefficients[-1].shape, -1)  # [..., I, J, D]
        return AttentionMap("caps", self.name, self._placed(factors))

    def _placed(self, numbered: Tensor) -> Tensor:
        """In a linear layer [B, all children, ...] -> [B, H, W, I, ...]; in a convolutional one as it is."""
        if not isinstance(self.layer, LinearCapsules):
            return numbered
        *grid, types, _ = self.children[-1].poses.shape[1:]
        height, width = grid or (1, 1)
        batch, _, *rest = numbered.shape
        if self.layer.types_first:
            return numbered.reshape(batch, types, height, width, *rest).movedim(1, 3)
        return numbered.reshape(batch, height, width, types, *rest)

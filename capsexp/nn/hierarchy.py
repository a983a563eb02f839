"""Layers of capsules, one above the other, and the order in which their iterations are done (tsai, procedure 2)."""

from collections.abc import Iterable

from torch import nn

from capsexp.nn.capsules import CapsuleLayer, Capsules, Votes


class Hierarchy(nn.Module):
    """From the primary capsules to the class capsules.

    Sequential: a layer does all its iterations, then the next one begins (Sabour et al. 2017; Hinton et al. 2018).
    Concurrent: the first iteration goes up through the layers; in each further one every layer routes at the same
    time, from the poses that its children and its parents had after the one before (tsai, Fig. 3).

    Args:
        layers: from the lowest to the class capsules, all with the same routing procedure.
    """

    def __init__(self, layers: Iterable[CapsuleLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, primary: Capsules) -> Capsules:
        """The primary capsules -> the class capsules, poses [B, J, D]."""
        layers: list[CapsuleLayer] = list(self.layers)  # type: ignore[arg-type]
        routing = layers[0].routing
        if routing.concurrent and routing.iterations == 1 and all(map(_needs_no_votes, layers)):
            return _once(layers, primary)
        if routing.concurrent:
            return _concurrent(layers, primary)
        capsules = primary
        for layer in layers:
            capsules = layer(capsules)
        return capsules


def _needs_no_votes(layer: CapsuleLayer) -> bool:
    return isinstance(layer.attention, nn.Identity) and not layer.routing.activations


def _once(layers: list[CapsuleLayer], capsules: Capsules) -> Capsules:
    """One iteration without materialising a vote, an order of magnitude faster: all coefficients are the same."""
    for layer in layers:
        capsules = layer.routing.first(layer.total(capsules.poses))
    return capsules


def _concurrent(layers: list[CapsuleLayer], primary: Capsules) -> Capsules:
    votes: list[Votes] = []
    capsules: list[Capsules] = []
    for layer in layers:
        votes.append(layer.votes(capsules[-1] if capsules else primary))
        capsules.append(layer.routing.step(*votes[-1], None))
    for iteration in range(1, layers[0].routing.iterations):
        if iteration > 1:  # in the second iteration every child is still what it was when it voted
            votes[1:] = [layer.votes(children) for layer, children in zip(layers[1:], capsules[:-1], strict=True)]
        capsules = [
            layer.routing.step(*heard, before.poses)
            for layer, heard, before in zip(layers, votes, capsules, strict=True)
        ]
    return capsules[-1]

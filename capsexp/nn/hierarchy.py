"""Layers of capsules, one above the other, and the order in which their iterations are done (tsai, procedure 2)."""

from collections.abc import Iterable

from torch import Tensor, nn

from capsexp.nn.capsules import CapsuleLayer, Capsules, Votes, in_parts


class Hierarchy(nn.Module):
    """From the primary capsules to the class capsules.

    Sequential: a layer does all its iterations, then the next one begins (Sabour et al. 2017; Hinton et al. 2018).
    Concurrent: the first iteration goes up through the layers; in each further one every layer routes at the same
    time, from the poses that its children and its parents had after the one before (tsai, Fig. 3). A layer's last
    iterations come too late to reach the class capsules: the n-th layer from the top does n − 1 less.

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
        if routing.concurrent and layers[0].fast and routing.parted:
            votes = layers[0].votes_of_an_image(primary.poses)  # of the layer that has the most in tsai's networks
            return in_parts(lambda *part: _concurrent(layers, Capsules(*part)), primary, votes)
        if routing.concurrent:
            return _concurrent(layers, primary)
        capsules = primary
        for layer in layers:
            capsules = _alone(layer, capsules) if layer.routing.fused else layer(capsules)
        return capsules


def _needs_no_votes(layer: CapsuleLayer) -> bool:
    return layer.fast and isinstance(layer.attention, nn.Identity) and not layer.routing.activations


def _once(layers: list[CapsuleLayer], capsules: Capsules) -> Capsules:
    """One iteration without materialising a vote, an order of magnitude faster: all coefficients are the same."""
    for layer in layers:
        capsules = layer.routing.first(layer.total(capsules.poses))
    return capsules


def _alone(layer: CapsuleLayer, children: Capsules) -> Capsules:
    """All iterations of one layer."""
    listener = _Listener(layer)
    parents = listener.first(children)
    for _ in range(1, layer.routing.iterations):
        parents = listener.again(children, parents.poses)
    return parents


def _concurrent(layers: list[CapsuleLayer], primary: Capsules) -> Capsules:
    listeners = [_Listener(layer) for layer in layers]
    capsules = [primary]
    for listener in listeners:
        capsules.append(listener.first(capsules[-1]))
    for remaining in range(layers[0].routing.iterations - 1, 0, -1):
        listeners = listeners[-remaining:]  # what a layer says takes an iteration for every layer above it to be heard
        capsules = capsules[-len(listeners) - 1 :]
        routed = zip(listeners, capsules[:-1], capsules[1:], strict=True)
        capsules = [capsules[0], *(listener.again(children, before.poses) for listener, children, before in routed)]
    return capsules[-1]


class _Listener:
    """A layer that routes iteration by iteration: without its votes where it can; otherwise it keeps them for as long
    as its children stay what they were when they voted. In the second iteration all do, the primary capsules always.
    """

    def __init__(self, layer: CapsuleLayer) -> None:
        self.layer = layer
        self.children: Capsules | None = None
        self.votes: Votes | None = None

    def first(self, children: Capsules) -> Capsules:
        if _needs_no_votes(self.layer):
            return self.layer.routing.first(self.layer.total(children.poses))
        return self.layer.routing.step(*self._heard(children), None)

    def again(self, children: Capsules, parents: Tensor) -> Capsules:
        if _needs_no_votes(self.layer) and self.layer.routing.fused:
            return self.layer.routing.again(self.layer.seen(children.poses), parents)
        return self.layer.routing.step(*self._heard(children), parents)

    def _heard(self, children: Capsules) -> Votes:
        if self.votes is None or children is not self.children:
            self.children, self.votes = children, self.layer.votes(children)
        return self.votes

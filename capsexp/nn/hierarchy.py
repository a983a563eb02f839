"""Layers of capsules, one above the other, and the order of their iterations (tsai, procedure 2)."""

from collections.abc import Iterable

from torch import nn

from capsexp.nn.capsules import CapsuleLayer
from capsexp.nn.routing import Capsules


class Hierarchy(nn.Module):
    """From the primary capsules to the class capsules.

    Sequential: a layer does all its iterations before the next one begins (Sabour et al. 2017; Hinton et al. 2018).
    Concurrent: the first iteration passes up through the layers; in each further one every layer routes at the same
    time, from the poses that its children and its parents had after the iteration before (tsai, Fig. 3).

    Args:
        layers: from the lowest to the class capsules, all with the same routing procedure. Where they route
            concurrently, none of them is called as a whole: forward hooks on them don't run.

    Raises ValueError where some route concurrently and others sequentially.
    """

    def __init__(self, layers: Iterable[CapsuleLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        orders = [layer.routing.concurrent for layer in self.layers]  # type: ignore[union-attr]
        if len({*orders}) > 1:
            raise ValueError(f"layers: route concurrently or sequentially, all alike; concurrent={orders}")

    def forward(self, primary: Capsules) -> Capsules:
        """Poses [B, H, W, I, C], activations [B, H, W, I] or None -> poses [B, J, D], activations [B, J] or None."""
        layers: list[CapsuleLayer] = list(self.layers)  # type: ignore[arg-type]
        if layers[0].routing.concurrent:
            return _concurrent(layers, primary)
        capsules = primary
        for layer in layers:
            capsules = layer(capsules)
        return capsules


def _concurrent(layers: list[CapsuleLayer], primary: Capsules) -> Capsules:
    levels: list[Capsules] = [primary]
    votes: list[Capsules] = []
    for layer in layers:
        votes.append(layer.votes(levels[-1]))
        levels.append(layer.routing.iteration(*votes[-1], None))
    voters = levels[:-1]
    for remaining in range(layers[0].routing.iterations - 1, 0, -1):
        # A change reaches one more layer with each iteration: the n-th layer from the top does n − 1 iterations less,
        # since its last would not reach the class capsules.
        layers, votes, voters = layers[-remaining:], votes[-remaining:], voters[-remaining:]
        levels = levels[-len(layers) - 1 :]
        known = zip(layers, votes, voters, levels[:-1], strict=True)
        votes = [old if children is voter else layer.votes(children) for layer, old, voter, children in known]
        voters = levels[:-1]
        routed = zip(layers, votes, levels[1:], strict=True)
        levels = [levels[0], *(layer.routing.iteration(*vote, parents.poses) for layer, vote, parents in routed)]
    return levels[-1]

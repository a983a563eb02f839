"""Layers of capsules, one above the other, and the order of their iterations (tsai, procedure 2)."""

from collections.abc import Iterable
from functools import partial

from torch import Tensor, nn

from capsexp.nn.capsules import CapsuleLayer, Iterations
from capsexp.nn.routing import Capsules


class Hierarchy(nn.Module):
    """From the primary capsules to the class capsules.

    Sequential: a layer does all its iterations before the next one begins (Sabour et al. 2017; Hinton et al. 2018).
    Concurrent: the first iteration passes up through the layers; in each further one every layer routes at the same
    time, from the poses that its children and its parents had after the iteration before (tsai, Fig. 3).

    Args:
        layers: from the lowest to the class capsules, all with the same routing procedure.
    """

    def __init__(self, layers: Iterable[CapsuleLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, primary: Capsules) -> Capsules:
        """The primary capsules -> the class capsules, poses [B, J, D]."""
        layers: list[CapsuleLayer] = list(self.layers)  # type: ignore[arg-type]
        if layers[0].routing.concurrent:
            # Chunks fit the votes of the lowest layer, which has the most in tsai's networks.
            return layers[0].in_chunks(partial(_concurrent, layers), primary)
        capsules = primary
        for layer in layers:
            capsules = layer(capsules)
        return capsules


def _concurrent(layers: list[CapsuleLayer], poses: Tensor, activations: Tensor | None = None) -> Capsules:
    """The class capsules, from the primary capsules' poses and activations."""
    routed = [Iterations(layer) for layer in layers]
    capsules = [Capsules(poses, activations)]
    for route in routed:
        capsules.append(route(capsules[-1], None))
    for remaining in range(layers[0].routing.iterations - 1, 0, -1):
        # An iteration moves a change up by one layer: the n-th layer from the top does n − 1 iterations less, since its
        # last would not reach the class capsules.
        routed = routed[-remaining:]
        capsules = capsules[-len(routed) - 1 :]
        steps = zip(routed, capsules[:-1], capsules[1:], strict=True)
        capsules = [capsules[0], *(route(children, parents.poses) for route, children, parents in steps)]
    return capsules[-1]

"""No routing: the choice for networks without capsules, so that `routing` is part of every run's identity."""

from capsexp.nn.routing import Routing


class NoRouting(Routing):
    """Raises ValueError in a network with capsules."""

    def __init__(self, parents: int, pose: int) -> None:
        raise ValueError("routing=none is for networks without capsules; choose dynamic, em or inverted")

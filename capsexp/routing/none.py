"""No routing, for networks without capsules: so that a run's identity says that there is none."""


class NoRouting:
    """Raises ValueError as soon as a network wants to route something with it."""

    def __init__(self, parents: int, pose: int, squash_constant: float = 1.0) -> None:
        raise ValueError("routing=none is for networks without capsules; choose dynamic, em or inverted")

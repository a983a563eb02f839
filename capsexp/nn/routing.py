"""Routing: the contract between capsule layers and routing procedures.

A procedure is a subclass of `Routing`, one instance a layer. Its constructor names what it needs of `children`,
`parents`, `child_pose` and `pose`, the layer's I, J, C and D, and `squash_constant`, the network's k of the squash
function; with `**keys` it is given what the class that it is derived from names, too. Networks make it by
`make_routing`. Options are keyword-only arguments with defaults, set by `functools.partial`, or under `routing` in a
configuration. It gives `presence`, `iterations` and `forward`: the paper's procedure, from the votes of a layer to its
parents, with `self.softmax` for the routing coefficients. If it is `concurrent`, it gives `iteration` as well.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor, nn

#: How a capsule encodes that its entity is present, see `Routing`.
Presence = Literal["length", "activation", "pose"]


class Capsules(NamedTuple):
    """A layer's capsules, or their votes. The dots are the batch, and rows and columns where the layer has them."""

    poses: Tensor  # [..., I, C]; votes: [..., I, J, D]
    activations: Tensor | None = None  # [..., I], between 0 and 1


class Routing(nn.Module):
    """Base of all procedures. `presence` is how a capsule encodes that its entity is present:

    | presence   | primary poses                           | class scores                                    |
    |------------|-----------------------------------------|-------------------------------------------------|
    | length     | squashed                                | lengths of the class capsules                   |
    | activation | as they are, an activation beside each  | activations of the class capsules               |
    | pose       | LayerNorm                               | one linear classifier, the same for all classes |
    """

    presence: Presence
    iterations: int
    uses_activations: bool = False  # reads the children's activations and gives the parents'
    uses_poses: bool = False  # reads the children's poses: `forward` has them as a third argument, [..., I, C]
    trains_matrices: bool = True  # else the transformation matrices keep their initial values
    concurrent: bool = False  # all layers of a `Hierarchy` do their t-th iteration at the same time

    def __init__(self, iterations: int = 1) -> None:
        """Raises ValueError for less than one iteration."""
        super().__init__()
        if iterations < 1:
            raise ValueError(f"iterations={iterations}: must be at least 1")
        self.iterations = iterations
        #: Over the parents: logits -> the routing coefficients of each iteration, [..., I, J]. Forward hooks on this
        #: module observe them, but for the fast paths, which don't call it.
        self.softmax = nn.Softmax(dim=-1)

    def extra_repr(self) -> str:
        """The number of iterations."""
        return f"iterations={self.iterations}"

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """All iterations: [..., I, J, D] and [..., I] -> poses [..., J, D], activations [..., J] or None."""
        raise NotImplementedError

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first."""
        raise NotImplementedError


#: Makes a layer's routing procedure, not shared with any other layer: a class, or a partial of one.
RoutingFactory = Callable[..., Routing]


def make_routing(
    factory: RoutingFactory,
    children: int,
    parents: int,
    child_pose: int,
    pose: int,
    squash_constant: float | None = None,
) -> Routing:
    """A layer's procedure, given those of I, J, C, D and k that the factory has arguments for.

    Args:
        children: I, all that vote for one parent: in a convolutional layer those of all K positions.
        squash_constant: k, where the network has one; None: the factory's default, 1 where it has none.
    """
    takes = _parameters(factory)
    given: dict[str, float] = {"children": children, "parents": parents, "child_pose": child_pose, "pose": pose}
    if squash_constant is not None:
        given["squash_constant"] = squash_constant
    elif "squash_constant" in takes and takes["squash_constant"].default is inspect.Parameter.empty:
        given["squash_constant"] = 1.0
    return factory(**{name: value for name, value in given.items() if name in takes})


def _parameters(factory: RoutingFactory) -> dict[str, inspect.Parameter]:
    """Those of a class or a partial of one; where it takes **keys, those of the class it is derived from, too."""
    found: dict[str, inspect.Parameter] = {}
    target = factory.func if isinstance(factory, partial) else factory
    bases: tuple[RoutingFactory, ...] = target.__mro__[1:] if isinstance(target, type) else ()
    for made in (factory, *bases):
        own = inspect.signature(made).parameters
        found = {**own, **found}
        if all(p.kind is not p.VAR_KEYWORD for p in own.values()):
            break
    return found

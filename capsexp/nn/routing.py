"""Routing: the contract between capsule layers and routing procedures.

A procedure is a subclass of `Routing`, one instance a layer. Its constructor names what it needs of `of_layer`; with
`**keys` it is given what the class that it is derived from names, too. Networks make it by `make_routing`, with every
argument by keyword. Options are keyword-only arguments with defaults, set by `functools.partial`, or under `routing` in
a configuration. It gives `presence`, `iterations` and `forward`: the paper's procedure, from the votes of a layer to
its parents, with `self.softmax` for the routing coefficients. If it is `concurrent`, it gives `iteration` as well.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from capsexp.errors import check_choice

#: How a capsule encodes that its entity is present, see `Routing`.
Presence = Literal["length", "activation", "pose"]


class Capsules(NamedTuple):
    """A layer's capsules, or their votes. The dots are the batch, and rows and columns where the layer has them."""

    poses: Tensor  # [..., I, C]; votes: [..., I, J, D]
    activations: Tensor | None = None  # [..., I], between 0 and 1

    def each(self, change: Callable[[Tensor], Tensor]) -> "Capsules":
        """The capsules with both parts changed, or the one that there is."""
        return Capsules(change(self.poses), None if self.activations is None else change(self.activations))


class Routing(nn.Module):
    """Base of all procedures. `presence` is how a capsule encodes that its entity is present:

    | presence   | primary poses                           | class scores                                    |
    |------------|-----------------------------------------|-------------------------------------------------|
    | length     | squashed                                | lengths of the class capsules                   |
    | activation | as they are, an activation beside each  | activations of the class capsules               |
    | pose       | LayerNorm                               | one linear classifier, the same for all classes |
    """

    #: The arguments that a layer gives to its procedure: I, J, C and D; the network's k of the squash function; whether
    #: the parents are the class capsules.
    of_layer = ("children", "parents", "child_pose", "pose", "squash_constant", "last")

    presence: Presence
    iterations: int
    uses_activations: bool = False  # reads the children's activations and gives the parents'
    trains_matrices: bool = True  # else the transformation matrices keep their initial values
    concurrent: bool = False  # all layers of a `Hierarchy` do their t-th iteration at the same time
    scale: float | None = None  # of the transformation matrices, where no source gives it; see TransformationMatrices

    def __init__(self, iterations: int = 1, **made_for: int) -> None:
        """`made_for` are those of I, J, C and D, by their names in `of_layer`, that it fits: a layer checks them.

        Raises ValueError for less than one iteration.
        """
        super().__init__()
        if iterations < 1:
            raise ValueError(f"iterations={iterations}: must be at least 1")
        self.iterations, self.made_for = iterations, made_for
        #: Over the parents: logits -> the routing coefficients of each iteration, [..., I, J]. Forward hooks on this
        #: module observe them, but for the fast paths, which don't call it.
        self.softmax = nn.Softmax(dim=-1)

    def extra_repr(self) -> str:
        """The number of iterations."""
        return f"iterations={self.iterations}"

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """All iterations: [..., I, J, D] and [..., I] -> poses [..., J, D], activations [..., J] or None."""
        raise NotImplementedError(f"{type(self).__name__}: has no forward")

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first."""
        raise NotImplementedError(f"{type(self).__name__}: has no iteration, though it is concurrent")


#: Makes a layer's routing procedure, not shared with any other layer: a class, a partial of one, or its name, one of
#: `capsexp.routing.NAMES`.
RoutingFactory = Callable[..., Routing] | str


def make_routing(
    factory: RoutingFactory,
    children: int,
    parents: int,
    child_pose: int,
    pose: int,
    squash_constant: float | None = None,
    *,
    last: bool = False,
) -> Routing:
    """A layer's procedure, given those of `Routing.of_layer` that the factory has arguments for.

    Args:
        children: I, all that vote for one parent: in a convolutional layer those of all K positions.
        squash_constant: k, where the network has one; None: the factory's default.
        last: whether the parents are the class capsules.

    Raises ValueError for a name of no procedure, TypeError for what makes none.
    """
    if isinstance(factory, str):
        from capsexp.routing import NAMES  # its modules import this one

        check_choice("routing", factory, *NAMES)
        factory = NAMES[factory]
    if isinstance(factory, Routing) or not callable(factory):
        what = type(factory).__name__
        raise TypeError(f"routing, of type {what}: must be a class of capsexp.routing, a partial of one or its name")
    given: dict[str, Any] = {"children": children, "parents": parents, "child_pose": child_pose, "pose": pose}
    given["last"] = last
    if squash_constant is not None:
        given["squash_constant"] = squash_constant
    names = _arguments(factory)
    return factory(**{name: value for name, value in given.items() if name in names})


def _arguments(factory: Callable[..., Routing]) -> set[str]:
    """Those of a class or a partial of one; where it takes **keys, those of the class it is derived from, too."""
    names = set[str]()
    target = factory.func if isinstance(factory, partial) else factory
    bases: tuple[Callable[..., Routing], ...] = target.__mro__[1:] if isinstance(target, type) else ()
    for maker in (factory, *bases):
        parameters = inspect.signature(maker).parameters
        names |= {*parameters}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
            break
    return names

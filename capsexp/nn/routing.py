"""Routing: the contract between capsule layers and routing procedures.

A procedure is a subclass of `Routing`, one instance a layer, named under `_target_` in conf/routing. Its constructor is

    Procedure(parents, pose, *, …)                        J, D; keyword-only arguments are the keys under `routing`
    Procedure(parents, pose, squash_constant=1.0, *, …)   for a procedure that squashes: k, which the network sets

It must give `presence`, `iterations` and `forward`: the paper's procedure, from the votes of a layer to its parents,
with `self.softmax` for the routing coefficients. Everything else is optional, for order and speed:

| method            | from votes to parents                   | called by a layer                                  |
|-------------------|-----------------------------------------|----------------------------------------------------|
| `forward`         | all iterations                          | if `forward_fused` gives None                      |
| `forward_fused`   | all iterations, without stored votes    | if it is `fast` and has no attention on its votes  |
| `iteration`       | one iteration                           | in a concurrent `Hierarchy`, in place of `forward` |
| `iteration_fused` | one iteration, without stored votes     | there, in place of `forward_fused`                 |

The layer (`CapsuleLayer`, `Iterations`) alone decides which one is called. A fused method returns None where it doesn't
apply, as does that of the base class; then the method that takes votes is called. If `chunked`, `fast` layers call the
latter for a few images at a time.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor, nn


class Capsules(NamedTuple):
    """A layer's capsules. The dots are the batch, and rows and columns where the layer has them."""

    poses: Tensor  # [..., I, C]
    activations: Tensor | None = None  # [..., I], between 0 and 1


class Votes(NamedTuple):
    """The votes for the parents at each position."""

    poses: Tensor  # [..., I, J, D]
    activations: Tensor | None = None  # [..., I], the children's


class VoteInputs(NamedTuple):
    """Child poses and matrices from which a layer's votes are recomputed: v_ij = W_ij p_i."""

    poses: Tensor  # [B, H, W, I, C], the children's; in a linear layer H and W are 1
    weight: Tensor  # [K · I, J, D, C], with matrix poses [K · I, J, √D, √D]
    kernel: int
    stride: int
    sum: Callable[[], Tensor]  # Σ_i v_ij, [..., J, D], in one product
    places: tuple[int, ...] = ()  # H', W' of the parents; a linear layer's have none
    activations: Tensor | None = None  # [B, H, W, I], the children's


class Routing(nn.Module):
    """Base of all procedures. `presence` is how a capsule encodes that its entity is present:

    | presence   | primary poses                           | class scores                                    |
    |------------|-----------------------------------------|-------------------------------------------------|
    | length     | squashed                                | lengths of the class capsules                   |
    | activation | as they are, an activation beside each  | activations of the class capsules               |
    | pose       | LayerNorm                               | one linear classifier, the same for all classes |
    """

    presence: Literal["length", "activation", "pose"]
    iterations: int
    uses_activations: bool = False  # reads the children's activations and gives the parents'
    trains_matrices: bool = True  # else the transformation matrices keep their initial values
    concurrent: bool = False  # all layers of a `Hierarchy` do their t-th iteration at the same time
    chunked: bool = False  # a few images at a time, each by itself; votes are recomputed in the backward pass

    def __init__(self) -> None:
        super().__init__()
        #: Over the parents: logits -> the routing coefficients of each iteration, [..., I, J]. Forward hooks on this
        #: module observe them.
        self.softmax = nn.Softmax(dim=-1)

    @classmethod
    def auto_is_float32(cls, **options: Any) -> bool:
        """Whether trainer.precision=auto is float32 on every device, with these options of the constructor."""
        return False

    @classmethod
    def check_bf16(cls, **options: Any) -> None:
        """Raises ValueError, with what to set instead, for options that can't be trained in bfloat16."""

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """All iterations: [..., I, J, D] and [..., I] -> poses [..., J, D], activations [..., J] or None."""
        raise NotImplementedError

    def forward_fused(self, inputs: VoteInputs) -> Capsules | None:
        """All iterations without materialised votes, or None."""
        return None

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first."""
        raise NotImplementedError

    def iteration_fused(self, inputs: VoteInputs, parents: Tensor | None) -> Capsules | None:
        """One iteration without materialised votes, or None; `parents` as in `iteration`."""
        return None


class RoutingFactory(Protocol):
    """Makes a layer's routing procedure from J and D, and from k where it takes a squash constant."""

    def __call__(self, parents: int, pose: int, squash_constant: float = 1.0) -> Routing:
        """The procedure, not shared with any other layer."""

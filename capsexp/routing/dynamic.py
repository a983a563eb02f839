"""Dynamic routing (Sabour et al. 2017, procedure 1; jiao, section II).

b_ij ← 0
for r iterations:
    c_i ← softmax(b_i)                 over the parents j
    s_j ← Σ_i c_ij û_j|i
    v_j ← squash(s_j)
    b_ij ← b_ij + û_j|i · v_j          (line 7; jiao's print lacks the update)
"""

from typing import Literal

import torch
from torch import Tensor

from capsexp import Iterations
from capsexp.errors import check_choice
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing
from capsexp.nn.squash import squash


class DynamicRouting(Routing):
    """Votes [..., I, J, D] -> parent poses [..., J, D]; everything in float32 (float64 stays float64).

    Raises ValueError for other options than these.

    Args:
        squash_constant: k of the squash function; networks that have one give theirs.
        iterations: r, at least 1.
        logits: `accumulate` adds each agreement to b, as the procedure says; `replace` sets b to it, as the
            Keras example does that huang builds on.
        gradient: flows through `all` iterations, or through the `last` one only, where the routing
            coefficients are constants. With `none` (ou, "routing v.s. back-propagation", of which the slides give only
            the caption) the coefficients are constants too, and the transformation matrices keep their initial values:
            routing alone assigns children to classes. The layers below still learn, by the gradient through the votes.
    """

    presence = "length"

    def __init__(
        self,
        *,
        squash_constant: float = 1.0,
        iterations: Iterations = 3,
        logits: Literal["accumulate", "replace"] = "accumulate",
        gradient: Literal["all", "last", "none"] = "all",
    ) -> None:
        super().__init__(iterations)
        self.squash_constant = squash_constant
        check_choice("logits", logits, "accumulate", "replace")
        check_choice("gradient", gradient, "all", "last", "none")
        self.accumulate = logits == "accumulate"
        self.detach = gradient != "all"
        self.trains_matrices = gradient != "none"

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """[..., I, J, D] -> poses [..., J, D]; the children's activations are not read."""
        with full_precision(votes):
            votes = at_least_float32(votes)
            coefficients = self.coefficients(votes.detach() if self.detach else votes)
            return Capsules(self._parents(coefficients, votes))

    def coefficients(self, votes: Tensor) -> Tensor:
        """The routing coefficients c of the last iteration, [..., I, J]; they sum to 1 over the parents J."""
        logits = votes.new_zeros(votes.shape[:-1])
        coefficients: Tensor = self.softmax(logits)
        for _ in range(self.iterations - 1):
            parents = self._parents(coefficients, votes)
            agreement = torch.einsum("...ijd,...jd->...ij", votes, parents)
            logits = logits + agreement if self.accumulate else agreement
            coefficients = self.softmax(logits)
        return coefficients

    def _parents(self, coefficients: Tensor, votes: Tensor) -> Tensor:
        return squash(torch.einsum("...ij,...ijd->...jd", coefficients, votes), self.squash_constant)


def dynamic_routing(votes: Tensor, iterations: int = 3, squash_constant: float = 1.0) -> Tensor:
    """The parents' poses [..., J, D] of votes [..., I, J, D], for layers of one's own; see `DynamicRouting`."""
    routed: Capsules = DynamicRouting(squash_constant=squash_constant, iterations=iterations)(votes)
    return routed.poses

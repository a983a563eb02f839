"""Inverted dot-product attention routing (tsai, procedure 1, Eqs. 1-4), one call an iteration:

a_ij ← p_j · v_ij / √D                 agreement; the scale is in the authors' release, not in the text
r_i ← softmax(a_i)                     over the parents j
p_j ← LayerNorm(Σ_i r_ij v_ij)

The poses p_j on the right are those of the iteration before; in the first they are 0, so that r_ij = 1/J. The loop
over iterations is procedure 2, see `capsexp.nn.hierarchy`: in each iteration after the first, all layers route
concurrently, from the poses that the layers had before it.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from capsexp import Iterations, Positive
from capsexp.errors import check_choice
from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing
from capsexp.routing.em import Activation, fitted


class InvertedRouting(Routing):
    """Votes [..., I, J, D] -> parent poses [..., J, D]; everything in float32 (float64 stays float64).

    Args:
        parents, pose: J and D.
        iterations: t, at least 1; 2 in the authors' release. Table 1 shows the best of 1 to 5.
        order: `concurrent`, or, for ablation B, `sequential`: a layer does all its iterations before the next one
            begins.
        norm: LayerNorm over the D components, with one affine pair a layer; false is ablation A. The primary
            capsules keep theirs, which is not part of the routing.
        activations: true is ablation C, "the same kind of activations as in EM routing". The paper gives no details;
            here every pose is weighted with its activation where it is used: p_j = LayerNorm(Σ_i a_i r_ij v_ij),
            and in the classifier. A primary capsule's activation is that of an EM network, a parent's is
            logistic(λ (β_a − Σ_h cost_jh)) of the last iteration, with the weights a_i r_ij. r_ij doesn't depend on it.
        inverse_temperature: λ of the activations; that of EM routing.

    Raises ValueError for other options than these, and for children without activations, if `activations` is true.
    """

    presence = "pose"
    only_with: ClassVar = {"inverse_temperature": ("activations", True)}

    def __init__(
        self,
        *,
        parents: int,
        pose: int,
        iterations: Iterations = 2,
        order: Literal["concurrent", "sequential"] = "concurrent",
        norm: bool = True,
        activations: bool = False,
        inverse_temperature: Positive = 0.1,
    ) -> None:
        super().__init__(iterations, parents=parents, pose=pose)
        check_choice("order", order, "concurrent", "sequential")
        self.concurrent = order == "concurrent"
        self.norm = nn.LayerNorm(pose) if norm else nn.Identity()
        self.uses_activations = activations
        self.activation = Activation(parents) if activations else None
        self.inverse_temperature = inverse_temperature

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """All iterations of one layer: [..., I, J, D], [..., I] -> poses [..., J, D], activations [..., J] or None."""
        parents = self.iteration(votes, activations, None)
        for _ in range(self.iterations - 1):
            parents = self.iteration(votes, activations, parents.poses)
        return parents

    def iteration(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first."""
        with full_precision(votes):
            votes, present = at_least_float32(votes), None
            weights = self.coefficients(votes, parents)
            if self.activation is not None:
                if activations is None:
                    raise ValueError("routing.activations=true: the children of this network have no activations")
                weights = weights * at_least_float32(activations)[..., None]
                present = self.activation(fitted(votes, weights), self.inverse_temperature).sigmoid()
            return Capsules(self.norm(torch.einsum("...ij,...ijd->...jd", weights, votes)), present)

    def coefficients(self, votes: Tensor, parents: Tensor | None) -> Tensor:
        """The routing coefficients r, [..., I, J]; they sum to 1 over the parents J."""
        if parents is None:
            return self.softmax(votes.new_zeros(votes.shape[:-1]))
        agreement = torch.einsum("...ijd,...jd->...ij", votes, at_least_float32(parents)) / votes.shape[-1] ** 0.5
        return self.softmax(agreement)

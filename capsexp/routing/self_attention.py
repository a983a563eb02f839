"""Self-attention routing (mazzia, "Self-attention routing"), without iterations:

a_ij ← û_j|i · Σ_k û_j|k / √D              agreement of a child's vote with all votes for the same parent
c_i ← softmax(a_i) + b_i                   over the parents j; b_ij is learned, 0 at first
v_j ← squash(Σ_i c_ij û_j|i)               (1 − e^−‖s‖) s / ‖s‖

In the authors' release the bias is added behind the softmax, so that c_i sums to 1 at first only, and √D is that of the
parents' poses.
"""

import torch
from torch import Tensor, nn

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing
from capsexp.nn.squash import exponential_squash


class SelfAttentionRouting(Routing):
    """Votes [..., I, J, D] -> parent poses [..., J, D]; everything in float32 (float64 stays float64).

    Args:
        children, parents: I and J; each pair has its own bias.
    """

    presence = "length"

    def __init__(self, *, children: int, parents: int) -> None:
        super().__init__(children=children, parents=parents)
        self.bias = nn.Parameter(torch.zeros(children, parents))

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """[..., I, J, D] -> poses [..., J, D]; the children's activations are not read."""
        with full_precision(votes):
            votes = at_least_float32(votes)
            agreement = torch.einsum("...ijd,...jd->...ij", votes, votes.sum(dim=-3)) / votes.shape[-1] ** 0.5
            coefficients = self.softmax(agreement) + self.bias
            return Capsules(exponential_squash(torch.einsum("...ij,...ijd->...jd", coefficients, votes)))

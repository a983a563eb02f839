"""Self-routing (Hahn, Pyeon, Kim: Self-Routing Capsule Networks, NeurIPS 2019), without iterations and agreement:

c_i ← softmax(W_i p_i + b_i)                     over the parents j, from the child's pose p_i alone
a_j ← Σ_i c_ij a_i / Σ_i a_i
p_j ← Σ_i c_ij a_i v_ij / Σ_i c_ij a_i

So the activations of a layer's parents sum to 1, and don't depend on its votes. As in the authors' release, the class
capsules have activations alone, without poses and votes; and W_i and b_i are 0 at first: all c_ij are 1/J.
"""

import torch
from torch import Tensor, nn

from capsexp.nn.precision import at_least_float32, full_precision
from capsexp.nn.routing import Capsules, Routing
from capsexp.routing.em import WEIGHT_FLOOR


class SelfRouting(Routing):
    """Votes [..., I, J, D], activations [..., I], poses [..., I, C] -> poses and activations of J parents, in float32.

    float64 stays float64.

    Args:
        children, parents, child_pose: I, J and C.
        last: the parents are the class capsules; their poses [..., J, 0] are empty.

    Raises ValueError for children without activations.
    """

    presence = "activation"
    uses_activations = True
    uses_poses = True
    scale = 1.0  # parents are means of votes, as in EM routing; the release, with less, has batch norms between layers

    def __init__(self, *, children: int, parents: int, child_pose: int, last: bool = False) -> None:
        super().__init__(children=children, parents=parents, child_pose=child_pose)
        self.gives_poses = not last
        self.weight = nn.Parameter(torch.zeros(children, parents, child_pose))
        self.bias = nn.Parameter(torch.zeros(children, parents))

    def forward(self, votes: Tensor, activations: Tensor | None = None, poses: Tensor | None = None) -> Capsules:
        """[..., I, J, D], [..., I], the children's poses [..., I, C] -> poses [..., J, D], activations [..., J]."""
        if activations is None or poses is None:
            raise ValueError("self-routing needs the children's activations and poses, and some are missing")
        with full_precision(votes):
            votes, activations, poses = map(at_least_float32, (votes, activations, poses))
            coefficients = self.softmax(torch.einsum("...ic,ijc->...ij", poses, self.weight) + self.bias)
            weights = coefficients * activations[..., None]
            total = weights.sum(dim=-2)
            parents = torch.einsum("...ij,...ijd->...jd", weights, votes) / (total + WEIGHT_FLOOR)[..., None]
            return Capsules(parents, total / (activations.sum(dim=-1, keepdim=True) + WEIGHT_FLOOR))

"""Class capsules whose matrices are shared over the positions, and attention along any axis of the votes."""

from typing import Literal

import torch
from torch import Tensor, nn

from capsexp.nn.attention import CapsAttention
from capsexp.nn.capsules import Routing

Axis = Literal["pose", "parents", "children"]


class SharedCapsules(nn.Module):
    """Every child votes with the same J matrices: û_j|i = W_j u_i (huang, Eq. 5, "each capsule shares the weight").

    Args:
        parents: J.
        child_pose, parent_pose: C and D.
        routing: from votes to parent poses.
        attention: applied to the votes, before routing.
    """

    def __init__(
        self, parents: int, child_pose: int, parent_pose: int, routing: Routing, attention: nn.Module | None = None
    ) -> None:
        super().__init__()
        # Glorot's uniform distribution over the J·D × C matrix, as in the Keras example that huang builds on.
        weight = torch.empty(parents * parent_pose, child_pose)
        nn.init.xavier_uniform_(weight)
        self.weight = nn.Parameter(weight.view(parents, parent_pose, child_pose))
        self.routing = routing
        self.attention = attention or nn.Identity()

    def votes(self, children: Tensor) -> Tensor:
        """[B, I, C] -> [B, I, J, D]."""
        return torch.einsum("bic,jdc->bijd", children, self.weight)

    def forward(self, children: Tensor) -> Tensor:
        """[B, I, C] -> [B, J, D]."""
        poses: Tensor = self.routing(self.attention(self.votes(children)))
        return poses


class AxisAttention(nn.Module):
    """huang's Caps-Attention (Eqs. 13-16) along one axis of the votes: its two matrices are n × n, n the axis' length.

    Args:
        axis: `pose`, `parents` or `children`. The paper only says that it acts on a tensor [J, I, D].
        children, parents, pose: I, J and D.
    """

    def __init__(self, axis: Axis, children: int, parents: int, pose: int) -> None:
        super().__init__()
        size, self.dim = {"children": (children, 1), "parents": (parents, 2), "pose": (pose, 3)}[axis]
        self.attention = CapsAttention(size)

    def forward(self, votes: Tensor) -> Tensor:
        """[B, I, J, D] -> [B, I, J, D]."""
        attended: Tensor = self.attention(votes.movedim(self.dim, -1))
        return attended.movedim(-1, self.dim)

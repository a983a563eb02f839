"""huang's Caps-Attention along any axis of the votes, or over all votes of a child."""

from typing import Literal

from torch import Tensor, nn

from capsexp.nn.attention import CapsAttention

Axis = Literal["pose", "parents", "children", "votes"]


class AxisAttention(nn.Module):
    """Caps-Attention (huang, Eqs. 13-16) with matrices of n × n, n the length of the chosen axis.

    Args:
        axis: `pose`, `parents`, `children`, or `votes`: the J · D numbers of one child's votes, as one vector. The
            paper only says that it acts on a tensor [J, I, D], on "100[10,16] dimensional" capsules made a vector.
        children, parents, pose: I, J and D.
    """

    def __init__(self, axis: Axis, children: int, parents: int, pose: int) -> None:
        super().__init__()
        size, self.dim = {
            "children": (children, 1),
            "parents": (parents, 2),
            "pose": (pose, 3),
            "votes": (parents * pose, 2),
        }[axis]
        self.axis = axis
        self.attention = CapsAttention(size)

    def forward(self, votes: Tensor) -> Tensor:
        """[B, …, J, D] -> the same shape; what stands between B and J are the children, in one dimension or more."""
        flat = votes.flatten(1, -3)  # [B, I, J, D]
        if self.axis == "votes":
            flat = flat.flatten(2)
        along: Tensor = self.attention(flat.movedim(self.dim, -1))
        return along.movedim(-1, self.dim).view_as(votes)

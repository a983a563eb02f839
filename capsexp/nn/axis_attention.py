"""huang's Caps-Attention along any axis of the votes."""

from typing import Literal

from torch import Tensor, nn

from capsexp.nn.attention import CapsAttention

Axis = Literal["pose", "parents", "children"]


class AxisAttention(nn.Module):
    """Caps-Attention (huang, Eqs. 13-16) with matrices of n × n, n the length of the chosen axis.

    Args:
        axis: `pose`, `parents` or `children`. The paper only says that it acts on a tensor [J, I, D].
        children, parents, pose: I, J and D.
    """

    def __init__(self, axis: Axis, children: int, parents: int, pose: int) -> None:
        super().__init__()
        size, self.dim = {"children": (children, 1), "parents": (parents, 2), "pose": (pose, 3)}[axis]
        self.attention = CapsAttention(size)

    def forward(self, votes: Tensor) -> Tensor:
        """[B, …, J, D] -> the same shape; what stands between B and J are the children, in one dimension or more."""
        along: Tensor = self.attention(votes.flatten(1, -3).movedim(self.dim, -1))
        return along.movedim(-1, self.dim).view_as(votes)

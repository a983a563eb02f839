"""Transformation matrices: from the poses of child capsules to their votes for the parents."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from capsexp.errors import check_choice


class TransformationMatrices(nn.Module):
    """From child poses to votes: v_ij = W_ij p_i (Sabour et al. 2017, Eq. 2; tsai, Eq. 1).

    Args:
        children, parents: I and J; each pair has its own matrix.
        child_pose, parent_pose: C and D.
        structure: of a pose. With `vector`, W_ij is D × C. With `matrix`, a pose is √D × √D, row by row, W_ij too,
            and C = D.
        scale: standard deviation of the initial matrices. None is √(J / (fan · I)), where fan is the length of a row of
            W_ij, as in tsai's release; the paper doesn't give it.

    Raises ValueError for less than one child or parent, for matrix poses that are not square, or with C ≠ D.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        structure: Literal["vector", "matrix"] = "vector",
        scale: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("structure", structure, "vector", "matrix")
        for name, size in (("children", children), ("parents", parents)):
            if size < 1:
                raise ValueError(f"{name}={size}: must be at least 1")
        self.matrix = structure == "matrix"
        rows, columns = parent_pose, child_pose
        if self.matrix:
            rows = columns = math.isqrt(parent_pose)
            if rows**2 != parent_pose or child_pose != parent_pose:
                raise ValueError(f"matrix poses are squares of one size, not of {child_pose} and {parent_pose} numbers")
        deviation = math.sqrt(parents / (columns * children)) if scale is None else scale
        self.weight = nn.Parameter(deviation * torch.randn(children, parents, rows, columns))

    def forward(self, poses: Tensor) -> Tensor:
        """[..., I, C] -> [..., I, J, D]."""
        return self.product(poses, self.weight)

    def extra_repr(self) -> str:
        """I, J, D and C; of matrix poses the sides in place of D and C."""
        children, parents, rows, columns = self.weight.shape
        return f"children={children}, parents={parents}, {rows}×{columns}"

    def product(self, poses: Tensor, weight: Tensor) -> Tensor:
        """`forward` with these matrices in place of its own, [I, J, D, C]; matrix poses: [I, J, √D, √D]."""
        if not self.matrix:
            return torch.einsum("...ic,ijdc->...ijd", poses, weight)
        side = weight.shape[-1]
        squares = poses.reshape(*poses.shape[:-1], side, side)
        return torch.einsum("...iyx,ijzy->...ijzx", squares, weight).flatten(-2)

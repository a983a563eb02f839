"""Capsule layers whose votes are recomputed inside a fast routing."""

from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp.nn.capsules import CapsuleLayer, ConvCapsules, LinearCapsules, checked, output_size
from capsexp.nn.routing import Capsules
from capsexp.routing.fast import selfcheck
from capsexp.routing.fast.bfloat16 import in_float32_if_faster
from capsexp.routing.fast.votes import FastRouting, VoteInputs, in_autocast_dtype, is_plain


class FastLayer(CapsuleLayer):
    """Its votes are `VoteInputs` where its routing takes them and no attention reads them.

    `path` says how the last batch in training mode was routed. A copy that is `checking` the fast path uses it.
    """

    path: str = ""
    checking: bool = False
    routing: FastRouting

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """What the votes of these children are recomputed from, without attention."""
        raise NotImplementedError

    def applies(self, votes: VoteInputs) -> bool:
        """Whether the routing takes these in place of votes, with the same result."""
        plain = isinstance(self.attention, nn.Identity) and is_plain(votes.poses)
        for module in (self.matrices, self.attention):  # whose hooks, a pruned weight's for example, it would leave out
            plain = plain and not (module._forward_hooks or module._forward_pre_hooks)
        applies = plain and isinstance(self.routing, FastRouting) and self.routing.applies(votes)
        return applies and selfcheck.agrees(self, votes)

    def votes(self, children: Capsules) -> Capsules:
        """Votes for this layer's own routing only."""
        inputs = self.vote_inputs(children)
        applies = self.applies(inputs)
        if self.training:
            self.path = self.routing.path(inputs.poses.device) if applies else "stored votes"
        return Capsules(cast(Tensor, inputs), inputs.activations) if applies else super().votes(children)


class FastLinearCapsules(FastLayer, LinearCapsules):
    """LinearCapsules with its fast path."""

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """Matrices that are shared over positions are repeated for each of them."""
        poses, activations = self.flattened(children)
        weight: Tensor = self.matrices.weight
        if (positions := poses.shape[1] // len(weight)) > 1:
            weight = weight.repeat(positions, 1, 1, 1)
        present = None if activations is None else activations[:, None, None]
        total = partial(in_float32_if_faster, self.vote_sum, poses, self.matrices.weight)
        return VoteInputs(poses[:, None, None], present, weight, 1, 1, total, ())

    def vote_sum(self, poses: Tensor, weight: Tensor) -> Tensor:
        """Poses [B, all children, C] and the matrices -> Σ_i v_ij, [B, J, D]."""
        grouped = torch.unflatten(poses, 1, (-1, len(weight)))
        if not self.matrices.matrix:
            return torch.einsum("...ic,ijdc->...jd", grouped, weight).sum(dim=1)
        squares = grouped.reshape(*grouped.shape[:-1], *weight.shape[2:])
        return torch.einsum("...iyx,ijzy->...jzx", squares, weight).flatten(-2).sum(dim=1)


class FastConvCapsules(FastLayer, ConvCapsules):
    """ConvCapsules with its fast path."""

    def vote_inputs(self, children: Capsules) -> VoteInputs:
        """Poses [B, H, W, I, C], activations [B, H, W, I]."""
        poses, activations = checked(children)
        window, weight = (self.kernel, self.stride), self.matrices.weight
        total = partial(in_float32_if_faster, self.vote_sum, poses, weight)
        return VoteInputs(poses, activations, weight, *window, total, output_size(poses.shape[1:3], *window))

    def vote_sum(self, poses: Tensor, weight: Tensor) -> Tensor:
        """Poses and matrices -> Σ_i v_ij, [B, H', W', J, D], a convolution; columns of matrix poses are its images."""
        parents, rows, columns = weight.shape[1:]  # [K · I, J, Z, Y]; a child is Y × X, a vote Z × X
        inner = poses.shape[-1] // columns
        maps = in_autocast_dtype(poses).reshape(*poses.shape[:4], columns, inner).movedim(-1, 1)
        maps = maps.flatten(4).flatten(0, 1).movedim(-1, 1)
        filters = weight.view(self.kernel, self.kernel, -1, parents, rows, columns).permute(3, 4, 2, 5, 0, 1)
        votes = functional.conv2d(maps, filters.flatten(2, 3).flatten(0, 1), stride=self.stride)
        return votes.view(-1, inner, parents, rows, *votes.shape[2:]).permute(0, 4, 5, 2, 3, 1).flatten(4)

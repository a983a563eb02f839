"""Votes that are never stored as a whole: what they are recomputed from, and what a fast routing is."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsexp.nn.routing import Routing
from capsexp.routing.fast.loops import compiler, library_for


class VoteInputs(NamedTuple):
    """Child poses and matrices from which a layer's votes are recomputed: v_ij = W_ij p_i."""

    poses: Tensor  # [B, H, W, I, C], the children's; in a linear layer H and W are 1
    activations: Tensor | None  # [B, H, W, I], the children's
    weight: Tensor  # [K · I, J, D, C], with matrix poses [K · I, J, √D, √D]
    kernel: int
    stride: int
    sum: Callable[[], Tensor]  # Σ_i v_ij, [..., J, D], in one product
    places: tuple[int, ...]  # H', W' of the parents; a linear layer's have none

    def of_places(self, parents: Tensor) -> Tensor:
        """Of parents [B, H', W', ...] those of the layer, [B, *places, ...]."""
        return parents if self.places else parents[:, 0, 0]


class FastRouting(Routing):
    """A routing that takes `VoteInputs` in place of votes where it `applies`, and votes elsewhere."""

    def applies(self, votes: VoteInputs) -> bool:
        """Whether it takes these: here, where there are loops."""
        return library_for(votes.poses, votes.weight, votes.kernel, votes.stride) is not None

    def path(self, device: torch.device) -> str:
        """What routes these, with the version of its compiler."""
        if device.type == "cuda":
            return f"Triton {import_module('triton').__version__}"  # the name of its distribution differs by platform
        return f"C loops, {compiler()[1]}"


def is_plain(tensor: Tensor) -> bool:
    """Whether it is computed now and as it is: not compiled, exported, traced or transformed by torch.func.

    There a fast path would be traced with what it reads, or fail.
    """
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    transformed = torch._C._are_functorch_transforms_active()  # no public function tells it
    return type(tensor) in (Tensor, nn.Parameter) and not (traced or transformed)


def in_autocast_dtype(tensor: Tensor) -> Tensor:
    """The tensor in autocast's type, which the factors of products have; unchanged without autocast and in float64."""
    device = tensor.device.type
    if tensor.is_meta or not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))

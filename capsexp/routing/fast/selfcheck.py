"""A fast path is used only where it gives the reference's numbers: on this device, for a layer's own shapes.

Before the first batch of each shape, a copy of the layer with random parameters routes random children, once by the
fast path and once as the layer is written, with at most three iterations, a first, a middle and a last one: with more,
EM routing amplifies rounding beyond any tolerance. Parents and gradients of images on both sides of a vector's end, and
of the last one, must agree. A fast path that fails, with an exception or with other numbers, isn't used for that shape:
a line of the log `capsexp` says why.
"""

import copy
import logging
import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from capsexp.errors import RunError, first_line
from capsexp.nn.capsules import CapsuleLayer
from capsexp.nn.routing import Capsules
from capsexp.routing import fast
from capsexp.routing.fast import loops
from capsexp.routing.fast.loops import LANES
from capsexp.routing.fast.votes import VoteInputs, in_autocast_dtype

if TYPE_CHECKING:
    from capsexp.routing.fast.layers import FastLayer

log = logging.getLogger("capsexp")

#: Max relative difference of parents and gradients, by the type of the products' factors.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}

ITERATIONS = 3

_failures: dict[Hashable, str | None] = {}  # why there is no fast path, by shape


def agrees(layer: "FastLayer", votes: VoteInputs) -> bool:
    """Whether the layer's fast path gives the reference's numbers for such children; checked once a process."""
    device = votes.poses.device
    if layer.checking or votes.poses.is_meta:
        return True
    if not len(votes.poses):
        return False
    poses, activations, weight, *window = votes[:5]
    # All on a GPU, whose kernels are launched by their number; on a CPU as many as the loops need, and for each thread
    # the places of a whole vector and of a part of one.
    vectors = torch.get_num_threads() * LANES // math.prod(votes.places)
    elements = math.prod(votes.places) * weight.numel() * poses.shape[-1] // weight.shape[3] ** 2  # of an image's votes
    needed = max(2, vectors + 1, -(-loops.MIN_VOTES // elements))
    images = len(poses) if poses.is_cuda else min(len(poses), needed)
    factors = in_autocast_dtype(weight[:0]).dtype
    shapes = images, poses.shape[1:], activations is None, weight.shape, *window
    options = {**vars(layer.routing), "iterations": min(ITERATIONS, layer.routing.iterations), "training": None}
    plain = tuple((name, value) for name, value in options.items() if isinstance(value, int | float | str))
    key = type(layer), type(layer.routing), plain, device, poses.dtype, factors, *shapes
    if key not in _failures:
        if failure := _failure(layer, votes, images, factors):
            name, shape = type(layer.routing).__bases__[-1].__name__, "×".join(map(str, votes.poses.shape))
            failure = f"{name} on children of {shape}: no fast path, {failure}; the reference is used"
            log.warning(failure)
        _failures[key] = failure
    return _failures[key] is None


def _failure(layer: "FastLayer", votes: VoteInputs, images: int, factors: torch.dtype) -> str | None:
    """Why the fast path can't be used, in words, or None. Raises RunError where the device can't go on.

    Args:
        images: that are routed.
        factors: the type of the products' factors.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():
            quick = copy.deepcopy(layer, _drawn(layer))
            quick.checking = True
            for module in quick.modules():  # a user's hooks see no random children
                for kind in ("forward", "forward_pre", "backward", "backward_pre"):
                    getattr(module, f"_{kind}_hooks").clear()
            quick.routing.iterations = min(ITERATIONS, layer.routing.iterations)
            slow = copy.deepcopy(quick)
            fast.disable(slow)
            children = _children(votes, images)
            places = sorted({0, *(place for place in (LANES - 1, LANES) if place < images), images - 1})
            some = children.each(lambda part: part[places].detach().requires_grad_())
            reference = _parents_and_gradients(slow, some, range(len(places)))
            return difference(_parents_and_gradients(quick, children, places), reference, TOLERANCES[factors])
    except torch.OutOfMemoryError:  # the reference takes more
        raise
    except Exception as error:  # of a compiler, a driver, a device: each raises its own
        if "illegal memory access" in str(error) or "device-side assert" in str(error):
            raise RunError(f"{first_line(error)}: no more can run on this device; trainer.routing=reference") from error
        return f"{type(error).__name__}: {first_line(error)}"


def _drawn(layer: CapsuleLayer) -> dict[int, Any]:
    """Random parameters in place of the layer's, for its deep copy: pruned or damaged ones are no fault of its shape.

    Of about the size that makes votes of 1. They are leaves, which a replica's or functional_call's aren't.
    """
    source, drawn = torch.Generator().manual_seed(2), dict[int, Any]()
    for module in layer.modules():
        for tensor in (*module.parameters(recurse=False), *vars(module).values()):
            if isinstance(tensor, Tensor):
                values = torch.randn(tensor.shape, generator=source) / max(1, *tensor.shape[-1:]) ** 0.5
                drawn[id(tensor)] = torch.nn.Parameter(values.to(tensor), tensor.requires_grad)
    return drawn


def _children(votes: VoteInputs, images: int) -> Capsules:
    """Random children of so many images, from a generator of their own."""
    options: dict[str, Any] = {"generator": torch.Generator(votes.poses.device).manual_seed(0)}
    options["device"] = votes.poses.device
    poses = torch.randn((images, *votes.poses.shape[1:]), **options).to(votes.poses.dtype).requires_grad_()
    if votes.activations is None:
        return Capsules(poses)
    present = torch.rand((images, *votes.activations.shape[1:]), **options).to(votes.activations.dtype)
    return Capsules(poses, present.requires_grad_())


def _parents_and_gradients(layer: CapsuleLayer, children: Capsules, places: Sequence[int]) -> list[Tensor | None]:
    """What the layer gives for the images at `places`, and the gradients of a sum of it, by all that it reads."""
    index = torch.tensor(places, device=children.poses.device)
    parents = [part[index].float() for part in layer(children) if part is not None]
    source = torch.Generator(parents[0].device).manual_seed(1)
    total = sum((part * torch.randn(part.shape, generator=source, device=part.device)).sum() for part in parents)
    read = [part for part in [*children, *layer.parameters()] if part is not None and part.requires_grad]
    assert isinstance(total, Tensor)
    gradients: Sequence[Tensor | None] = torch.autograd.grad(total, read, allow_unused=True)
    of_children = sum(part is not None for part in children)
    return [*parents, *(g if g is None or at >= of_children else g[index] for at, g in enumerate(gradients))]


def difference(computed: Sequence[Tensor | None], reference: Sequence[Tensor | None], tolerance: float) -> str | None:
    """The largest relative difference in words, where it is above the tolerance or no number."""
    for tensor, expected in zip(computed, reference, strict=True):
        # A missing gradient is 0. On the CPU: some devices have no float64.
        ours, theirs = (torch.zeros(()) if part is None else part.cpu().double() for part in (tensor, expected))
        error = ((ours - theirs).norm() / theirs.norm().clamp(min=1e-12)).item()
        if not error <= tolerance:
            return f"its numbers differ from the reference's by {error:.1e} of their size"
    return None

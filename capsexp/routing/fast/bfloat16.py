"""Products of bfloat16 on a CPU without fast instructions for them, computed in float32 from the same numbers.

A product of bfloat16 rounds its factors, multiplies and adds in float32, and rounds the sums. Where torch emulates
that, it takes many times as long as a product of float32 between the same two roundings, which differs in the order of
the sums only. (On AVX2, torch's own gradients of a convolution of 9 × 9 by its input and weight were 0.5 and 0.9 % of
their norm off the exact ones after the same roundings, these less than 0.01 %.)
"""

import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsexp.nn.matrices import TransformationMatrices
from capsexp.nn.precision import full_precision
from capsexp.routing.fast.loops import instructions
from capsexp.routing.fast.votes import is_plain

#: What `path` of a layer says.
PATH = "bfloat16 in float32"


def is_faster_in_bfloat16(device: torch.device) -> bool:
    """Whether it has bfloat16 instructions, which torch emulates elsewhere, that make convolutions faster.

    Intel's AVX512-BF16 without AMX, which a virtual machine may hide, makes them slower: DA-CapsNet's step on CIFAR-10
    takes 1.5 times as long as in float32.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Private functions: for x86, torch.cpu.get_capabilities is public (https://github.com/pytorch/pytorch/pull/173433),
    # but newer than some torch that is allowed here; for oneDNN on ARM there is none.
    if platform.machine() == "x86_64":
        fast = "Intel" not in instructions() or torch.cpu._is_amx_tile_supported()
        return fast and torch.cpu._is_avx512_bf16_supported()
    try:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except (AttributeError, RuntimeError):  # the wheels for macOS are built without oneDNN
        return False


def is_slow(factor: Tensor) -> bool:
    """Whether autocast makes its product one of bfloat16, on a CPU that takes more time for it."""
    cast = factor.device.type == "cpu" and torch.is_autocast_enabled("cpu") and factor.dtype != torch.float64
    slow = cast and is_plain(factor) and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return slow and not is_faster_in_bfloat16(factor.device)


def in_float32_if_faster(product: Callable[..., Tensor], input: Tensor, *others: Tensor | None) -> Tensor:
    """The product of these factors; in float32 where bfloat16 takes more time, gradients likewise."""
    if not is_slow(input):
        return product(input, *others)
    with full_precision(input):
        rounded = (None if factor is None else factor.bfloat16().float() for factor in (input, *others))
        return product(*rounded).bfloat16()


class InFloat32(nn.Module):
    """Base of layers that compute in float32 where bfloat16 takes more time.

    `path` says whether the last batch in training mode was computed so.
    """

    path: str = ""

    def computed(self, product: Callable[..., Tensor], input: Tensor, *parameters: Tensor | None) -> Tensor:
        """The product of an input and parameters."""
        if self.training:
            self.path = PATH if is_slow(input) else ""
        return in_float32_if_faster(product, input, *parameters)


class FastConv2d(InFloat32, nn.Conv2d):
    """nn.Conv2d with its fast path."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.computed(super()._conv_forward, input, weight, bias)


class FastLinear(InFloat32, nn.Linear):
    """nn.Linear with its fast path."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return self.computed(functional.linear, input, self.weight, self.bias)


class FastMatrices(InFloat32, TransformationMatrices):
    """TransformationMatrices with their fast path."""

    def product(self, poses: Tensor, weight: Tensor) -> Tensor:
        """See `TransformationMatrices`."""
        return self.computed(super().product, poses, weight)

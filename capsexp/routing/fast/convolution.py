"""Convolutions on a CPU in less time: large kernels by the discrete Fourier transform, bfloat16 in float32.

A convolution of stride s is the sum of s² convolutions of stride 1, each of the kernel's and the map's every s-th rows
and columns. Over n × n points, where n is the output's side plus that of such a part of the kernel minus 1, each is a
product at each frequency, and of a real map's n² frequencies about n²/2 are independent. CapsNet's primary capsules,
9 × 9 of stride 2 on 20 × 20, take 832 multiplications for a pair of channels in place of 2,916, besides the transforms.
"""

import logging
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from capsexp.nn.capsules import output_size
from capsexp.nn.precision import full_precision
from capsexp.routing.fast import bfloat16, selfcheck
from capsexp.routing.fast.votes import is_plain

log = logging.getLogger("capsexp")

#: Min ratio of a convolution's multiplications to those by the transform, whose tensors are larger than a cache.
MIN_GAIN = 2.0


class FastConv2d(nn.Conv2d):
    """nn.Conv2d, by the transform or in float32 where that takes less time and gives the same numbers.

    `path` says how the last batch in training mode was computed: convolutions by Fourier transform, bfloat16 in
    float32, both, or nothing for nn.Conv2d's own.
    """

    path: str = ""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if bfloat16.is_slow(input):
            output = bfloat16.computed(self._conv_forward, input, weight, bias)
            if self.training:
                self.path = "; ".join(filter(None, (bfloat16.PATH, self.path)))
            return output
        applies = self._applies(input)
        if self.training:
            self.path = "convolutions by Fourier transform" if applies else ""
        if not applies:
            return super()._conv_forward(input, weight, bias)
        output = _Convolution.apply(input, weight, self.stride[0], self.padding[0])  # type: ignore[no-untyped-call]
        return output if bias is None else output + bias[:, None, None]

    def _applies(self, maps: Tensor) -> bool:
        """Whether it computes what the transform does, on this device and in this type, and is large enough."""
        if not is_plain(maps):
            return False
        kernel, stride, padding, sizes = self.kernel_size, self.stride, self.padding, maps.shape[-2:]
        if isinstance(padding, str) or any(rows != columns for rows, columns in (kernel, stride, padding, sizes)):
            return False
        if self.padding_mode != "zeros" or self.dilation != (1, 1) or self.groups != 1 or maps.dim() != 4:
            return False
        if maps.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return False
        side, types = output_size(sizes, kernel[0], stride[0], padding[0])[0], {maps.dtype, self.weight.dtype}
        if types != {torch.float32} or _gain(self.weight.shape, len(maps), stride[0], side) < MIN_GAIN:
            return False
        return _holds(kernel[0], sizes[0], stride[0], padding[0])


@cache
def _holds(kernel: int, size: int, stride: int, padding: int) -> bool:
    """Whether the transform gives a direct convolution's outputs and gradients, for two random maps of 16 channels.

    It doesn't where torch was told to multiply matrices in less than float32.
    """
    options: dict[str, Any] = {"generator": torch.Generator().manual_seed(0), "device": "cpu", "dtype": torch.float32}
    with torch.inference_mode(False), torch.enable_grad():
        shapes = (2, 16, size, size), (16, 16, kernel, kernel)
        read = maps, weight = tuple(torch.randn(shape, **options).requires_grad_() for shape in shapes)
        direct = functional.conv2d(maps, weight, stride=stride, padding=padding)
        transformed = _Convolution.apply(*read, stride, padding)  # type: ignore[no-untyped-call]
        grad_output = torch.randn(direct.shape, **options)
        wanted, given = ([output, *torch.autograd.grad(output, read, grad_output)] for output in (direct, transformed))
    failure = selfcheck.difference(given, wanted, selfcheck.TOLERANCES[torch.float32])
    if failure:
        log.warning(f"convolutions of {kernel}×{kernel}: no fast path, {failure}; the reference is used")
    return failure is None


def _gain(weight: torch.Size, batch: int, stride: int, side: int) -> float:
    """The ratio of multiplications."""
    outputs, channels, kernel, _ = weight
    taps = -(-kernel // stride)
    points = (side + taps - 1) ** 2
    parts = channels * stride**2
    transforms = parts * batch * points + parts * outputs * taps**2 + batch * outputs * side**2
    products = 2 * batch * parts * outputs
    return batch * channels * outputs * (side * kernel) ** 2 / (points * (products + transforms))


@cache
def _transform(points: int) -> tuple[Tensor, Tensor]:
    """The DFT of real [N, N] at its independent frequencies, [F, 2, N, N], and the inverse's weights, [F, 1, 1, 1].

    The two are real and imaginary parts. The inverse counts a frequency for its conjugate, too.
    """
    opposite = [(u, v, -u % points, -v % points) for u in range(points) for v in range(points)]
    kept = torch.tensor([pair for pair in opposite if pair[:2] <= pair[2:]], device="cpu")
    place = torch.arange(points, dtype=torch.float64, device="cpu")
    rows, columns = (2 * math.pi / points * kept[:, at, None] * place for at in (0, 1))
    angles = rows[:, :, None] + columns[:, None, :]
    twice = 1 + (kept[:, :2] != kept[:, 2:]).any(dim=1)
    return torch.stack((angles.cos(), -angles.sin()), dim=1), (twice / points**2)[:, None, None, None]


class _Convolution(torch.autograd.Function):
    """[B, C, H, H] and [O, C, k, k] -> [B, O, H', H']. The products are complex, their parts apart."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        batch, (outputs, _, kernel, _), size = len(maps), weight.shape, maps.shape[-1]
        side, taps = output_size((size, size), kernel, stride, padding)[0], -(-kernel // stride)
        points = side + taps - 1
        forward, scale = _transform(points)
        conjugate = forward * forward.new_tensor([1.0, -1.0])[:, None, None]  # the kernel isn't mirrored
        of_maps = forward.flatten(2).flatten(0, 1).float()
        of_weight = conjugate[..., :taps, :taps].flatten(2).flatten(0, 1).float()
        of_outputs = (forward * scale)[..., :side, :side].flatten(2).flatten(0, 1).float()
        x = (of_maps @ _parts(maps, stride, points, padding)).view(len(forward), 2 * batch, -1)
        w = (of_weight @ _parts(weight, stride, taps)).view(len(forward), 2, outputs, -1)
        product, by_imaginary = x @ w[:, 0].mT, x @ w[:, 1].mT
        product[:, :batch] -= by_imaginary[:, batch:]
        product[:, batch:] += by_imaginary[:, :batch]
        output = of_outputs.mT @ product.view(len(of_outputs), -1)
        ctx.save_for_backward(x, w, of_maps, of_weight, of_outputs)
        ctx.sizes = stride, padding, size, kernel
        plain = maps.is_contiguous() and weight.is_contiguous()  # then torch's output is so, too
        layout = torch.contiguous_format if plain else torch.channels_last
        return output.view(side, side, batch, outputs).permute(2, 3, 0, 1).contiguous(memory_format=layout)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        with full_precision(grad_output):  # for a backward pass within a region of autocast
            return _gradients(ctx, grad_output)


def _gradients(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    """By the maps and the weight, where they are needed."""
    x, w, of_maps, of_weight, of_outputs = ctx.saved_tensors
    stride, padding, size, kernel = ctx.sizes
    batch, outputs = grad_output.shape[:2]
    given = of_outputs @ grad_output.permute(2, 3, 0, 1).reshape(-1, batch * outputs)
    given = given.view(-1, 2 * batch, outputs)
    grad_maps = grad_weight = None
    if ctx.needs_input_grad[0]:
        grad_x, by_imaginary = given @ w[:, 0], given @ w[:, 1]
        grad_x[:, :batch] += by_imaginary[:, batch:]
        grad_x[:, batch:] -= by_imaginary[:, :batch]
        grad_maps = _whole(of_maps.mT @ grad_x.view(len(of_maps), -1), batch, stride, size, padding)
    if ctx.needs_input_grad[1]:
        turned = torch.cat((given[:, batch:], -given[:, :batch]), dim=1)
        grad_taps = of_weight[0::2].mT @ (given.mT @ x).view(len(x), -1)
        grad_taps.addmm_(of_weight[1::2].mT, (turned.mT @ x).view(len(x), -1))
        grad_weight = _whole(grad_taps, outputs, stride, kernel)
    return grad_maps, grad_weight, None, None


def _parts(maps: Tensor, stride: int, points: int, padding: int = 0) -> Tensor:
    """[B, C, H, H] -> [N², B · s² · C]: every s-th row and column from each of the first s, with zeros up to N · s."""
    apart = _padded(maps, padding, points * stride).permute(0, 2, 3, 1)
    apart = apart.reshape(len(maps), points, stride, points, stride, -1).permute(1, 3, 0, 2, 4, 5)
    return apart.reshape(points**2, -1)


def _whole(parts: Tensor, batch: int, stride: int, size: int, padding: int = 0) -> Tensor:
    """`_parts` backwards: [B, C, H, H], channels last."""
    points = math.isqrt(len(parts))
    together = parts.view(points, points, batch, stride, stride, -1).permute(2, 0, 3, 1, 4, 5)
    together = together.reshape(batch, points * stride, points * stride, -1).permute(0, 3, 1, 2)
    return _padded(together, -padding, size)


def _padded(maps: Tensor, before: int, size: int) -> Tensor:
    """With so many more rows and columns of zeros before, in all `size`; fewer for a negative number."""
    after = size - before - maps.shape[-1]
    return functional.pad(maps, (before, after) * 2) if before or after else maps

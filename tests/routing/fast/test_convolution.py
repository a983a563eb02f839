"""Convolutions by the transform: the numbers and gradients of nn.Conv2d, and where they are used."""

import pytest
import torch
from torch import nn

from capsexp.routing import fast
from capsexp.routing.fast import bfloat16, convolution, selfcheck

# channels, outputs, kernel, stride, padding, side of the map
SHAPES = [
    (3, 5, 9, 2, 0, 20),
    (2, 3, 9, 2, 0, 21),
    (4, 6, 5, 1, 2, 11),
    (3, 4, 4, 3, 1, 14),
    (2, 3, 3, 3, 0, 11),
    (2, 3, 2, 3, 0, 11),
    (1, 1, 1, 1, 0, 5),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_and_gradients_are_the_convolutions(
    shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "MIN_GAIN", 0.0)
    *sizes, side = shape
    layer = nn.Conv2d(*sizes, bias=bias)
    maps = torch.randn(4, sizes[0], side, side, requires_grad=True)
    read = [maps, *layer.parameters()]
    expected = layer(maps)
    grad_output = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, read, grad_output)
    assert transformed(layer, maps)
    found = layer(maps)
    for one, other in zip((found, *torch.autograd.grad(found, read, grad_output)), (expected, *gradients), strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() < 1e-5 * other.norm()


def test_the_output_has_the_memory_format_of_the_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "MIN_GAIN", 0.0)
    layer, maps = nn.Conv2d(3, 4, 5), torch.rand(2, 3, 9, 9)
    for own, given in ((False, False), (True, False), (False, True)):
        layer.to(memory_format=torch.channels_last if own else torch.contiguous_format)
        read = maps.contiguous(memory_format=torch.channels_last if given else torch.contiguous_format)
        fast.disable(layer)
        expected = layer(read)
        assert transformed(layer, read)
        assert layer(read).stride() == expected.stride()


def transformed(layer: nn.Conv2d, maps: torch.Tensor) -> bool:
    """Whether the layer, switched to its fast path, computes by the transform."""
    fast.enable(layer)
    layer(maps)
    return fast.paths(layer) == "convolutions by Fourier transform"


def test_only_large_kernels_on_many_channels_and_images_are_transformed() -> None:
    maps = torch.rand(64, 64, 20, 20)
    assert transformed(nn.Conv2d(64, 256, 9, 2), maps)
    assert not transformed(nn.Conv2d(64, 256, 9, 2), maps[:1])
    assert not transformed(nn.Conv2d(64, 256, 1), maps)
    assert not transformed(nn.Conv2d(1, 256, 9), maps[:, :1])


def test_the_check_does_not_depend_on_torchs_default_type() -> None:
    layer, maps = nn.Conv2d(64, 256, 9, 2), torch.rand(64, 64, 20, 20)
    convolution._holds.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert transformed(layer, maps)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_transform_with_other_numbers_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    layer, maps = nn.Conv2d(64, 256, 9, 2), torch.rand(64, 64, 20, 20)
    assert transformed(layer, maps)
    monkeypatch.setitem(selfcheck.TOLERANCES, torch.float32, 1e-9)
    convolution._holds.cache_clear()
    assert not transformed(layer, maps)
    assert not transformed(layer, maps)
    assert fast.paths(layer) == "reference"
    assert ["the reference is used" in record.message for record in caplog.records] == [True]
    convolution._holds.cache_clear()


def test_other_convolutions_and_types_are_computed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "MIN_GAIN", 1e-9)
    maps = torch.rand(2, 4, 9, 9)
    assert transformed(nn.Conv2d(4, 4, 3), maps)
    others = [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, (3, 1)),
        nn.Conv2d(4, 4, 3, (1, 2)),
    ]
    assert not any(transformed(layer, maps) for layer in others)
    assert not transformed(nn.Conv2d(4, 4, 3), maps[..., :8])
    assert not transformed(nn.Conv2d(4, 4, 3), maps[0])
    assert not transformed(nn.Conv2d(4, 4, 3).double(), maps.double())
    monkeypatch.setattr(bfloat16, "is_faster_in_bfloat16", lambda device: True)
    with torch.autocast("cpu", torch.bfloat16):
        assert not transformed(nn.Conv2d(4, 4, 3), maps)
    with pytest.raises(ValueError, match="a kernel of 11×11 doesn't fit on 9×9 positions"):
        transformed(nn.Conv2d(4, 4, 11), maps)

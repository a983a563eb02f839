"""The check of a device finds what is wrong with it, and goes on."""

from subprocess import CalledProcessError

import pytest
import torch
from support import Program, raising
from torch import Tensor

from capsexp.nn.routing import Capsules
from capsexp.routing.fast.inverted import FastInvertedRouting

NARROW = ("trainer=cpu", "budget.width=0.05")


def test_all_is_well_here(program: Program) -> None:
    code, lines, errors = program("benchmarks/device.py", *NARROW)
    assert (code, errors) == (0, [])
    assert [line.split(":")[0].removeprefix("ok    ") for line in lines] == [
        *("versions", "device", "compiler", "float32"),
        *(f"{name} routing, {kind}" for name in ("dynamic", "inverted", "EM") for kind in ("float32", "bf16")),
        *("CUDA graph, dynamic", "CUDA graph, inverted", "CUDA graph, EM", "memory"),
    ]


def test_what_is_wrong_is_said(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    convolved, iteration = torch.nn.functional.conv2d, FastInvertedRouting.iteration

    def tf32(images: Tensor, weight: Tensor, *rest: object, **options: object) -> Tensor:
        rounded = images.half().float() if images.dtype == torch.float32 else images  # both have 10 bits
        return convolved(rounded, weight, *rest, **options)

    def wrong(self: FastInvertedRouting, *inputs: object) -> Capsules:
        return Capsules(iteration(self, *inputs).poses * float("nan"))

    monkeypatch.setattr(torch.nn.functional, "conv2d", tf32)
    monkeypatch.setattr(FastInvertedRouting, "iteration", wrong)
    monkeypatch.setenv("CC", "no-such-compiler")
    code, lines, _ = program("benchmarks/device.py", *NARROW)
    assert code == 1
    found = [line.split(":")[0].removeprefix("FAIL  ") for line in lines if line.startswith("FAIL")]
    assert found[:3] == ["compiler", "float32", "inverted routing, float32"]
    assert set(found[3:]) <= {"inverted routing, bf16"}  # where the device has it
    assert len(lines) == 14


def test_an_error_of_any_kind_fails_its_line_alone(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "conv2d", raising(CalledProcessError(1, ["cc"])))
    code, lines, errors = program("benchmarks/device.py", *NARROW)
    assert (code, errors, len(lines)) == (1, [], 14)
    assert "FAIL  float32: CalledProcessError: Command '['cc']' returned non-zero exit status 1." in lines[3]
    assert lines[-1].startswith("ok    memory")

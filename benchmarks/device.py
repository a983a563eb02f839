"""Checks this device: `make check-device`, or `python benchmarks/device.py [KEY=VALUE …]`, without data, in a minute.

A line each, ok or FAIL: versions, device and compiler; float32 products and convolutions against float64 (in TF32 they
would be a thousand times as far off); fast routing against the reference, in value, gradient and both precisions; on a
GPU, steps replayed from a CUDA graph against eager ones. Ends with 1 if anything failed. trainer=cpu checks the CPU.
"""

import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

import torch
from runner import configured
from torch import Tensor

from capsexp.cli import Parser, end_with
from capsexp.config.schema import Config
from capsexp.data.loader import Batch
from capsexp.errors import DONE, FAILED, RunError, first_line
from capsexp.routing import fast
from capsexp.routing.fast import proof
from capsexp.run.build import build
from capsexp.run.environment import forbid_tf32, peak_memory_mb, processor
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import WARM_UP, CapturedStep, make_optimizer, make_step
from capsexp.run.plan import Plan, find_device

#: Relative errors of float32, and of fast routing by precision: of gradients through two or three iterations.
PRODUCTS, ROUTING = 1e-5, {"float32": 1e-3, "bf16": 0.2}

NETWORKS = {
    "dynamic": "model=capsnet data=mnist budget.width=0.25",
    "inverted": "model=inverted_capsnet data=cifar10 budget.width=0.25 routing.iterations=3",
    "EM": "model=em_capsnet data=cifar10 budget.width=0.25 routing.density=mean",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit code."""
    parser = Parser(__doc__, "device.py")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="trainer=cpu checks the CPU")
    overrides = parser.parse_words(arguments, named=False).overrides
    forbid_tf32()
    device = find_device(_config("data=mnist", overrides))[0]
    checks: dict[str, Callable[[], str]] = {
        "versions": _versions,
        "device": lambda: _device(device),
        "compiler": _compiler,
        "float32": lambda: _float32(device),
        **{
            f"{name} routing, {precision}": partial(
                _routing, line, [*overrides, f"trainer.precision={precision}"], device
            )
            for name, line in NETWORKS.items()
            for precision in ROUTING
        },
        **{f"CUDA graph, {name}": partial(_graph, line, overrides, device) for name, line in NETWORKS.items()},
        "memory": lambda: ", ".join(f"{where} {mb or 0:,.0f} MB" for where, mb in peak_memory_mb(device).items()),
    }
    failed = 0
    for name, act in checks.items():
        started = time.perf_counter()
        try:
            said = f"ok    {name}: {act()}"
        except Exception as error:  # Triton's have no common base
            said, failed = f"FAIL  {name}: {type(error).__name__}: {first_line(error)}", failed + 1
        print(f"{said} ({time.perf_counter() - started:.1f} s)", flush=True)
    return FAILED if failed else DONE


def _config(line: str, overrides: Sequence[str]) -> Config:
    return configured([*line.split(), "trainer.precision=float32", *overrides])


def _versions() -> str:
    triton = import_module("triton").__version__ if find_spec("triton") else "none"
    versions = {"Python": platform.python_version(), "torch": version("torch"), "Triton": triton}
    versions |= {"CUDA": torch.version.cuda or "none", "cuDNN": str(torch.backends.cudnn.version())}
    return ", ".join(f"{what} {which}" for what, which in versions.items())


def _device(device: torch.device) -> str:
    if device.type != "cuda":
        return f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    found = torch.cuda.get_device_properties(device)
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return (
        f"{found.name}, {found.multi_processor_count} multiprocessors, {found.total_memory / 2**30:.0f} GiB, "
        f"compute capability {found.major}.{found.minor}, bfloat16 {'yes' if bf16 else 'no'}, {os.cpu_count()} cores"
    )


def _compiler() -> str:
    """Triton's kernels and the loops of votes.c are compiled when they are first used."""
    found = shutil.which(os.environ.get("CC") or "cc")
    if found is None:
        raise RunError("no C compiler: the fast routing of the CPU, and on a GPU Triton, need one")
    return found


def _float32(device: torch.device) -> str:
    torch.manual_seed(0)
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    images, weight = torch.randn(8, 64, 16, 16), torch.randn(64, 64, 3, 3)
    errors = {
        "product": _error([a.to(device) @ b.to(device)], [a.double() @ b.double()]),
        "convolution": _error(
            [torch.nn.functional.conv2d(images.to(device), weight.to(device))],
            [torch.nn.functional.conv2d(images.double(), weight.double())],
        ),
    }
    return ", ".join(_below(PRODUCTS, error, f"error of a {what}") for what, error in errors.items())


def _routing(line: str, overrides: Sequence[str], device: torch.device) -> str:
    """The relative error of scores and gradients."""
    found, paths = [], []
    precision = overrides[-1].partition("=")[2]
    if precision == "bf16" and find_device(_config(line, [*overrides, "trainer.precision=auto"]))[1] != "bf16":
        return "this device has no bfloat16, or the routing is not trained in it: runs are in float32"
    before = len(proof.failures())
    for way in ("fast", "reference"):
        config = _config(line, [*overrides, f"trainer.routing={way}"])
        torch.manual_seed(0)
        network = build(config).network.to(device)
        pixels = torch.rand(8, config.data.channels, config.data.size, config.data.size).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            scores = network(pixels).scores.float()
        scores.square().sum().backward()
        paths.append(fast.paths(network))
        gradients = [part.grad for part in network.parameters() if part.grad is not None]
        found.append([scores.detach(), torch.cat([gradient.flatten() for gradient in gradients])])
    for failure in proof.failures()[before:]:
        raise RunError(failure)
    return f"{paths[0]}, {_below(ROUTING[precision], _error(*found), 'difference of fast and reference')}"


def _graph(line: str, overrides: Sequence[str], device: torch.device) -> str:
    """The relative error of losses; the learning rate changes after the capture."""
    if device.type != "cuda":
        return "not on a CPU"
    found = []
    for captured in (False, True):
        config = _config(line, overrides)
        torch.manual_seed(0)
        module = CapsuleModule(Plan(config, device, "float32", None, None), build(config)).to(device)
        optimizer = make_optimizer(module.parameters(), config.optim)
        step = make_step(module.loss_and_scores, Tensor.backward, optimizer, True, captured, module.buffers())
        losses = []
        for number in range(WARM_UP + 5):
            optimizer.param_groups[0]["lr"] /= 1 + (number == WARM_UP + 3)
            labels = torch.arange(32, device=device) % config.data.classes
            pixels = torch.rand(32, config.data.channels, config.data.size, config.data.size, device=device)
            losses.append(step(Batch(pixels, labels)).loss)
        if isinstance(step, CapturedStep) and step.failed:
            raise RunError(step.failed)
        found.append([torch.stack(losses)])
    return _below(ROUTING["float32"], _error(*found), "difference of replayed and eager steps")


def _below(bound: float, error: float, what: str) -> str:
    """Both in words; raises RunError for an error above the bound, or for none."""
    if not error < bound:
        raise RunError(f"{what} {error:.1e}, above {bound:.0e}")
    return f"{what} {error:.1e}"


def _error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest relative error; not a number, if there is one that isn't."""
    pairs = [(a.double().cpu(), b.double().cpu()) for a, b in zip(found, exact, strict=True)]
    return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max().item()


if __name__ == "__main__":
    end_with(main)

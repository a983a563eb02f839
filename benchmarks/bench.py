"""Measures speed and memory of training on this device: `make bench`.

Whole training steps (forward, loss, backward, optimiser) of the papers' networks, on batches in the device's memory,
with fast and with reference routing (`trainer.routing`) alternately, in one process; on a GPU they are replayed from a
CUDA graph, as in runs. Memory is the peak of the GPU's memory, or on a CPU that of a new process that does one step,
with Python and torch. What doesn't fit `--seconds` is left out, as is a routing whose step doesn't fit a CPU's free
memory. The floating-point operations are those of the last routing that fits, counted by torch, for both: they do the
same work, so that the TFLOP/s compare times. Writes results/benchmarks/DEVICE.md, .json and .png.
"""

import argparse
import ctypes
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from capsexp.cli import Parser, exit_with
from capsexp.config import compose
from capsexp.config.schema import Config, check
from capsexp.data.loader import Batch
from capsexp.run.build import build
from capsexp.run.memory import host_peak, is_out_of_memory, keep_freed_memory
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import WARM_UP, EagerStep, make_optimizer, make_step
from capsexp.run.plan import Plan, find_device, forbid_tf32
from capsexp.run.provenance import processor

WAYS = ("fast", "reference")
CAPSNET = "model=capsnet data=mnist reconstruction.enabled=true"
EM = "model=em_capsnet data=cifar10 trainer.precision=float32"
INVERTED = "model=inverted_capsnet data=cifar10 optim.batch_size=32"

#: Growth with routing iterations: family -> case -> iterations.
GROWTH = {
    "CapsNet": {f"CapsNet, MNIST, B=128, {n} iterations": n for n in (1, 3, 5)},
    "inverted": {f"inverted, CIFAR-10, B=32, {n} iterations": n for n in (1, 2, 3, 5)},
}
STYLES = {"CapsNet": {"color": "#0072B2", "marker": "o"}, "inverted": {"color": "#D55E00", "marker": "s"}}

#: Training steps: a name, a command line.
CASES = [
    *((name, f"{CAPSNET} routing.iterations={n}") for name, n in GROWTH["CapsNet"].items()),
    *((name, f"{INVERTED} routing.iterations={n}") for name, n in GROWTH["inverted"].items()),
    *((f"inverted, CIFAR-10, B={n}, 2 iterations", f"{INVERTED} optim.batch_size={n}") for n in (8, 64, 128)),
    *((f"inverted, CIFAR-10, B=32, 2 iterations, {n} types", f"{INVERTED} model.capsule_types={n}") for n in (8, 16)),
    ("DA-CapsNet, CIFAR-10, B=128", "model=da_capsnet data=cifar10"),
    *(
        (f"EM, CIFAR-10, B={b}, {n} iterations", f"{EM} optim.batch_size={b} routing.iterations={n}")
        for b, n in ((8, 2), (8, 3), (32, 2), (32, 3))
    ),
]

#: After which a benchmark on a GPU begins no further measurement, of which none takes half a minute.
GPU_SECONDS = 200


@dataclass(frozen=True)
class Timings:
    """The steps of one case, fast or reference."""

    case: str
    way: str
    seconds: list[float]  # of each step
    first: float  # seconds of the first step, which sets up the others
    memory_gb: float
    operations: float  # floating-point, of a step of the reference, where it fits
    batch: int

    @property
    def median(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.seconds)


def main(arguments: list[str]) -> None:
    """Runs the command."""
    keep_freed_memory()
    forbid_tf32()
    options = _options(arguments)
    if options.alone is not None:
        print(_peak(options))
        return
    device, precision = find_device(_config(CASES[0][1], options.overrides))
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else f"{processor()}, {torch.get_num_threads()} threads"
    name = f"{name}, {precision}"
    load = os.getloadavg()[0]  # of other processes
    end = time.monotonic() + (options.seconds or (GPU_SECONDS if cuda else float("inf")))
    found = {"device": name, "precision": precision, "load": load, "ceilings": _ceilings(device, precision)}
    order, measured = [case for case, _ in CASES], list[Timings]()
    page = ""
    for done, index in enumerate(options.cases):
        if done and time.monotonic() > end:
            print(f"{len(options.cases) - done} of {len(options.cases)} left out: no time left", file=sys.stderr)
            break
        measured.extend(_case(index, options))
        measured.sort(key=lambda one: order.index(one.case))
        if measured:
            page = _write(options.output, found, measured)  # what is measured stays if the rest fails
    if not measured:
        raise SystemExit("error: no step fits the memory")
    print(page)


def _write(folder: Path, found: dict[str, Any], measured: list[Timings]) -> str:
    """Writes the three files; the page."""
    name: str = found["device"]
    page = _page(name, found["load"], found["ceilings"], measured)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / re.sub(r"\W+", "-", name).strip("-").lower()
    stem.with_suffix(".md").write_text(page)
    content = found | {"steps": [asdict(steps) for steps in measured]}
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    _draw(name, measured, stem.with_suffix(".png"))
    return page


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="steps of each case and routing")
    parser.add_argument(
        "--cases", type=int, nargs="+", default=list(range(len(CASES))), metavar="N", help="from 0, in this order"
    )
    parser.add_argument("--seconds", type=float, metavar="N", help=f"default: {GPU_SECONDS} on a GPU, else no limit")
    parser.add_argument("--output", type=Path, default=Path("results/benchmarks"), metavar="DIR")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    return parser.parse_intermixed_args(arguments)


def _config(case: str, overrides: Sequence[str], way: str = "fast") -> Config:
    words = [*case.split(), *overrides, f"trainer.routing={way}"]
    return check(compose.composed(list({word.partition("=")[0]: word for word in words}.values())))  # the last counts


def _step(case: str, way: str, options: argparse.Namespace) -> tuple[Callable[[], None], Config]:
    """A training step, and its configuration."""
    config = _config(case, options.overrides, way)
    device, precision = find_device(config)
    torch.manual_seed(0)
    module = CapsuleModule(Plan(config, device, precision, None, None), build(config)).to(device)
    optimizer, cuda = make_optimizer(module.parameters(), config.optim), device.type == "cuda"
    step = EagerStep(module.loss_and_scores, torch.Tensor.backward, optimizer, [*module.buffers()])
    act = make_step(step, cuda, cuda)
    data, batch = config.data, config.optim.batch_size
    images = torch.rand(batch, data.channels, data.size, data.size, device=device)
    labels = torch.randint(data.classes, (batch,), device=device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            act(Batch(images, labels))
        if cuda:
            torch.cuda.synchronize(device)

    return step, config


def _case(index: int, options: argparse.Namespace) -> list[Timings]:
    """The steps of a case, fast and reference, of those that fit the memory; none where fast doesn't."""
    name, case = CASES[index]
    cuda = find_device(_config(case, options.overrides))[0].type == "cuda"
    memory = {} if cuda else {way: found for way in WAYS if (found := _memory(index, way, options)) is not None}
    ways = WAYS if cuda else tuple(memory)
    if "fast" not in ways:
        print(f"{name}: doesn't fit the memory", file=sys.stderr)
        return []
    steps, first, seconds = {}, {}, {way: list[float]() for way in ways}
    for way in ways:
        before = _start_peak() if cuda else 0
        try:
            steps[way] = _step(case, way, options)
            first[way] = _timed(steps[way][0])
            with FlopCounterMode(display=False) as counter:  # of the last way; its hooks would fail a fast path's proof
                steps[way][0]()
            for _ in range(WARM_UP if cuda else 0):
                steps[way][0]()
        except torch.OutOfMemoryError:
            print(f"{name}, {way}: doesn't fit the memory", file=sys.stderr)
            steps.pop(way, None)
            if way == "fast":
                return []
        if cuda:
            memory[way] = (torch.cuda.max_memory_allocated() - before) / 1e9
    ways = tuple(steps)
    for _ in range(options.rounds):
        for way in ways:
            seconds[way].append(_timed(steps[way][0]))
    batch = steps["fast"][1].optim.batch_size
    operations = counter.get_total_flops()
    steps.clear()
    with suppress(OSError, AttributeError):  # where there is glibc's malloc, which keeps what is freed
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return [Timings(name, way, seconds[way], first[way], memory[way], operations, batch) for way in ways]


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _start_peak() -> int:
    """Begins a new peak of the GPU's memory; gives what is in use."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _memory(index: int, way: str, options: argparse.Namespace) -> float | None:
    """What `_peak` says in a new process, or None."""
    command = [sys.executable, __file__, *options.overrides, f"--alone={index}", f"--way={way}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None if said == "None" else float(said)


def _peak(options: argparse.Namespace) -> float | None:
    """Peak memory of this process after one step on the CPU, in 10⁹ bytes; None if more than is free."""
    try:
        with _within_free_memory():
            _step(CASES[options.alone][1], options.way, options)[0]()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return host_peak() / 1e9


@contextmanager
def _within_free_memory() -> Iterator[None]:
    """Within a block, an operation that takes more than four fifths of the host's free memory raises an error: Linux
    promises more memory than it has, and kills who uses it.
    """
    if not Path("/proc/meminfo").exists():
        yield
        return
    free, used = _kib("meminfo", "MemAvailable"), _kib("self/status", "VmData")
    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = 1024 * (used + free * 4 // 5)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _kib(path: str, key: str) -> int:
    """A number of a file in /proc."""
    return int(Path("/proc", path).read_text().partition(f"{key}:")[2].split()[0])


def _ceilings(device: torch.device, precision: str) -> dict[str, float]:
    """TFLOP/s of a large matrix product and of CapsNet's second convolution, the best of ten.

    Of bfloat16 where runs use it: elsewhere it is emulated, in minutes.
    """
    size = 8192 if device.type == "cuda" else 2048
    found = {}
    for kind in (torch.float32, *[torch.bfloat16] * (precision == "bf16")):
        a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
        found[f"matrix product, {str(kind)[6:]}"] = 2 * size**3 / _best(lambda a=a, b=b: a @ b, device) / 1e12
        image = torch.randn(128, 256, 20, 20, device=device, dtype=kind)
        weight = torch.randn(256, 256, 9, 9, device=device, dtype=kind)
        act = lambda i=image, w=weight: torch.nn.functional.conv2d(i, w, stride=2)  # noqa: E731
        found[f"convolution, {str(kind)[6:]}"] = 2 * 128 * 256 * 36 * 256 * 81 / _best(act, device) / 1e12
    return found


def _best(act: Callable[[], object], device: torch.device) -> float:
    def whole() -> None:
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(_timed(whole) for _ in range(10))


def _page(name: str, load: float, ceilings: dict[str, float], measured: list[Timings]) -> str:
    lines = [
        "<!-- made by benchmarks/bench.py; not by hand -->\n",
        f"# {name}\n",
        f"torch {torch.__version__}. Whole training steps, medians (from – to) of "
        f"{len(measured[0].seconds)}; see benchmarks/bench.py for what is counted. The load of other processes at the "
        f"start was {load:.1f}, on {os.cpu_count()} processors.\n",
        "| ceiling | TFLOP/s |\n| --- | --: |",
        *(f"| {what} | {value:.3g} |" for what, value in ceilings.items()),
        "\n| step | fast, s | reference, s | times faster | images/s | TFLOP/s | first step, s | fast, GB "
        "| reference, GB |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    references = {steps.case: steps for steps in measured if steps.way == "reference"}
    for fast in (steps for steps in measured if steps.way == "fast"):
        compared = ["doesn't fit the memory", "", ""]
        if reference := references.get(fast.case):
            ratios = [r / f for f, r in zip(fast.seconds, reference.seconds, strict=True)]
            compared = [_spread(reference.seconds), _spread(ratios), f"{reference.memory_gb:.2f}"]
        lines.append(
            f"| {fast.case} | {_spread(fast.seconds)} | {compared[0]} | {compared[1]} "
            f"| {fast.batch / fast.median:,.0f} | {fast.operations / fast.median / 1e12:.3g} | {fast.first:.2f} "
            f"| {fast.memory_gb:.2f} | {compared[2]} |"
        )
    return "\n".join(lines) + "\n"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} – {max(values):.3g})"


def _draw(name: str, measured: list[Timings], path: Path) -> None:
    """Time and memory by routing iterations, fast and reference."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for family, cases in GROWTH.items():
        for way, style in (("fast", "-"), ("reference", "--")):
            found = [steps for steps in measured if steps.way == way and steps.case in cases]
            iterations = [cases[steps.case] for steps in found]
            for axis, values in ((left, [s.median for s in found]), (right, [s.memory_gb for s in found])):
                axis.plot(iterations, values, linestyle=style, label=f"{family}, {way}", **STYLES[family])
    left.set(xlabel="routing iterations", ylabel="seconds a training step", yscale="log")
    right.set(xlabel="routing iterations", ylabel="peak memory, GB", ylim=(0, None))
    right.legend(loc="upper left")
    for axis in (left, right):
        axis.set_xticks(range(1, 6))
    figure.suptitle(name)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    exit_with(main)

"""What routing costs: a whole training step of tsai's network, fast against reference, in time and in memory.

`python benchmarks/routing.py [--iterations N …] [--rounds N] [--threads N] [KEY=VALUE …]`, the last as for capsexp,
prints a table in Markdown. Times of the two ways are taken in turn, in one process. Memory is the peak of a fresh
process that imports torch, builds the network and does one step with one batch; a process inherits the peak of the one
that starts it, so that it is measured before the times. A third of it and more is torch itself, with its optimizers.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from capsexp import composing
from capsexp.build import build, make_loss
from capsexp.config import check
from capsexp.nn.capsules import use_reference

WAYS = ("fast", "reference")
DEFAULTS = ["model=inverted_capsnet", "data=cifar10", "optim.batch_size=32"]


def main() -> None:
    """Prints the comparison."""
    options = _options()
    torch.set_num_threads(options.threads)
    if options.alone:
        _step(options.iterations[0], options.alone, options.overrides)()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9)
        return
    memory = {(n, way): _memory(n, way, options) for n in options.iterations for way in _ways(n, options)}
    print("| iterations | fast, s | reference, s | times faster | fast, GB | reference, GB |\n|" + "---|" * 6)
    for iterations in options.iterations:
        seconds = _seconds(iterations, options)
        times = {way: _spread(seconds.get(way, [])) for way in WAYS}
        faster = _spread([r / f for f, r in zip(*seconds.values(), strict=True)]) if len(seconds) == 2 else ""
        print(f"| {iterations} | {times['fast']} | {times['reference']} | {faster} |", end="")
        print(f" {memory[iterations, 'fast']} | {memory.get((iterations, 'reference'), '')} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--reference", type=int, default=2, help="measure the reference up to so many iterations")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args()


def _step(iterations: int, way: str, overrides: list[str]) -> Callable[[], None]:
    """A training step, with batches that are there already."""
    config = check(composing.composed([*DEFAULTS, f"routing.iterations={iterations}", *overrides]))
    torch.manual_seed(0)
    network = build(config).network
    if way == "reference":
        use_reference(network)
    loss, data = make_loss(config.loss, network), config.data
    optimizer = torch.optim.SGD(network.parameters(), config.optim.lr, config.optim.momentum)
    images = torch.randn(config.optim.batch_size, data.channels, data.size, data.size)
    labels = torch.randint(data.classes, (len(images),))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            scores = network(images).scores
        optimizer.zero_grad()
        loss(scores.float(), labels).backward()
        optimizer.step()

    return step


def _ways(iterations: int, options: argparse.Namespace) -> tuple[str, ...]:
    return WAYS if iterations <= options.reference else WAYS[:1]


def _seconds(iterations: int, options: argparse.Namespace) -> dict[str, list[float]]:
    ways = _ways(iterations, options)
    steps = {way: _step(iterations, way, options.overrides) for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds + 1):
        for way in ways:
            started = time.perf_counter()
            steps[way]()
            if turn > 0:  # the first one warms up
                seconds[way].append(time.perf_counter() - started)
    return seconds


def _memory(iterations: int, way: str, options: argparse.Namespace) -> str:
    command = [sys.executable, __file__, "--alone", way, "--iterations", str(iterations)]
    threads = ["--threads", str(options.threads)]
    done = subprocess.run([*command, *threads, *options.overrides], capture_output=True, text=True, check=True)
    return f"{float(done.stdout):.2f}"


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()

"""What the runner costs: samples a second through `capsexp.training` against a bare PyTorch loop.

`python benchmarks/runner.py [KEY=VALUE …]` trains the same network on the same batches both ways, in turn, in one
process, and prints the medians and their ratio. Both train an epoch and evaluate after it; the runner's time has its
checkpoints and TensorBoard's files in it.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from capsexp import composing
from capsexp.build import build, make
from capsexp.config import Config, Paths, check
from capsexp.data import source
from capsexp.data.loader import DeviceLoader, TrainingLoader
from capsexp.data.module import training_preprocess
from capsexp.experiment import run
from capsexp.host_memory import keep_freed_memory
from capsexp.plan import find_place
from capsexp.worker import Callback

ROUNDS = 5
USUAL = ("data=mnist_sample", "budget=demo", "budget.epochs=1", "trainer.progress=none")


def main(overrides: list[str]) -> None:
    """Prints the comparison."""
    keep_freed_memory()
    typed = {word.partition("=")[0]: word for word in [*USUAL, *overrides]}
    bare, runner = [], []
    for seed in range(ROUNDS + 1):
        config = check(composing.composed([*typed.values(), f"seed={seed}"]))
        bare.append(_bare(config))
        runner.append(_runner(config))
    images = config.budget.train_images or len(source.load(config.data).train_labels)
    bare, runner = bare[1:], runner[1:]  # the first ones warm up
    ratios = [b / r for b, r in zip(bare, runner, strict=True)]
    print(f"bare loop  {images / statistics.median(bare):8.1f} images/s")
    print(f"runner     {images / statistics.median(runner):8.1f} images/s")
    print(f"runner/bare  median {statistics.median(ratios):.3f}  from {min(ratios):.3f} to {max(ratios):.3f}")


def _bare(config: Config) -> float:
    """Seconds of an epoch of nothing but forward, backward and step, and of its evaluation."""
    device, precision = find_place(config)
    images, budget = source.load(config.data), config.budget
    train, test = (
        (pixels[:first].to(device), labels[:first].to(device))
        for pixels, labels, first in (
            (images.train_images, images.train_labels, budget.train_images),
            (images.test_images, images.test_labels, budget.test_images),
        )
    )
    size = config.optim.batch_size
    loader = TrainingLoader(*train, size, training_preprocess(config), config.seed, lambda: 0, budget.steps)
    loss, network = make(config.loss, "loss"), build(config).network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), config.optim.lr)
    started = time.perf_counter()
    for pixels, labels, _ in loader:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            scores = network(pixels).scores
        optimizer.zero_grad()
        loss(scores.float(), labels).backward()
        optimizer.step()
    right = torch.zeros((), dtype=torch.int64, device=device)
    for pixels, labels, _ in DeviceLoader(*test, config.trainer.eval_batch_size):
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            right += (network(pixels).scores.argmax(dim=1) == labels).sum()
    right.item()
    return time.perf_counter() - started


class _Clock(Callback):
    """Times a fit, without what comes before the first step."""

    def on_train_start(self, *_: object) -> None:
        """Data and network are on the device."""
        self.started = time.perf_counter()

    def on_train_end(self, *_: object) -> None:
        """The checkpoints are written."""
        self.seconds = time.perf_counter() - self.started


def _runner(config: Config) -> float:
    """Seconds of the same through the runner."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as name:
        paths = Paths(results=str(Path(name) / "results"), logs=str(Path(name) / "logs"))
        run(replace(config, paths=paths), None, lambda line: None, [clock])
    return clock.seconds


if __name__ == "__main__":
    main(sys.argv[1:])

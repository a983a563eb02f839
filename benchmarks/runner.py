"""What the runner costs: samples a second through `capsexp.training` against a bare PyTorch loop.

`python benchmarks/runner.py [KEY=VALUE …]` trains the same network on the same batches both ways, in turn, in one
process, and prints the medians and their ratio. Training alone is timed; the runner's evaluation and checkpoint come
after the clock has stopped, as the bare loop has none.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from capsexp import composing
from capsexp.build import build, make
from capsexp.config import Config, check
from capsexp.data import source
from capsexp.data.loader import TrainingLoader
from capsexp.data.module import training_preprocess
from capsexp.experiment import run
from capsexp.host_memory import keep_freed_memory
from capsexp.plan import find_place

ROUNDS = 5


def main(overrides: list[str]) -> None:
    """Prints the comparison."""
    keep_freed_memory()
    arguments = ["data=mnist_sample", "budget=smoke", "budget.steps=20", "trainer.progress=none", *overrides]
    images = len(_epoch(check(composing.composed(arguments)))) * check(composing.composed(arguments)).optim.batch_size
    bare, runner = [], []
    for seed in range(ROUNDS + 1):
        config = check(composing.composed([*arguments, f"seed={seed}"]))
        bare.append(_bare(config))
        runner.append(_runner(arguments, seed))
    bare, runner = bare[1:], runner[1:]  # the first ones warm up
    ratios = [b / r for b, r in zip(bare, runner, strict=True)]
    print(f"bare loop  {images / statistics.median(bare):8.1f} images/s")
    print(f"runner     {images / statistics.median(runner):8.1f} images/s")
    print(f"runner/bare  median {statistics.median(ratios):.3f}  from {min(ratios):.3f} to {max(ratios):.3f}")


def _epoch(config: Config) -> TrainingLoader:
    device, _ = find_place(config)
    images = source.load(config.data)
    return TrainingLoader(
        images.train_images.to(device),
        images.train_labels.to(device),
        config.optim.batch_size,
        training_preprocess(config),
        config.seed,
        lambda: 0,
        config.budget.steps,
    )


def _bare(config: Config) -> float:
    """Seconds of one epoch of nothing but forward, backward and step."""
    device, precision = find_place(config)
    loader, loss = _epoch(config), make(config.loss, "loss")
    network = build(config).network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), config.optim.lr)
    started = time.perf_counter()
    for pixels, labels in loader:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            scores = network(pixels).scores
        optimizer.zero_grad()
        loss(scores.float(), labels).backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _runner(arguments: list[str], seed: int) -> float:
    """Seconds of the same epoch through the runner."""
    with tempfile.TemporaryDirectory() as name:
        paths = [f"paths.results={Path(name) / 'results'}", f"paths.logs={Path(name) / 'logs'}"]
        config = check(composing.composed([*arguments, f"seed={seed}", *paths]))
        return float(run(config, None, lambda line: None).epochs[0]["train_seconds"])


if __name__ == "__main__":
    main(sys.argv[1:])

"""Compares the throughput of a run with that of a bare PyTorch loop: `python benchmarks/runner.py [KEY=VALUE …]`.

Both train the same network on the same batches for an epoch and evaluate it, alternately, in one process. The time of
the run includes its checkpoints and TensorBoard's files.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from capsexp.cli import Parser, end_with
from capsexp.config import compose
from capsexp.config.schema import Config, Paths, check, training_preprocess
from capsexp.data import source
from capsexp.data.loader import DeviceLoader, TrainingLoader
from capsexp.run.build import build
from capsexp.run.environment import forbid_tf32, keep_freed_memory
from capsexp.run.execute import execute
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import make_optimizer
from capsexp.run.plan import Plan, find_device, plan

DEFAULTS = ("data=mnist_sample", "budget=demo", "budget.epochs=1", "trainer.progress=none")


@dataclass(frozen=True)
class EpochTimes:
    """Epochs in a bare loop and by the runner."""

    images: int  # trained on in an epoch
    bare: list[float]  # seconds an epoch
    runner: list[float]

    @property
    def ratios(self) -> list[float]:
        """The runner's throughput divided by the bare loop's."""
        return [bare / runner for bare, runner in zip(self.bare, self.runner, strict=True)]


def main(arguments: list[str]) -> None:
    """Runs the command."""
    parser = Parser(__doc__, "runner.py")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help=f"default: {' '.join(DEFAULTS)}")
    found = compare(parser.parse_words(arguments, named=False).overrides)
    print(f"bare loop  {found.images / statistics.median(found.bare):8.1f} images/s")
    print(f"runner     {found.images / statistics.median(found.runner):8.1f} images/s")
    ratios = found.ratios
    print(f"runner/bare  median {statistics.median(ratios):.3f}  from {min(ratios):.3f} to {max(ratios):.3f}")


def configured(words: Sequence[str]) -> Config:
    """The checked configuration of a command line, where a key's last word counts, a group's too."""
    return check(compose.composed(list({word.partition("=")[0]: word for word in words}.values())))


def compare(overrides: Sequence[str], rounds: int = 5) -> EpochTimes:
    """Epochs of some rounds, after one to warm up, of DEFAULTS with the overrides."""
    keep_freed_memory()
    forbid_tf32()
    bare, runner = [], []
    for seed in range(rounds + 1):
        config = configured([*DEFAULTS, *overrides, f"seed={seed}"])
        bare.append(_bare(config))
        runner.append(_runner(config))
    images = config.budget.train_images or len(source.load(config.data).train_labels)
    steps = config.budget.steps
    return EpochTimes(min(images, steps * config.optim.batch_size) if steps else images, bare[1:], runner[1:])


def _bare(config: Config) -> float:
    """Seconds of an epoch and its evaluation in a bare loop."""
    device, precision = find_device(config)
    images, budget = source.load(config.data), config.budget
    train = [part[: budget.train_images].to(device) for part in (images.train_images, images.train_labels)]
    test = [part[: budget.test_images].to(device) for part in (images.test_images, images.test_labels)]
    size = config.optim.batch_size
    loader = TrainingLoader(*train, size, training_preprocess(config), config.seed, lambda: 0, budget.steps)
    module = CapsuleModule(Plan(config, device, precision, None, None), build(config)).to(device)
    optimizer = make_optimizer(module.parameters(), config.optim)
    autocast = partial(torch.autocast, device.type, torch.bfloat16, enabled=precision == "bf16")
    started = time.perf_counter()
    for batch in loader:
        with autocast():
            loss = module.loss_and_scores(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = torch.zeros((), dtype=torch.int64, device=device)
    module.eval()
    for batch in DeviceLoader(*test, config.trainer.eval_batch_size):
        with torch.no_grad(), autocast():
            right += (module.loss_and_scores(batch).scores.argmax(dim=1) == batch.labels).sum()
    right.item()
    return time.perf_counter() - started


def _runner(config: Config) -> float:
    """Seconds of an epoch and its evaluation by the runner, from the first step until the checkpoints are written."""
    from pytorch_lightning.callbacks import LambdaCallback  # capsexp, which may have to mend torchvision, comes first

    times: list[float] = []
    clock = LambdaCallback(
        on_train_start=lambda *_: times.append(time.perf_counter()),
        on_train_end=lambda *_: times.append(time.perf_counter()),
    )
    with tempfile.TemporaryDirectory() as name:
        paths = Paths(results=str(Path(name) / "results"), logs=str(Path(name) / "logs"))
        execute(plan(replace(config, paths=paths)), lambda line: None, [clock])
    started, ended = times
    return ended - started


if __name__ == "__main__":
    end_with(main)

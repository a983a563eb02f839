"""What a run prints."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import TINY, composed_config

from capsexp.data.loader import BatchGroups, DeviceLoader
from capsexp.errors import duration
from capsexp.run import progress
from capsexp.run.build import build
from capsexp.run.execute import run
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import plan
from capsexp.run.progress import EpochBar, epoch_line, make_progress


@pytest.mark.parametrize("kind", ["lines", "bar"])
@pytest.mark.parametrize(
    ("steps", "expected"), [(None, "256 images of mnist_sample, 3"), (2, "200 images of mnist_sample, 2")]
)
def test_a_run_prints_how_much_it_trains(
    kind: str, steps: int | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not how many images its data set has, and of a trial those of its steps."""
    images, labels = torch.zeros(256, 1, 28, 28, dtype=torch.uint8), torch.zeros(256, dtype=torch.int64)
    loader = DeviceLoader(images, labels, 100, steps=steps)
    trainer: Any = SimpleNamespace(train_dataloader=BatchGroups(loader, 1), current_epoch=0)
    (callback,), module = make_progress(kind), after()
    callback.on_train_start(trainer, module)
    callback.on_exception(trainer, module, KeyboardInterrupt())
    assert not (isinstance(callback, EpochBar) and callback.progress.live.is_started)
    assert f"trains {module.trained_parameters:,} parameters on {expected} batches an epoch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(89, "89 s"), (5399, "90 min"), (172_740, "47 h 59 min"), (4_406_400, "51 days")]
)
def test_durations_are_in_the_unit_that_says_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_an_epoch_whose_line_is_printed_is_kept(tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(line: str) -> None:
        if line.startswith("epoch 2/3"):
            raise KeyboardInterrupt

    config = composed_config(*tiny, "logger=tensorboard", "trainer.progress=lines")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(progress, "print_line", interrupted)
        run(config)
    assert run(config).provenance["resumed_after_epochs"] == [2]


def after(*accuracies: float) -> CapsuleModule:
    """A module of three epochs after those with these accuracies."""
    config = composed_config(*TINY)
    module = CapsuleModule(plan(config), build(config))
    seconds = {"train_seconds": 8.0, "test_seconds": 2.0}
    module.history = [
        {"epoch": epoch, "train_loss": 0.5, "test_accuracy": accuracy, **seconds}
        for epoch, accuracy in enumerate(accuracies, 1)
    ]
    return module


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([95.0, 90.0], "epoch 2/3  loss 0.5000  test 90.00 % (max 95.00 in epoch 1)  10.0 s  10 s left"),
        ([90.0, 95.0, 95.0], "epoch 3/3  loss 0.5000  test 95.00 % (max 95.00 in epoch 2)  10.0 s"),
    ],
)
def test_the_line_of_an_epoch(accuracies: list[float], words: str) -> None:
    assert epoch_line(after(*accuracies)) == words


def test_a_bar_counts_the_batches_of_all_epochs_of_a_resumed_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = torch.zeros(256, 1, 28, 28, dtype=torch.uint8), torch.zeros(256, dtype=torch.int64)
    trainer: Any = SimpleNamespace(train_dataloader=BatchGroups(DeviceLoader(images, labels, 100), 1), current_epoch=2)
    bar, module = EpochBar(), after(95.0, 90.0)
    bar.on_train_start(trainer, module)
    bar.on_train_batch_end(trainer, module, None, [(images, labels)] * 2, 0)
    (task,) = bar.progress.tasks
    assert (task.completed, task.total) == (2 * 3 + 2, 3 * 3)
    assert (task.description, bar.progress.live.is_started) == ("3 epochs", True)
    bar.on_train_epoch_end(trainer, module)
    bar.on_train_end(trainer, module)
    assert not bar.progress.live.is_started
    assert epoch_line(module) in capsys.readouterr().out


@pytest.mark.parametrize(("terminal", "kind"), [(True, "EpochBar"), (False, "EpochLines")])
def test_a_terminal_has_a_bar_and_anything_else_lines(
    terminal: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert [type(one).__name__ for one in make_progress("auto")] == [kind]

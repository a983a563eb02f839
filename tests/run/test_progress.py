"""What a run prints."""

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
from capsexp.run.progress import make_progress


@pytest.mark.parametrize("kind", ["lines", "bar"])
@pytest.mark.parametrize(
    ("steps", "expected"), [(None, "256 images of mnist_sample, 3"), (2, "200 images of mnist_sample, 2")]
)
def test_a_run_prints_how_much_it_trains(
    kind: str, steps: int | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not how many images its data set has, and of a trial those of its steps."""
    config = composed_config(*TINY)
    built = build(config)
    module = CapsuleModule(plan(config), built)
    images, labels = torch.zeros(256, 1, 28, 28, dtype=torch.uint8), torch.zeros(256, dtype=torch.int64)
    loader = DeviceLoader(images, labels, 100, steps=steps)
    trainer: Any = SimpleNamespace(train_dataloader=BatchGroups(loader, 1), current_epoch=0)
    (callback,) = make_progress(kind)
    callback.on_train_start(trainer, module)
    callback.on_exception(trainer, module, KeyboardInterrupt())
    assert f"trains {built.parameters:,} parameters on {expected} batches an epoch" in capsys.readouterr().out


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

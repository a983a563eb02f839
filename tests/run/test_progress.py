"""What a run prints."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import TINY, composed_config

from capsexp.data.loader import BatchGroups, DeviceLoader
from capsexp.run.build import build
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import plan
from capsexp.run.progress import make_progress


@pytest.mark.parametrize("kind", ["lines", "bar"])
def test_a_run_says_on_how_many_images_it_trains(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not how many its data set has."""
    config = composed_config(*TINY)
    module = CapsuleModule(plan(config), build(config))
    loader = DeviceLoader(torch.zeros(256, 1, 28, 28, dtype=torch.uint8), torch.zeros(256, dtype=torch.int64), 128)
    trainer: Any = SimpleNamespace(train_dataloader=BatchGroups(loader, 1), current_epoch=0)
    (callback,) = make_progress(kind)
    callback.on_train_start(trainer, module)
    callback.on_exception(trainer, module, KeyboardInterrupt())
    assert "trains on 256 images of mnist_sample, 2 batches an epoch" in capsys.readouterr().out

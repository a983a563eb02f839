"""What all tests share: configurations small enough to train in a second, and folders of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from capsexp import composing
from capsexp.config import Config, check

#: A CapsNet of one capsule type on a few images of the packaged sample: a run of a second.
TINY = (
    "data=mnist_sample",
    "budget=demo",
    "budget.epochs=3",
    "budget.width=0.04",
    "budget.train_images=256",
    "budget.test_images=200",
    "trainer=cpu",
    "trainer.deterministic=true",
    "trainer.precision=float32",
)

Compose = Callable[..., Config]


def composed_config(*overrides: str) -> Config:
    """The checked configuration of a command line."""
    return check(composing.composed(list(overrides)))


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only slow tests may use the full data sets."""
    if "slow" not in request.keywords:
        monkeypatch.delenv("CAPSEXP_DATA", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """TINY, writing below the test's own folder."""
    return (*TINY, f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs")

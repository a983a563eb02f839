"""Loops for every batch, and no check: these tests are the check."""

from collections.abc import Iterator

import pytest
import torch

from capsexp.routing.fast import loops, selfcheck


@pytest.fixture
def loops_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles the loops whatever the size of a batch."""
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    monkeypatch.setattr(selfcheck, "agrees", lambda *_: True)


@pytest.fixture
def three_threads() -> Iterator[None]:
    """The loops run in three threads; a test may choose another number."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)

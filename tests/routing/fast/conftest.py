"""Loops for every batch, and no check: these tests are the check."""

import pytest

from capsexp.routing.fast import loops, selfcheck


@pytest.fixture
def loops_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles the loops whatever the size of a batch."""
    monkeypatch.setattr(loops, "MIN_VOTES", 0)
    monkeypatch.setattr(selfcheck, "_checking", True)

"""Loops for every batch, and no proof: these tests are the proof."""

import pytest

from capsexp.routing.fast import loops, proof


@pytest.fixture
def loops_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles the loops whatever the size of a batch."""
    monkeypatch.setattr(loops, "WORTHWHILE", 0)
    monkeypatch.setattr(proof, "_proving", True)

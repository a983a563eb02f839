"""Fixtures that all tests share."""

from pathlib import Path

import pytest
from support import TINY


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only slow tests may use the full data sets."""
    if "slow" not in request.keywords:
        monkeypatch.delenv("CAPSEXP_DATA", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """TINY, writing below the test's own folder."""
    return (*TINY, f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs")

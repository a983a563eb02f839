"""Fixtures that all tests share."""

import signal
from pathlib import Path

import pytest
from launching import reproduce
from support import TINY

# A shell's background jobs ignore Ctrl-C, and so would the programs that these tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only slow tests may use the full data sets."""
    if "slow" not in request.keywords:
        monkeypatch.delenv("CAPSEXP_DATA", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[str, ...]:
    """TINY, writing below the test's own folder."""
    return (*TINY, f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the eight runs of two seeds, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert reproduce(folder, "--seeds=2", "--jobs=2") == 0
    return folder

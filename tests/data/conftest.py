"""Fixtures of the tests of the data layer."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "prepare_data.py"


@pytest.fixture(scope="session")
def prepare_data() -> ModuleType:
    """scripts/prepare_data.py as a module."""
    spec = importlib.util.spec_from_file_location("prepare_data", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

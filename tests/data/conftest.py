"""Fixtures of the tests of the data layer."""

from types import ModuleType

import pytest

from capsexp.data import __main__


@pytest.fixture(scope="session")
def prepare_data() -> ModuleType:
    """`capsexp data` as a module."""
    return __main__

"""A run on synthesised images."""

import pytest
from support import PAIRS, Trained, train


@pytest.fixture(scope="session")
def trained_pairs(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A finished run on overlaid digits, whose labels are sets of classes, in bfloat16."""
    small = ("data.size=36", "trainer.precision=bf16", "trainer.eval_batch_size=64", "budget.epochs=1", "logger=[]")
    return train(tmp_path_factory.mktemp("pairs"), PAIRS, *small)

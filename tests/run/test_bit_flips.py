"""Flipped bits in what the program reads back: each is noticed, or changes nothing."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Trained

from capsexp.errors import InputError
from capsexp.run import checkpoints, records
from capsexp.run.plan import LAST, plan

pytestmark = pytest.mark.slow


def same(one: Any, other: Any) -> bool:
    """Whether two things that were read are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.parametrize("kind", ["checkpoint", "record"])
def test_a_flipped_bit_is_noticed_or_changes_nothing(kind: str, trained: Trained, tmp_path: Path) -> None:
    """50 of each, each at a random place of the file."""
    read = checkpoints.load if kind == "checkpoint" else records.read
    path = Path(shutil.copy(trained.folder / LAST if kind == "checkpoint" else plan(trained.config).path, tmp_path))
    content, whole, luck = path.read_bytes(), read(path), random.Random(0)
    for _ in range(50):
        flipped = bytearray(content)
        flipped[luck.randrange(len(flipped))] ^= 1 << luck.randrange(8)
        path.write_bytes(flipped)
        try:
            right = same(read(path), whole)
        except InputError as error:
            right = str(path) in str(error) and "\n" not in str(error)
        assert right

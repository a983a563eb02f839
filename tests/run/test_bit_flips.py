"""Flipped bits in what the program reads back: each is noticed, or changes nothing."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Trained, committed_records

from capsexp.errors import InputError
from capsexp.run import checkpoints, records
from capsexp.run.plan import LAST

pytestmark = pytest.mark.slow


def same(one: Any, other: Any) -> bool:
    """Whether two things that were read are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def silent(path: Path, read: Callable[[], Any]) -> int:
    """How often a flipped bit of a file was neither noticed nor harmless; of 50, each at a random place of the file."""
    whole, luck, count = path.read_bytes(), random.Random(0), 0
    right = read()
    for _ in range(50):
        content = bytearray(whole)
        content[luck.randrange(len(content))] ^= 1 << luck.randrange(8)
        path.write_bytes(content)
        try:
            count += not same(read(), right)
        except InputError as error:
            count += str(path) not in str(error) or "\n" in str(error)
    path.write_bytes(whole)
    return count


def test_in_a_checkpoint(trained: Trained, tmp_path: Path) -> None:
    path = Path(shutil.copy(trained.folder / LAST, tmp_path))
    assert silent(path, lambda: checkpoints.load(path)) == 0


def test_in_a_record(tmp_path: Path) -> None:
    if not committed_records():
        pytest.skip("not a checkout")
    path = Path(shutil.copy(committed_records()[0], tmp_path))
    assert silent(path, lambda: records.read(path)) == 0

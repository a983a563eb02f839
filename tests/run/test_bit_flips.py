"""Flipped bits in what the program reads back: each is noticed, or changes nothing."""

import dataclasses
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import Trained, committed_records

from capsexp.config.checks import Component
from capsexp.config.schema import Data, Version
from capsexp.data import cache
from capsexp.data.sample import FILE, Sample
from capsexp.data.source import ImageSet, identify, load
from capsexp.errors import InputError
from capsexp.run import checkpoints, records
from capsexp.run.plan import LAST

pytestmark = pytest.mark.slow

Read = Callable[[list[str]], Any]  # what is read; lines of the log are added to the list


class Unpackaged(Sample):
    """The packaged sample as a set whose checksums are cached."""

    packaged = False
    places = (".",)

    def locate(self, root: Path) -> dict[str, Path]:
        return {FILE.name: root / FILE.name}


def same(one: Any, other: Any) -> bool:
    """Whether two things that were read are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def flipped(path: Path, read: Read, before: Callable[[], None] = lambda: None) -> Counter[str]:
    """How often a flipped bit of a file was noticed, harmless, or silent; 50, each at a random place of the file."""
    whole, luck, outcomes = path.read_bytes(), random.Random(0), Counter[str]()
    right = read([])
    for _ in range(50):
        content = bytearray(whole)
        content[luck.randrange(len(content))] ^= 1 << luck.randrange(8)
        path.write_bytes(content)
        before()
        lines: list[str] = []
        try:
            found = read(lines)
        except InputError as error:
            named = str(path) in str(error) and "\n" not in str(error)
            outcomes["noticed" if named else "silent"] += 1
        else:
            noticed = any(str(path) in line for line in lines)
            outcomes["silent" if not same(found, right) else "noticed" if noticed else "harmless"] += 1
        path.write_bytes(whole)
    print(path.name, dict(outcomes))
    return outcomes


def test_in_a_checkpoint(trained: Trained, tmp_path: Path) -> None:
    path = Path(shutil.copy(trained.folder / LAST, tmp_path))
    assert flipped(path, lambda lines: checkpoints.load(path))["silent"] == 0


def test_in_a_record(tmp_path: Path) -> None:
    if not committed_records():
        pytest.skip("not a checkout")
    path = Path(shutil.copy(committed_records()[0], tmp_path))
    assert flipped(path, lambda lines: records.read(path))["silent"] == 0


@pytest.fixture
def cached(tmp_path: Path) -> Data:
    """The sample, in a folder with cached checksums."""
    shutil.copy(FILE, tmp_path)
    reader = Component("sample", f"{__name__}.Unpackaged", {})
    files = {FILE.name: Sample().digest(FILE)}
    data = Data("little", reader, str(tmp_path), False, 28, 1, 10, False, [0.5], [0.5], {"a": Version("a", files)})
    load(data)
    return data


def test_in_cached_checksums(cached: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(lines: list[str]) -> dict[str, Any]:
        identity = identify(cached, lines.append)
        images: ImageSet = load(cached, lines.append)
        return {**vars(images), "identity": dataclasses.astuple(identity)}

    path = Path(cached.root) / ".capsexp" / "checksums.json"
    outcomes = flipped(path, read, before=lambda: monkeypatch.setattr(cache, "_known", {}))
    assert outcomes["silent"] == 0

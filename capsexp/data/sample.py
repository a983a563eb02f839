"""The small sample of MNIST in the package: see mnist_sample.md for its source, selection rule and licence."""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, decoding, labelled

FILE = Path(__file__).with_name("mnist_sample.npz")
TRAIN_IMAGES, TEST_IMAGES = 5_000, 1_000


class Sample(Reader):
    """Reads the packaged mnist_sample.npz."""

    keys = (FILE.name,)
    packaged = True

    def locate(self, root: Path) -> dict[str, Path]:
        return {FILE.name: FILE}

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        path = files[FILE.name]
        with decoding(path), np.load(path, allow_pickle=False) as arrays:
            train, test = (
                labelled(arrays[f"{split}_images"], arrays[f"{split}_labels"], data.classes, path)
                for split in ("train", "test")
            )
        return train, test


def write(stream: BinaryIO, train: Images, test: Images) -> None:
    """Writes the sample of the full MNIST, reproducible byte for byte."""
    splits = {"train": (train, TRAIN_IMAGES), "test": (test, TEST_IMAGES)}
    arrays = {}
    for name, (split, count) in splits.items():
        chosen = stratified(split.labels, count)
        arrays[f"{name}_images"] = split.images[chosen]
        arrays[f"{name}_labels"] = split.labels[chosen].astype(np.uint8)
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def stratified(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """`count` indices in ascending order: the first of each class, in proportion to its size (largest remainders)."""
    sizes = np.bincount(labels) * count
    quotas = sizes // len(labels)
    by_remainder = np.argsort(-(sizes % len(labels)), kind="stable")
    quotas[by_remainder[: count - quotas.sum()]] += 1
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:quota] for c, quota in enumerate(quotas)]))

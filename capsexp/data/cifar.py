"""CIFAR-10 and CIFAR-100: Python pickles, 32 × 32 colour, 50,000 training and 10,000 test images.

Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny Images". CIFAR-100 is read with its fine labels.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, contents, decoding, labelled

#: Folder, training files, test file, file with the classes' names: those of torchvision's classes.
_LAYOUTS = {
    "CIFAR10": ("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    "CIFAR100": ("cifar-100-python", ("train",), "test", "meta"),
}


class CIFAR(Reader):
    """Reads the batches, in the files and folder of torchvision's class `dataset`, without running code from them."""

    def __init__(self, *, dataset: Literal["CIFAR10", "CIFAR100"]) -> None:
        self.dataset = dataset
        folder, self.train, self.test, self.meta = _LAYOUTS[dataset]
        self.places = (folder,)
        self.keys = (*self.train, self.test, self.meta)

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        train = [_batch(files[key], data.classes) for key in self.train]
        images, labels = map(np.concatenate, zip(*train, strict=True))
        return Images(images, labels), _batch(files[self.test], data.classes)

    def download(self, root: Path) -> None:
        import torchvision.datasets

        getattr(torchvision.datasets, self.dataset)(root, download=True)


def _batch(path: Path, classes: int) -> Images:
    """One pickle's images; `data` holds a row of red, green and blue planes for each."""
    with decoding(path):
        entries = _Unpickler(io.BytesIO(contents(path)), encoding="latin1").load()
        images = entries["data"].value.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = entries["labels"] if "labels" in entries else entries["fine_labels"]
        return labelled(images, np.array(labels), classes, path)


class _Unpickler(pickle.Unpickler):
    """Makes plain values, and arrays of bytes: what a pickle names is looked up here and nowhere else."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a class or function that the pickle names; raises UnpicklingError for any other."""
        known = {
            "numpy.core.multiarray._reconstruct": _Array,
            "numpy._core.multiarray._reconstruct": _Array,
            "numpy.ndarray": None,
            "numpy.dtype": _Type,
            "_codecs.encode": _encoded,
        }
        if f"{module}.{name}" not in known:
            raise pickle.UnpicklingError(f"refused: it holds more than bytes and arrays ({module}.{name})")
        return known[f"{module}.{name}"]


class _Array:
    """Stands for numpy's array while it is unpickled; numpy's own takes memory for any shape."""

    def __init__(self, *ignored: object) -> None:
        self.value = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[object, tuple[int, ...], "_Type", bool, bytes | str]) -> None:
        _, shape, kind, columns_first, raw = state
        if kind.name not in ("u1", "|u1"):
            raise pickle.UnpicklingError(f"an array of {kind.name}, not of bytes")
        values = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, np.uint8)
        self.value = values.reshape(shape, order="F" if columns_first else "C")


class _Type:
    """Stands for numpy's dtype; its state says nothing about bytes."""

    def __init__(self, name: str, *ignored: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Ignores it."""


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes, as Python 3 pickles them for Python 2."""
    return text.encode("latin1")

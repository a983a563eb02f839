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
from capsexp.data.reader import Images, Reader, decoding, labelled

#: Folder, training files, test file, file with the classes' names: those of torchvision's classes.
_LAYOUTS = {
    "CIFAR10": ("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    "CIFAR100": ("cifar-100-python", ("train",), "test", "meta"),
}


class CIFAR(Reader):
    """Reads the batches, in the files and folder of torchvision's class `dataset`, without running code from them."""

    def __init__(self, *, dataset: Literal["CIFAR10", "CIFAR100"]) -> None:
        self.torchvision_class = dataset
        folder, self.train, self.test, self.meta = _LAYOUTS[dataset]
        self.places = (folder,)
        self.keys = (*self.train, self.test, self.meta)

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        train = [_batch(files[key], data.classes) for key in self.train]
        images, labels = map(np.concatenate, zip(*train, strict=True))
        return Images(images, labels), _batch(files[self.test], data.classes)


def _batch(path: Path, classes: int) -> Images:
    """One pickle's images; `data` holds a row of red, green and blue planes for each."""
    with decoding(path):
        entries = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        images = entries["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = entries["labels"] if "labels" in entries else entries["fine_labels"]
        return labelled(images, np.array(labels), classes, path)


#: What stands for a class or function that a pickle names. Its arrays are empty until their bytes are there, of which
#: numpy checks the number: made in the shape that the pickle gives, they would take memory for any.
_KNOWN: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": lambda *_: np.empty(0, np.uint8),
    "numpy._core.multiarray._reconstruct": lambda *_: np.empty(0, np.uint8),
    "numpy.ndarray": None,
    "numpy.dtype": lambda kind, *_: {"u1": np.dtype("u1"), "|u1": np.dtype("u1")}[kind],
    "_codecs.encode": str.encode,  # bytes, as Python 3 pickles them for Python 2
}


class _Unpickler(pickle.Unpickler):
    """Makes plain values and arrays of bytes: what a pickle names is looked up here and nowhere else."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for what the pickle names; raises UnpicklingError for what it may not have."""
        if f"{module}.{name}" not in _KNOWN:
            raise pickle.UnpicklingError(f"refused: it holds more than bytes and arrays ({module}.{name})")
        return _KNOWN[f"{module}.{name}"]

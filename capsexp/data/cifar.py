"""CIFAR-10 and CIFAR-100: Python pickles, 32 × 32 colour, 50,000 training and 10,000 test images.

Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny Images". CIFAR-100 is read with its fine labels.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from capsexp.data.reader import Images, Reader, SourceFile, decoding, labelled

#: Folder, training files, test file, file with the classes' names: those of torchvision's classes.
_LAYOUTS = {
    "CIFAR10": ("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
    "CIFAR100": ("cifar-100-python", ("train",), "test", "meta"),
}


class CIFAR(Reader):
    """Reads the batches with torchvision's class `dataset` and the md5s of the accepted version in place of its own."""

    def __init__(self, *, dataset: Literal["CIFAR10", "CIFAR100"]) -> None:
        self.dataset = dataset
        folder, self.train, self.test, self.meta = _LAYOUTS[dataset]
        self.places = (folder,)
        self.keys = (*self.train, self.test, self.meta)

    def read(self, files: Mapping[str, SourceFile], classes: int) -> tuple[Images, Images]:
        meta = files[self.meta]
        train = [self._batch(files[key], meta, classes) for key in self.train]
        return _joined(train), self._batch(files[self.test], meta, classes)

    def download(self, root: Path) -> None:
        self._source()(root, download=True)

    def _source(self) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.dataset)

    def _batch(self, file: SourceFile, meta: SourceFile, classes: int) -> Images:
        """One pickle's images; torchvision compares its md5 with the accepted one before it unpickles it."""
        source = self._source()
        accepted = {
            "base_folder": file.path.parent.name,
            "train_list": [(file.path.name, file.md5)],
            "test_list": [],
            "meta": {**source.meta, "md5": meta.md5},
        }
        with decoding(file.path):
            batch = type(self.dataset, (source,), accepted)(file.path.parent.parent)
            return labelled(batch.data, np.array(batch.targets), classes, file.path)


def _joined(batches: list[Images]) -> Images:
    images, labels = zip(*batches, strict=True)
    return Images(np.concatenate(images), np.concatenate(labels))

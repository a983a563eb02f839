"""CIFAR-10 and CIFAR-100: Python pickles, 32 × 32 colour, 50,000 training and 10,000 test images.

Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny Images". CIFAR-100 is read with its fine labels.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torchvision.datasets

from capsexp.data.reader import Images, Reader, SourceFile, decoding, labelled


class CIFAR(Reader):
    """The batches, read by torchvision's class `dataset` with the md5s of the accepted version in place of its own."""

    def __init__(self, *, dataset: Literal["CIFAR10", "CIFAR100"]) -> None:
        self.source: Any = getattr(torchvision.datasets, dataset)
        self.places = (self.source.base_folder,)
        self.train = tuple(name for name, _ in self.source.train_list)
        self.test = tuple(name for name, _ in self.source.test_list)
        self.meta = str(self.source.meta["filename"])
        self.keys = (*self.train, *self.test, self.meta)

    def read(self, files: Mapping[str, SourceFile], classes: int) -> tuple[Images, Images]:
        meta = files[self.meta]
        train, test = (
            [self._batch(files[key], meta, classes) for key in batches] for batches in (self.train, self.test)
        )
        return _joined(train), _joined(test)

    def download(self, root: Path) -> None:
        self.source(root, download=True)

    def _batch(self, file: SourceFile, meta: SourceFile, classes: int) -> Images:
        """One pickle. It's opened only after torchvision has compared its md5 with the accepted one."""
        accepted = {
            "base_folder": file.path.parent.name,
            "train_list": [(file.path.name, file.md5)],
            "test_list": [],
            "meta": {**self.source.meta, "md5": meta.md5},
        }
        with decoding(file.path):
            batch = type(self.source.__name__, (self.source,), accepted)(file.path.parent.parent)
            return labelled(batch.data, np.array(batch.targets), classes, file.path)


def _joined(batches: list[Images]) -> Images:
    images, labels = zip(*batches, strict=True)
    return Images(np.concatenate(images), np.concatenate(labels))

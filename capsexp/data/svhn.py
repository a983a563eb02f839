"""SVHN, cropped digits: two MATLAB 5 files, 32 × 32 colour, 73,257 training and 26,032 test images.

Netzer, Wang, Coates, Bissacco, Wu, Ng (2011), "Reading Digits in Natural Images with Unsupervised Feature Learning".
The digit 0 has the label 10 in the files and 0 here. The "extra" images are not used.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsexp.data.reader import Images, Reader, SourceFile, decoding, labelled

_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


class SVHN(Reader):
    """Reads the .mat files with torchvision, with the md5s of the accepted version in place of its own."""

    keys = tuple(_FILES.values())
    places = (".", "svhn", "SVHN", "svhn-part")

    def __init__(self) -> None:
        """Takes no options."""

    def read(self, files: Mapping[str, SourceFile], classes: int) -> tuple[Images, Images]:
        train, test = (self._split(split, files[key], classes) for split, key in _FILES.items())
        return train, test

    def download(self, root: Path) -> None:
        import torchvision.datasets

        for split in _FILES:
            torchvision.datasets.SVHN(root, split=split, download=True)

    @staticmethod
    def _split(split: str, file: SourceFile, classes: int) -> Images:
        import torchvision.datasets

        source: Any = torchvision.datasets.SVHN
        accepted = {"split_list": {split: ("", file.path.name, file.md5)}}
        with decoding(file.path):
            data = type("SVHN", (source,), accepted)(file.path.parent, split=split)
            return labelled(data.data.transpose(0, 2, 3, 1), data.labels, classes, file.path)

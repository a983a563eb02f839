"""SVHN, cropped digits: two MATLAB 5 files, 32 × 32 colour, 73,257 training and 26,032 test images.

Netzer, Wang, Coates, Bissacco, Wu, Ng (2011), "Reading Digits in Natural Images with Unsupervised Feature Learning".
The digit 0 has the label 10 in the files and 0 here. The "extra" images are not used.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, decoding, labelled


class SVHN(Reader):
    """Reads the .mat files with SciPy."""

    keys = ("train_32x32.mat", "test_32x32.mat")
    places = (".", "svhn", "SVHN", "svhn-part")

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        return tuple(self._split(files[key], data.classes) for key in self.keys)

    def download(self, root: Path) -> None:
        import torchvision.datasets

        for split in ("train", "test"):
            torchvision.datasets.SVHN(root, split=split, download=True)

    @staticmethod
    def _split(path: Path, classes: int) -> Images:
        """X is [H, W, 3, N], y [N, 1]."""
        from scipy.io import loadmat

        with decoding(path):
            found = loadmat(path, variable_names=["X", "y"])
            labels = found["y"].astype(np.int64).reshape(-1)
            return labelled(found["X"].transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels), classes, path)

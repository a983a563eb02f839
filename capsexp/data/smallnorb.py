"""smallNORB: binary matrix files, 96 × 96 grey, 24,300 training and 24,300 test pairs of images, five categories.

LeCun, Huang, Bottou (2004), "Learning Methods for Generic Object Recognition with Invariance to Pose and Lighting".
A file is a magic number, the number of dimensions, the dimensions (three at least, filled up with 1), all int32
little-endian, and the values. `dat` holds [N, cameras, 96, 96] uint8, left camera first; `cat` holds [N] int32.
"""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from capsexp.config.schema import Data
from capsexp.data.reader import RENEW, Images, Reader, decoding, labelled
from capsexp.errors import InputError

_URL = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"
_TRAIN, _TEST = "smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing"
_TYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}


@dataclass(kw_only=True)
class SmallNORB(Reader):
    """Reads the .mat files, plain or gzipped: the images of one of the two cameras."""

    keys = tuple(f"{split}-{kind}.mat" for split in (_TRAIN, _TEST) for kind in ("dat", "cat"))
    places = ("smallnorb", "smallNORB", "SmallNORB", "norb", ".")
    packed_suffix = ".gz"

    camera: Literal["left", "right"]

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        return self._split(files, data, _TRAIN), self._split(files, data, _TEST)

    def download(self, root: Path) -> None:
        from torchvision.datasets.utils import download_url

        for name in self.keys:
            download_url(f"{_URL}{name}.gz", root / self.places[0])

    def _split(self, files: Mapping[str, Path], data: Data, name: str) -> Images:
        images, labels = files[f"{name}-dat.mat"], files[f"{name}-cat.mat"]
        pairs, categories = _matrix(images), _matrix(labels)
        if pairs.ndim != 4:
            raise InputError(f"{images}: holds {list(pairs.shape)}, not [images, cameras, height, width]{RENEW}")
        index = ("left", "right").index(self.camera)
        if index >= pairs.shape[1]:
            raise InputError(f"data.reader.camera={self.camera}: must be left, since {images} holds no other camera")
        return labelled(pairs[:, index], categories, data.classes, labels)


def _matrix(path: Path) -> NDArray[Any]:
    """The array in a file; a plain file is memory-mapped."""
    with decoding(path):
        raw: NDArray[Any] = np.memmap(path, mode="r")
        if path.suffix == ".gz":
            raw = np.frombuffer(gzip.decompress(raw.data), np.uint8)
        magic, dimensions = raw[:8].view("<i4").tolist()
        if magic not in _TYPES or not 1 <= dimensions <= 4:
            raise ValueError(f"no byte or integer matrix (magic number {magic:#x})")
        shape = raw[8 : 8 + 4 * dimensions].view("<i4").tolist()
        if min(shape) < 1:
            raise ValueError(f"dimensions {list(shape)}")
        return raw[8 + 4 * max(dimensions, 3) :].view(_TYPES[magic]).reshape(shape)

"""MNIST and the sets in its format: four idx files, 28 × 28 grey, 60,000 training and 10,000 test images.

LeCun, Bottou, Bengio, Haffner (1998), "Gradient-based learning applied to document recognition". Xiao, Rasul,
Vollgraf (2017), "Fashion-MNIST". Clanuwat et al. (2018), "Deep Learning for Classical Japanese Literature".
"""

import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, decoding, host_memory, labelled, unpacked

_CHUNK = 1 << 20  # bytes


class MNIST(Reader):
    """Reads the idx files, plain or gzipped, in the folder named after torchvision's class `dataset`."""

    keys = tuple(f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    packed_suffix = ".gz"

    def __init__(self, *, dataset: Literal["MNIST", "FashionMNIST", "KMNIST"]) -> None:
        self.torchvision_class = dataset
        self.places = (f"{dataset}/raw", dataset)

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        return tuple(
            labelled(idx_array(files[images]), idx_array(files[labels]), data.classes, files[labels])
            for images, labels in (self.keys[:2], self.keys[2:])
        )


def idx_array(path: Path) -> NDArray[np.uint8]:
    """The array in an idx file: 0, 0, 8 for uint8, the number of dimensions, the dimensions, the values."""
    with decoding(path), unpacked(path) as stream:
        begin = stream.read(4)
        if begin[:3] != b"\0\0\x08":
            raise ValueError("not an idx file of bytes")
        shape = np.frombuffer(stream.read(4 * begin[3]), ">u4").tolist()
        if math.prod(shape) > host_memory():
            raise ValueError(f"says {shape}, more bytes than this machine has")
        parts = iter(lambda: stream.read(_CHUNK), b"")  # read at once, they would take as much memory as they say
        values = b"".join(islice(parts, math.prod(shape) // _CHUNK + 2))  # and a small gzipped file can have any number
        return np.frombuffer(values, np.uint8).reshape(shape)

"""Small data sets in the true formats, and configurations that accept them."""

import gzip
import hashlib
import pickle
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat
from support import refused

from capsexp.config.checks import Component
from capsexp.config.schema import Data, Version
from capsexp.data.source import load

RNG_SEED = 7
TARGETS = {
    "idx": "capsexp.data.mnist.MNIST",
    "cifar": "capsexp.data.cifar.CIFAR",
    "mat": "capsexp.data.svhn.SVHN",
    "norb": "capsexp.data.smallnorb.SmallNORB",
    "coil20": "capsexp.data.coil20.COIL20",
}
NORB_TRAIN, NORB_TEST = "smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing"


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(RNG_SEED).integers(0, 256, shape, np.uint8)


def md5(contents: bytes) -> str:
    return hashlib.md5(contents).hexdigest()


def write(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(contents) if path.suffix == ".gz" else contents)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def norb(array: np.ndarray) -> bytes:
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    shape = (*array.shape, *[1] * (3 - array.ndim))
    return struct.pack(f"<{2 + len(shape)}i", magic, array.ndim, *shape) + array.tobytes()


def mat(images: np.ndarray, labels: list[int]) -> bytes:
    """images [N, H, W, 3] as SVHN has them: [H, W, 3, N]."""
    stream = BytesIO()
    savemat(stream, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]})
    return stream.getvalue()


def cifar_batch(images: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    """images [N, 32, 32, 3] as CIFAR has them: a row of red, green and blue planes each."""
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), 3 * 32 * 32)
    return pickle.dumps({"batch_label": "b", key: labels, "data": rows}, protocol=2)


def png(image: np.ndarray, mode: str = "L") -> bytes:
    stream = BytesIO()
    Image.fromarray(image).convert(mode).save(stream, "png")
    return stream.getvalue()


def write_zip(path: Path, files: dict[str, bytes], inside: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, contents in files.items():
            archive.writestr(f"{inside}/{name}", contents)


def configuration(root: Path, kind: str, files: dict[str, bytes], **changes: Any) -> Data:
    """A configuration whose one version, `ours`, are these files' contents; `changes` to any field or reader option."""
    options = changes.pop("options", {})
    versions = {"ours": Version("made up", {key: md5(contents) for key, contents in files.items()})}
    numbers: dict[str, Any] = {"size": 4, "channels": 1, "classes": 10, "flips": False, "mean": [0.5], "std": [0.5]}
    fields = numbers | {"name": "little", "root": str(root), "download": False, "versions": versions}
    return Data(**(fields | {"reader": Component(kind, TARGETS[kind], options)} | changes))


def idx_set(root: Path, files: dict[str, bytes], dataset: str = "MNIST", suffix: str = "") -> Data:
    for name, contents in files.items():
        write(root / dataset / "raw" / (name + suffix), contents)
    return configuration(root, "idx", files, options={"dataset": dataset})


def mnist_files() -> dict[str, bytes]:
    """Three training and two test images."""
    return {
        "train-images-idx3-ubyte": idx(pixels(3, 4, 4)),
        "train-labels-idx1-ubyte": idx(np.array([3, 0, 9], np.uint8)),
        "t10k-images-idx3-ubyte": idx(pixels(2, 4, 4)),
        "t10k-labels-idx1-ubyte": idx(np.array([1, 2], np.uint8)),
    }


def norb_files(cameras: int = 2) -> dict[str, bytes]:
    return {
        f"{NORB_TRAIN}-dat.mat": norb(pixels(5, cameras, 6, 6)),
        f"{NORB_TRAIN}-cat.mat": norb(np.array([0, 1, 2, 3, 4], np.int32)),
        f"{NORB_TEST}-dat.mat": norb(pixels(2, cameras, 6, 6)),
        f"{NORB_TEST}-cat.mat": norb(np.array([4, 0], np.int32)),
    }


def refusal(data: Data) -> str:
    """The one line that says why the data set can't be loaded."""
    return refused(load, data)


class Svhn:
    """Five training and three test images, in `root`/svhn."""

    def __init__(self, root: Path, train_labels: tuple[int, ...] = (1, 10, 3, 9, 10), place: str = "svhn") -> None:
        self.root, self.folder = root, root / place
        self.train, self.test = pixels(5, 4, 4, 3), pixels(3, 4, 4, 3)
        self.files: dict[str, bytes] = {}
        self.with_file("train_32x32.mat", mat(self.train, list(train_labels)))
        self.with_file("test_32x32.mat", mat(self.test, [2, 10, 1]))

    def data(self, **changes: Any) -> Data:
        return configuration(self.root, "mat", self.files, **{"channels": 3} | changes)

    def with_file(self, name: str, contents: bytes) -> Data:
        """The set with another file, which is accepted."""
        self.files[name] = contents
        write(self.folder / name, contents)
        return self.data()

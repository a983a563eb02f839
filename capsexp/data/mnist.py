"""MNIST and the sets in its format: four idx files, 28 × 28 grey, 60,000 training and 10,000 test images.

LeCun, Bottou, Bengio, Haffner (1998), "Gradient-based learning applied to document recognition". Xiao, Rasul,
Vollgraf (2017), "Fashion-MNIST". Clanuwat et al. (2018), "Deep Learning for Classical Japanese Literature".
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from capsexp.data.reader import Images, Reader, SourceFile, decoding, labelled


class MNIST(Reader):
    """Reads the idx files, plain or gzipped, in the folder named after torchvision's class `dataset`."""

    keys = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    packed_suffix = ".gz"

    def __init__(self, *, dataset: Literal["MNIST", "FashionMNIST", "KMNIST"]) -> None:
        self.dataset = dataset
        self.places = (f"{dataset}/raw", dataset)

    def read(self, files: Mapping[str, SourceFile], classes: int) -> tuple[Images, Images]:
        train_images, train_labels, test_images, test_labels = (files[key].path for key in self.keys)
        return self._split(train_images, train_labels, classes), self._split(test_images, test_labels, classes)

    def download(self, root: Path) -> None:
        import torchvision.datasets

        getattr(torchvision.datasets, self.dataset)(root, download=True)

    @staticmethod
    def _split(images: Path, labels: Path, classes: int) -> Images:
        from torchvision.datasets.mnist import read_image_file, read_label_file

        return labelled(_tensor(images, read_image_file), _tensor(labels, read_label_file), classes, labels)


def _tensor(path: Path, read: Any) -> NDArray[Any]:
    """The array that torchvision's `read` returns for an idx file; a gzipped one is unpacked to a temporary folder."""
    from torchvision.datasets.utils import extract_archive

    with tempfile.TemporaryDirectory() as folder, decoding(path):
        if path.suffix != ".gz":
            array: NDArray[Any] = read(str(path)).numpy()
        else:
            array = read(extract_archive(path, folder)).numpy()
    return array

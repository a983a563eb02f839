"""COIL-20, processed: PNG files, 128 × 128 grey, 20 objects in 72 views, five degrees apart.

Nene, Nayar, Murase (1996), "Columbia Object Image Library (COIL-20)", CUCS-005-96. There is no official split. A
random one, as papers use it, has test images that are five degrees away from training images of the same object.
"""

import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Gt, Lt
from PIL import Image

from capsexp import Seed
from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, decoding, labelled
from capsexp.errors import InputError

_FOLDER = "coil-20-proc"
_URL = f"https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/{_FOLDER}.zip"
_MOST = 1 << 30  # bytes of the files in a zip, which are unpacked to know their md5
_NAME = re.compile(r"obj(\d+)__(\d+)\.png")


@dataclass(kw_only=True)
class COIL20(Reader):
    """Reads the folder of PNG files or its zip: the first `classes` objects, split at random.

    The md5 is that of name, NUL and contents of every file, object by object and view by view, and so the same for
    folder and zip.
    """

    keys = (_FOLDER,)
    places = (".", "coil20", "COIL20", "coil-20")
    packed_suffix = ".zip"

    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    split_seed: Seed = 0

    def digest(self, path: Path) -> str:
        md5 = hashlib.md5(usedforsecurity=False)
        for name, _, contents in _views(path):
            md5.update(name.encode() + b"\0" + contents)
        return md5.hexdigest()

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, Images]:
        path = files[_FOLDER]
        pixels, labels = [], []
        for name, label, contents in _views(path):
            if label < data.classes:
                with decoding(path / name), Image.open(BytesIO(contents)) as image:
                    if image.mode != "L":
                        raise ValueError(f"not an 8-bit grey image but {image.mode}")
                    pixels.append(np.asarray(image))
                labels.append(label)
        if len(set(labels)) != data.classes or len({image.shape for image in pixels}) != 1:
            raise InputError(f"{path}: must hold images of one size of the objects 1 to {data.classes}")
        every = labelled(np.stack(pixels), np.array(labels), data.classes, path)
        tested = round(len(labels) * self.test_fraction)
        if not 0 < tested < len(labels):
            raise InputError(f"data.reader.test_fraction={self.test_fraction}: leaves a split of {path} empty")
        # RandomState's streams never change; default_rng's may change with numpy's version.
        order = np.random.RandomState(self.split_seed).permutation(len(labels))
        train, test = (np.sort(part) for part in (order[tested:], order[:tested]))
        return Images(every.images[train], every.labels[train]), Images(every.images[test], every.labels[test])

    def download(self, root: Path) -> None:
        from torchvision.datasets.utils import download_url

        download_url(_URL, root / self.places[0])


def _views(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """Name, label (0 is the first object) and contents of each PNG file, object by object and view by view."""
    with decoding(path), ExitStack() as opened:
        folder: Path | zipfile.Path = path
        if not path.is_dir():
            archive = opened.enter_context(zipfile.ZipFile(path))
            if sum(info.file_size for info in archive.infolist()) > _MOST:
                raise ValueError(f"more than {_MOST:,} bytes, unpacked")
            folder = zipfile.Path(archive, f"{_FOLDER}/")
        files = {match: file for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))}
        for match in sorted(files, key=lambda match: (int(match[1]), int(match[2]))):
            yield match[0], int(match[1]) - 1, files[match].read_bytes()

"""The small sample of MNIST in the package: see mnist_sample.md for its source, selection rule and licence."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from capsexp.config.schema import Data
from capsexp.data.reader import Images, Reader, decoding, labelled

FILE = Path(__file__).with_name("mnist_sample.npz")


class Sample(Reader):
    """Reads the packaged mnist_sample.npz."""

    keys = (FILE.name,)
    remedy = "; install capsexp again"

    def locate(self, root: Path) -> dict[str, Path]:
        return {FILE.name: FILE}

    def read(self, files: Mapping[str, Path], data: Data) -> tuple[Images, ...]:
        path = files[FILE.name]
        with decoding(path, self.remedy), np.load(path, allow_pickle=False) as arrays:
            return tuple(
                labelled(arrays[f"{split}_images"], arrays[f"{split}_labels"], data.classes, path)
                for split in ("train", "test")
            )

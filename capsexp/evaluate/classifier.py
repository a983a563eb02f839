"""A trained network as a plain module, which knows its classes and how pictures become what it takes."""

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from capsexp.data.folder import conversion_of
from capsexp.data.pictures import pictures
from capsexp.data.reader import fit
from capsexp.data.source import class_names
from capsexp.errors import InputError
from capsexp.evaluate.evaluation import unlike
from capsexp.nn.scores import Prediction
from capsexp.run.restore import Restored


class Classifier(nn.Module):
    """Pixels between 0 and 1, [B, channels, size, size] -> scores [B, J] and poses of class capsules [B, J, D].

    `network` takes normalised pixels; `decoder` draws images from class capsules, None where there is none; `classes`
    are the names of the J classes in the order of the scores; `size` and `channels` are those of the images.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, restored: Restored, invert: bool = False) -> None:
        super().__init__()
        data, module = restored.config.data, restored.module
        self.network, self.decoder = module.network, module.decoder
        self.register_buffer("mean", module.mean)
        self.register_buffer("std", module.std)
        self.classes = tuple(class_names(data))
        self.size, self.channels = data.size, data.channels
        self._conversion = conversion_of(data, invert)
        self._trained_on = module.pixels
        self.eval()

    def forward(self, pixels: Tensor) -> Prediction:
        return self.network((pixels - self.mean) / self.std)

    def preprocess(self, image: Path | str | Image.Image | NDArray[np.uint8]) -> Tensor:
        """An image as in the training: [channels, size, size], between 0 and 1, on the network's device.

        Takes a file, Pillow's image, or pixels uint8 [H, W] or [H, W, 3]; raises InputError for other pixels, and for a
        file that is no image. Warns of an image that seems inverted.
        """
        source = Path(image) if isinstance(image, str) else image
        if not isinstance(source, Path | Image.Image):
            source = np.asarray(source)
            if source.dtype != np.uint8 or source.ndim not in (2, 3) or source.shape[2:] not in ((), (3,)):
                shape = f"{source.dtype} {list(source.shape)}"
                raise InputError(f"pixels must be uint8 [H, W] or [H, W, 3]; they are {shape}")
        pixels = torch.from_numpy(fit(pictures([source], self._conversion), self.size, self.channels, "the network"))
        for line in unlike(self._trained_on, pixels, "capsexp.load(…, invert=True) takes their negatives"):
            warnings.warn(line, stacklevel=2)
        return pixels[0].to(self.mean.device).float() / 255

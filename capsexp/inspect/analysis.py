"""A network's results for one image: prediction, contributions of child capsules, attention, reconstructions."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from capsexp.data import source
from capsexp.data.folder import conversion_of
from capsexp.data.module import test_split
from capsexp.data.pictures import pictures
from capsexp.data.reader import fit
from capsexp.errors import InputError, RunError
from capsexp.figures.traversal import MIDDLE, traverse
from capsexp.routing.observe import AttentionMap, Observed, observe
from capsexp.run.restore import Restored


class InputImage(NamedTuple):
    """An image, with its classes where they are known."""

    name: str
    pixels: Tensor  # [channels, H, W], between 0 and 1
    labels: list[int] | None


def input_image(restored: Restored, image: str) -> InputImage:
    """A test image by its number, or the image in a file; raises InputError."""
    config, data = restored.config, restored.config.data
    if not re.fullmatch(r"[+-]?\d+", image):
        pixels = fit(pictures([Path(image)], conversion_of(data)), data.size, data.channels, data.name)
        return InputImage(Path(image).name, torch.from_numpy(pixels[0]).float() / 255, None)
    whole = replace(config, budget=replace(config.budget, test_images=None))
    images, labels = test_split(source.load(data), whole)
    number = int(image)
    if not 0 <= number < len(labels):
        raise InputError(f"image {number}: must be from 0 to {len(labels) - 1}, the test images of {data.name}")
    label = labels[number]
    classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
    return InputImage(f"{data.name} test image {number}", images[number].float() / 255, classes)


@dataclass(frozen=True)
class Analysis:
    """A network's results for one image.

    `contributions` are Σ coefficient × presence over a position's children; a child's coefficient is that to the
    predicted class, through all layers above it.
    """

    restored: Restored
    image: InputImage
    captured: Observed
    contributions: list[Tensor]  # [iterations, H, W] for each layer
    traversal: Tensor | None  # [D, 11, channels, H, W]

    @property
    def reconstruction(self) -> Tensor | None:
        """[channels, H, W]."""
        return None if self.traversal is None else self.traversal[0, MIDDLE]

    @property
    def scores(self) -> Tensor:
        """[J]."""
        return self.captured.prediction.scores[0].float()

    @property
    def predicted(self) -> int:
        """The class with the highest score."""
        return int(self.scores.argmax())

    @property
    def class_names(self) -> list[str]:
        """In the order of the labels."""
        return source.class_names(self.restored.config.data)

    @property
    def title(self) -> str:
        """The prediction, and the true classes where they are known."""
        names, labels = self.class_names, self.image.labels
        true = "" if labels is None else ", it is " + " and ".join(names[label] for label in labels)
        return f"predicted {names[self.predicted]}{true}"

    def factors(self, attention: AttentionMap) -> Tensor:
        """Of an attention map, without B; on votes those for the predicted class, as their mean over D: [H, W, I]."""
        values = attention.values[0].float()
        return values[:, :, :, self.predicted].mean(dim=-1) if attention.kind == "caps" else values


def analyse(restored: Restored, image: InputImage) -> Analysis:
    """Runs the network on the image; raises RunError for scores that are not finite."""
    with torch.no_grad(), restored.autocast():
        captured = observe(restored.module, image.pixels[None])
        scores = captured.prediction.scores
        if not scores.isfinite().all():
            raise RunError(f"{restored.path}: its network's scores of {image.name} are not finite")
        traversal = traverse(restored.module, image.pixels).float() if restored.module.decoder else None
    iterations = range(max((len(layer.coefficients) for layer in captured.layers), default=0))
    by_iteration = [captured.coefficients_to(scores.argmax(dim=1), iteration) for iteration in iterations]
    contributions = [
        torch.stack([(each[at] * layer.presence)[0].sum(dim=-1) for each in by_iteration])
        for at, layer in enumerate(captured.layers)
    ]
    return Analysis(restored, image, captured, contributions, traversal)

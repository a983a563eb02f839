"""ou's "Interpretable Activity Vector", after Sabour et al. 2017, Fig. 4: each dimension of a class capsule."""

import torch
from matplotlib.axes import Axes
from torch import Tensor

from capsexp.data.source import class_names
from capsexp.figures.curves import Drawing
from capsexp.figures.networks import examples, mosaic, show, trained
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import PaperFigure
from capsexp.inspect.traversal import OFFSETS, traverse

STUDY = "ou_traversal"


def traversal(data: str, option: str, sources: Sources) -> Drawing:
    """Every dimension of the predicted capsule of three test images: of the first class, a middle one and the last."""
    (line,) = sources.lines(STUDY, data=data)
    if not line.runs:
        return None, sources.missing([line], STUDY, f"data={option}")
    network = trained(sources, line)
    if isinstance(network, Missing):
        return None, [network]
    pixels, labels = examples(network)
    title = f"ou, after Sabour et al. 2017, Fig. 4: each dimension of the winning capsule, {data}"
    figure = PaperFigure(title, (12, 6), (1, 3))
    names = class_names(network.config.data)
    for axis, shown in zip(figure.axes[0], (0, len(labels) // 2, len(labels) - 1), strict=True):
        predicted = int(network(pixels[shown : shown + 1]).scores.argmax())
        _draw(axis, pixels[shown], traverse(network.module, pixels[shown]))
        wrong = "" if predicted == labels[shown] else f", taken for: {names[predicted]}"
        axis.set_title(f"{names[int(labels[shown])]}{wrong}")
    figure.note(
        "Top left: a test image. Each row: what is drawn when this dimension of the winning class's capsule is "
        "moved by −0.25 to 0.25 in steps of 0.05; at 0, the reconstruction itself.",
        f"CapsNet, after epoch {network.epoch}: {line.setting}; one run (seed {network.config.seed}).",
    )
    return figure, []


def _draw(axis: Axes, pixels: Tensor, reconstructions: Tensor) -> None:
    """The image, [channels, H, W], to the left of its reconstructions, [D, 11, channels, H, W]."""
    left = torch.ones_like(reconstructions[:, :1])
    left[0, 0] = pixels
    show(axis, mosaic(torch.cat([left, reconstructions], dim=1)))
    pitch, dimensions = pixels.shape[-1] + 1, range(len(reconstructions))
    ends = {place: f"{OFFSETS[place]:+.2f}".replace("-", "−") for place in (0, len(OFFSETS) - 1)}
    columns = {**ends, OFFSETS.index(0.0): "0"}
    axis.set_xticks([pitch * (place + 1.5) for place in columns], list(columns.values()))
    axis.set_yticks([pitch * (row + 0.5) for row in dimensions], [str(row + 1) for row in dimensions])
    axis.tick_params(length=0)

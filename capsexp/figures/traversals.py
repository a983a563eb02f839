"""What each dimension of a class capsule means: ou's "Interpretable Activity Vector", Sabour et al. 2017, Fig. 4."""

import torch
from matplotlib.axes import Axes
from torch import Tensor

from capsexp.data.source import class_names
from capsexp.figures.curves import Drawn
from capsexp.figures.networks import examples, mosaic, show, trained
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import Page
from capsexp.inspect.traversal import OFFSETS, traverse

STUDY = "ou_traversal"
SHOWN = 3  # images, of the first class, the last, and between them


class Traversal:
    """Every dimension of the winning capsule of three test images of a data set."""

    def __init__(self, data: str, option: str) -> None:
        self.data, self.option = data, option

    def __call__(self, sources: Sources) -> Drawn:
        """The figure, or what makes it."""
        (measured,) = sources.lines(STUDY, data=self.data)
        if not measured.runs:
            return None, sources.missing([measured], STUDY, f"data={self.option}")
        network = trained(sources, measured)
        if isinstance(network, Missing):
            return None, [network]
        pixels, labels = examples(network)
        title = f"ou, after Sabour et al. 2017, Fig. 4: each dimension of the winning capsule, {self.data}"
        page = Page(title, (12, 6), (1, SHOWN))
        names = class_names(network.config.data)
        for axis, shown in zip(page.axes[0], (0, len(labels) // 2, len(labels) - 1), strict=True):
            winner = int(network(pixels[shown : shown + 1]).scores.argmax())
            _draw(axis, pixels[shown], traverse(network.module, pixels[shown]))
            taken = "" if winner == labels[shown] else f", taken for: {names[winner]}"
            axis.set_title(f"{names[int(labels[shown])]}{taken}")
        page.note(
            "Top left: a test image. Each row: what is drawn when this dimension of the winning class's capsule is "
            "moved by −0.25 to 0.25 in steps of 0.05; at 0, the reconstruction itself.",
            f"CapsNet, after epoch {network.epoch}: {measured.setting}; one run (seed {network.config.seed}).",
        )
        return page, []


def _draw(axis: Axes, pixels: Tensor, moved: Tensor) -> None:
    """The image, [channels, H, W], left of what was drawn, [D, 11, channels, H, W]."""
    left = torch.ones_like(moved[:, :1])
    left[0, 0] = pixels
    show(axis, mosaic(torch.cat([left, moved], dim=1)))
    pitch = pixels.shape[-1] + 1
    ends = {place: f"{OFFSETS[place]:+.2f}".replace("-", "−") for place in (0, len(OFFSETS) - 1)}
    columns = {**ends, OFFSETS.index(0.0): "0"}
    axis.set_xticks([pitch * (place + 1.5) for place in columns], list(columns.values()))
    axis.set_yticks([pitch * (row + 0.5) for row in range(len(moved))], [str(row + 1) for row in range(len(moved))])
    axis.tick_params(length=0)

"""Reconstructions with one component of a class capsule changed, and their picture (Sabour et al. 2017, sec. 5.1)."""

import textwrap

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from capsexp.data import source
from capsexp.data.module import test_split
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import Drawing
from capsexp.run.module import CapsuleModule
from capsexp.run.restore import restore

#: What is added to one dimension of the predicted capsule: from −0.25 to 0.25 in steps of 0.05.
OFFSETS = tuple(step / 20 for step in range(-5, 6))
MIDDLE = OFFSETS.index(0.0)


@torch.no_grad()
def traverse(module: CapsuleModule, pixels: Tensor) -> Tensor:
    """One image's reconstructions, [D, 11, channels, H, W], for each dimension of the predicted capsule and offset.

    At offset 0, [:, 5], is the reconstruction itself.

    Args:
        module: with a decoder, in evaluation mode.
        pixels: of one image, [channels, H, W], between 0 and 1.
    """
    assert module.decoder is not None
    scores, poses = module(pixels[None])
    assert poses is not None
    predicted = scores[0].argmax()
    dimensions = poses.shape[-1]
    steps = torch.eye(dimensions)[:, None] * torch.tensor(OFFSETS)[:, None]  # [D, 11, D]
    changed = poses.repeat(dimensions * len(OFFSETS), 1, 1)
    changed[:, predicted] += steps.flatten(0, 1).to(poses)
    reconstructions: Tensor = module.decoder(changed, predicted.expand(len(changed)))
    return reconstructions.view(dimensions, len(OFFSETS), *reconstructions.shape[1:])


def draw_traversal(axis: Axes, reconstructions: Tensor, largest: float | None = None) -> ScalarMappable:
    """The reconstructions of `traverse`, [D, 11, channels, H, W]: a row per dimension, a column per offset.

    At offset 0 the reconstruction itself, elsewhere the difference from it, as the mean over the channels.

    Args:
        largest: the difference at the ends of the colours; None: the largest of this one.

    Returns:
        what a colour bar needs.
    """
    unchanged = reconstructions[:, MIDDLE]
    differences = (reconstructions - unchanged[:, None]).mean(dim=2)  # [D, 11, H, W]
    largest = largest or float(differences.abs().max()) or 1.0
    drawn = ScalarMappable(Normalize(-largest, largest), colormaps["PuOr"].resampled(41))  # few colours: small files
    tiles = torch.from_numpy(drawn.to_rgba(differences.numpy().reshape(-1))[:, :3]).view(*differences.shape, 3)
    tiles[:, MIDDLE] = unchanged.movedim(1, -1).expand(*unchanged.shape[:1], *unchanged.shape[2:], 3)
    tiles = torch.nn.functional.pad(tiles, (0, 0, 1, 0, 1, 0), value=0.6)  # grey lines between them
    dimensions, offsets, height, width, _ = tiles.shape
    axis.imshow(tiles.transpose(1, 2).reshape(dimensions * height, offsets * width, 3), interpolation="none")
    ends = {0: "−0.25", offsets - 1: "+0.25", MIDDLE: "0"}
    axis.set_xticks([(column + 0.5) * width for column in ends], [*ends.values()])
    axis.set_yticks([(row + 0.5) * height for row in range(dimensions)], [str(row + 1) for row in range(dimensions)])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return drawn


def traversals(inputs: Inputs, study: str, title: str, label: str) -> Drawing:
    """Every dimension of the predicted capsule of three test images: of the first class, a middle one and the last.

    The network is that of the row's first seed with a checkpoint; raises UndrawnError where there is none.
    """
    rows = inputs.rows(study, label)
    (line,) = rows.lines
    folders = [inputs.logs / run.name for run in line.runs]
    folder = next((folder for folder in folders if any(folder.glob("*.ckpt"))), None)
    if folder is None:
        raise UndrawnError(inputs.missing_log(rows, line, "checkpoint"))
    network = restore(folder, "cpu")
    names = source.class_names(network.config.data)
    images, labels = test_split(source.load(network.config.data), network.config)
    classes = sorted(set(labels.tolist()))
    first = [int((labels == shown).nonzero()[0]) for shown in (classes[0], classes[len(classes) // 2], classes[-1])]
    pixels = images[first].float() / 255
    each = [traverse(network.module, image) for image in pixels]
    largest = max(float((one - one[:, MIDDLE, None]).abs().max()) for one in each)
    predicted = network(pixels).scores.argmax(dim=1).tolist()
    caption = (
        "Above: a test image. Each row: one dimension of the winning class's capsule moved by −0.25 to 0.25 in steps "
        "of 0.05. In the middle the reconstruction itself; beside it the difference that the move makes to it. "
        f"Training: {rows.training}; one run."
    )

    def plot() -> Figure:
        figure = Figure(figsize=(10, 6), layout="constrained")
        figure.suptitle("\n".join([title, *textwrap.wrap(caption, 130)]), fontsize=10)
        axes = figure.subplots(1, len(each))
        for axis, image, index, guess, one in zip(axes, pixels, first, predicted, each, strict=True):
            drawn = draw_traversal(axis, one, largest)
            inset = axis.inset_axes((5 / 11, 1.005, 1 / 11, 1 / 16))
            inset.imshow(image.movedim(0, -1).squeeze(-1), vmin=0, vmax=1, interpolation="none")
            inset.set(xticks=[], yticks=[])
            true = int(labels[index])
            axis.set_title(names[true] + (f", taken for: {names[guess]}" if guess != true else ""))
        axes[0].set_ylabel("dimension")
        figure.colorbar(drawn, ax=axes, shrink=0.6, label="difference from the unchanged reconstruction")
        return figure

    return Drawing(plot)

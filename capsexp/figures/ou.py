"""ou's slides: each dimension of a class capsule (Sabour et al. 2017, Fig. 4); routing against back-propagation."""

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from capsexp.data.source import class_names
from capsexp.figures.curves import Drawing, band, described, draw_curves, without
from capsexp.figures.networks import examples, trained
from capsexp.figures.sources import Missing, Sources, Trainings
from capsexp.figures.style import WIDTH, PaperFigure, legend
from capsexp.figures.traversal import OFFSETS, draw_traversal, traverse
from capsexp.study import setting

STUDY, BACKPROP = "ou_traversal", "ou_backprop"


def traversal(option: str, sources: Sources) -> Drawing:
    """Every dimension of the predicted capsule of three test images: of the first class, a middle one and the last."""
    data = setting.title(option)
    (line,) = sources.lines(STUDY, data=data)
    if not line.runs:
        return None, sources.missing([line], STUDY, f"data={option}")
    if short := sources.too_short([line], STUDY, f"data={option}"):
        return None, short
    network = trained(sources, line)
    if isinstance(network, Missing):
        return None, [network]
    pixels, labels = examples(network)
    title = f"ou, after Sabour et al. 2017, Fig. 4: each dimension of the winning capsule, {data}"
    figure = PaperFigure(title, (WIDTH, 5.3), (1, 3))
    names = class_names(network.config.data)
    shown = (0, len(labels) // 2, len(labels) - 1)
    traversals = [traverse(network.module, pixels[index]) for index in shown]
    largest = max(float((each - each[:1, _MIDDLE : _MIDDLE + 1]).abs().max()) for each in traversals)
    for axis, index, each in zip(figure.axes[0], shown, traversals, strict=True):
        predicted = int(network(pixels[index : index + 1]).scores.argmax())
        drawn = draw_traversal(axis, each, largest)
        _inset(axis, pixels[index])
        wrong = "" if predicted == labels[index] else f", taken for: {names[predicted]}"
        axis.set_title(f"{names[int(labels[index])]}{wrong}")
        figure.describe(_described(f"{names[int(labels[index])]}{wrong}", each))
    bar = figure.figure.colorbar(drawn, ax=figure.axes[0], shrink=0.6)
    bar.set_label("difference from the unchanged reconstruction")
    figure.axes[0][0].set_ylabel("dimension")
    figure.note(
        "Above: a test image. Each row: one dimension of the winning class's capsule moved by −0.25 to 0.25 in steps "
        "of 0.05. In the middle, at 0, the reconstruction itself; beside it the difference that the move makes to it.",
        f"CapsNet, after epoch {network.epoch}: {line.setting}; one run (seed {network.config.seed}).",
    )
    return figure, []


_MIDDLE = OFFSETS.index(0.0)


def _inset(axis: Axes, pixels: Tensor) -> None:
    """The image, [channels, H, W], above its reconstruction."""
    inset = axis.inset_axes((5 / 11, 1.005, 1 / 11, 1 / 16))
    inset.imshow(np.asarray(pixels.movedim(0, -1).squeeze(-1)), vmin=0, vmax=1, interpolation="none")
    inset.set(xticks=[], yticks=[])


def _described(name: str, reconstructions: Tensor) -> str:
    """For the alt text: the dimensions that change the reconstruction most and least."""
    changes = (reconstructions - reconstructions[:, _MIDDLE : _MIDDLE + 1]).abs().amax(dim=(1, 2, 3, 4))
    most, least = int(changes.argmax()), int(changes.argmin())
    return (
        f"{name}: dimension {most + 1} changes a pixel by up to {float(changes[most]):.2f} of white, "
        f"dimension {least + 1} by {float(changes[least]):.2f} at most."
    )


def routing_against_backpropagation(sources: Sources) -> Drawing:
    """The accuracy by epoch of matrices that are not learned, learned through one iteration, learned through all."""
    lines = sources.lines(BACKPROP)
    missing = sources.missing(lines, BACKPROP)
    if not any(line.runs for line in lines):
        return None, missing
    figure = PaperFigure("ou: routing against back-propagation, CapsNet on Fashion-MNIST", (7, 4.5))
    trainings = Trainings(lines)
    ((axis,),) = figure.axes
    draw_curves(axis, lines, trainings)
    legend(axis, 2)
    figure.describe(*described(lines))
    figure.note("The slide's two pictures are lost in our copy, so nothing published is drawn.")
    figure.note(band(lines), trainings.note, without(lines))
    return figure, missing

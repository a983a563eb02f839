"""ou's slides: each dimension of a class capsule (Sabour et al. 2017, Fig. 4); routing against back-propagation."""

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from capsexp.data import source
from capsexp.data.module import test_split
from capsexp.figures.curves import Drawing, draw_accuracy
from capsexp.figures.networks import first_of_each, trained
from capsexp.figures.sources import Sources
from capsexp.figures.style import WIDTH, PaperFigure
from capsexp.figures.traversal import MIDDLE, draw_traversal, traverse
from capsexp.study import setting


def traversal(option: str, sources: Sources) -> Drawing:
    """Every dimension of the predicted capsule of three test images: of the first class, a middle one and the last."""
    (line,), _ = sources.rows("ou_traversal", option, learned=True)
    network = trained(sources, line)
    config = network.config
    names = source.class_names(config.data)
    pixels, labels = first_of_each(*test_split(source.load(config.data), config))
    title = f"ou, after Sabour et al. 2017, Fig. 4: each dimension of the winning capsule, {setting.title(option)}"
    figure = PaperFigure(title, (WIDTH, 5.3), (1, 3))
    shown = (0, len(labels) // 2, len(labels) - 1)
    traversals = [traverse(network.module, pixels[index]) for index in shown]
    largest = max(float((each - each[:, MIDDLE, None]).abs().max()) for each in traversals)
    for axis, index, each in zip(figure.axes[0], shown, traversals, strict=True):
        predicted = int(network(pixels[index : index + 1]).scores.argmax())
        drawn = draw_traversal(axis, each, largest)
        _draw_above(axis, pixels[index])
        wrong = "" if predicted == labels[index] else f", taken for: {names[predicted]}"
        axis.set_title(name := f"{names[int(labels[index])]}{wrong}")
        figure.describe(_described(name, each))
    bar = figure.figure.colorbar(drawn, ax=figure.axes[0], shrink=0.6)
    bar.set_label("difference from the unchanged reconstruction")
    figure.axes[0][0].set_ylabel("dimension")
    figure.note(
        "Above: a test image. Each row: one dimension of the winning class's capsule moved by −0.25 to 0.25 in steps "
        "of 0.05. In the middle, at 0, the reconstruction itself; beside it the difference that the move makes to it.",
        f"CapsNet, after epoch {network.epoch}: {line.setting}; one run (seed {config.seed}).",
    )
    return figure, []


def _draw_above(axis: Axes, pixels: Tensor) -> None:
    """The image, [channels, H, W], above its reconstruction."""
    inset = axis.inset_axes((5 / 11, 1.005, 1 / 11, 1 / 16))
    inset.imshow(np.asarray(pixels.movedim(0, -1).squeeze(-1)), vmin=0, vmax=1, interpolation="none")
    inset.set(xticks=[], yticks=[])


def _described(name: str, reconstructions: Tensor) -> str:
    """For the alt text: the dimensions that change the reconstruction most and least."""
    changes = (reconstructions - reconstructions[:, MIDDLE, None]).abs().amax(dim=(1, 2, 3, 4))
    most, least = int(changes.argmax()), int(changes.argmin())
    return (
        f"{name}: dimension {most + 1} changes a pixel by up to {float(changes[most]):.2f} of white, "
        f"dimension {least + 1} by {float(changes[least]):.2f} at most."
    )


def routing_against_backpropagation(sources: Sources) -> Drawing:
    """The accuracy by epoch of matrices that are not learned, learned through one iteration, learned through all."""
    lines, missing = sources.rows("ou_backprop")
    figure = PaperFigure("ou: routing against back-propagation, CapsNet on Fashion-MNIST", (7, 4.5))
    figure.note("The slide's two pictures are lost in our copy, so nothing published is drawn.")
    draw_accuracy(figure, figure.axes[0][0], lines)
    return figure, missing

"""Images reconstructed by the decoder, from TensorBoard's files: huang, Figs. 8, 9 and 14."""

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import GREY, Drawing
from capsexp.run.tensorboard import event_folders

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, their reconstructions in the lower
BELOW = "Test images, one of each class; below, what the decoder makes of the capsule of the image's own class."

Pixels = NDArray[np.uint8]  # [H, W] or [H, W, channels]


def reconstructions(inputs: Inputs, study: str, title: str, each_epoch: bool = False) -> Drawing:
    """A column a network: test images, and below them their reconstructions, after each epoch or the last one.

    They are those of the first seed that has logged any. Raises UndrawnError where no row has images.
    """
    rows = inputs.rows(study)
    missing, columns = [*rows.missing], dict[str, dict[str, Pixels]]()
    for line in rows.lines:
        folders = (folder for run in line.runs for folder in event_folders(inputs.logs, run.key))
        images = next((images for folder in folders if (images := logged_images(folder))), None)
        if images is None:
            missing.append(inputs.missing_log(rows, line, "reconstructions"))
            continue
        strips = {"image": images[max(images)][0]}
        shown = sorted(images) if each_epoch else [max(images)]
        columns[line.row.name] = strips | {f"epoch {epoch}": images[epoch][1] for epoch in shown}
    if not columns:
        raise UndrawnError(*missing)

    def plot() -> Figure:
        names = list(dict.fromkeys(name for strips in columns.values() for name in strips))
        strip = 8.8 / len(columns) / 10  # inches, of ten square images
        figure = Figure(figsize=(10, 1.1 + (strip + 0.1) * len(names)), layout="constrained")
        caption = textwrap.wrap(f"{BELOW} Training: {rows.training}; one run each.", 120)
        figure.suptitle("\n".join([title, *caption]), fontsize=10)
        axes = figure.subplots(len(names), len(columns), squeeze=False)
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        for (head, strips), column in zip(columns.items(), axes.T, strict=True):
            column[0].set_title(head)
            for axis, name in zip(column, names, strict=True):
                if name in strips:
                    axis.imshow(strips[name], interpolation="none", vmin=0, vmax=255)
        for axis, name in zip(axes[:, 0], names, strict=True):
            axis.set_ylabel(name, rotation=0, ha="right", va="center", color=GREY)
        return figure

    return Drawing(plot, missing)


def logged_images(folder: Path) -> Mapping[int, list[Pixels]]:
    """By epoch the inputs and the reconstructions in a folder of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second to import

    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    if TAG not in events.Tags()["images"]:
        return {}
    images = {event.step: Image.open(io.BytesIO(event.encoded_image_string)) for event in events.Images(TAG)}
    return {epoch: np.split(np.asarray(image), 2) for epoch, image in images.items()}

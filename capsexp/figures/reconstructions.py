"""huang, Figs. 8, 9 and 14: images reconstructed by the decoder, from TensorBoard's files."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsexp.figures.curves import Drawing
from capsexp.figures.networks import hide, show
from capsexp.figures.sources import Missing, Sources, UndrawnError
from capsexp.figures.style import WIDTH, PaperFigure
from capsexp.results.collect import Line
from capsexp.run.tensorboard import event_folders

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, their reconstructions in the lower

BELOW = "Below: what the decoder makes of the capsule of the image's own class."

Picture = NDArray[np.uint8]  # [H, W] or [H, W, channels]


def epoch_by_epoch(sources: Sources) -> Drawing:
    """Figs. 8 and 9 side by side: both networks' reconstructions after each epoch."""
    logged, notes, missing = _logged(sources, "huang_fig8")
    columns: dict[str, dict[str, Picture]] = {}
    for line, images in logged:
        strips = {"image": images[max(images)][0]}
        strips |= {f"epoch {epoch}": images[epoch][1] for epoch in sorted(images)}
        columns[f"{line.row.name}: {line.setting}"] = strips
    figure = _figure("huang, Figs. 8 and 9: Fashion-MNIST reconstructed, epoch by epoch", columns)
    figure.note(f"Test images, one of each class. {BELOW}", *notes)
    return figure, missing


def objects(sources: Sources) -> Drawing:
    """Fig. 14: one test image of each object, and both networks' reconstructions after their last epoch."""
    logged, notes, missing = _logged(sources, "huang_fig14", learned=True)
    strips: dict[str, Picture] = {}
    for line, images in logged:
        inputs, reconstructed = images[max(images)]
        if not any(np.array_equal(inputs, strip) for strip in strips.values()):
            strips["image" if not strips else f"image of {line.row.name}"] = inputs
        strips[line.row.name] = reconstructed
    figure = _figure("huang, Fig. 14: COIL-20, reconstructed by CapsNet and DA-CapsNet", {"": strips})
    figure.note(f"Test images, one of each object. {BELOW}", *notes)
    return figure, missing


def _logged(
    sources: Sources, study: str, learned: bool = False
) -> tuple[list[tuple[Line, Mapping[int, list[Picture]]]], list[str], list[Missing]]:
    """The rows with logged images, each with these by epoch, of its first seed that has any; a note per row; what is
    missing. Raises UndrawnError where no row has images.
    """
    lines, missing = sources.rows(study, learned=learned)
    logged, notes = [], []
    for line in lines:
        folders = ((run, folder) for run in line.runs for folder in event_folders(sources.logs, run.key))
        run, images = next(((run, images) for run, folder in folders if (images := logged_images(folder))), (None, {}))
        if run:
            logged.append((line, images))
            notes.append(f"{line.row.name}, after epoch {max(images)}: {line.setting}; one run (seed {run.seed}).")
        else:
            missing += sources.unlogged(line, "reconstructions").missing
            notes.append(f"Without {line.row.name}.")
    if not logged:
        raise UndrawnError(*missing)
    return logged, notes, missing


def logged_images(folder: Path) -> Mapping[int, list[Picture]]:
    """By epoch the inputs and the reconstructions in a folder of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second to import

    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    if TAG not in events.Tags()["images"]:
        return {}
    images = {event.step: Image.open(io.BytesIO(event.encoded_image_string)) for event in events.Images(TAG)}
    return {epoch: np.split(np.asarray(image), 2) for epoch, image in images.items()}


def _figure(title: str, columns: Mapping[str, Mapping[str, Picture]]) -> PaperFigure:
    """Columns of strips of images below each other, each with its name at the left."""
    names = list(dict.fromkeys(name for strips in columns.values() for name in strips))
    width = WIDTH if len(columns) > 1 else 8.0
    strip = (width - 1.2) / len(columns) / 10  # inches, of ten square images
    figure = PaperFigure(title, (width, 0.7 + (strip + 0.1) * len(names)), (len(names), len(columns)))
    for name, axes in zip(names, figure.axes, strict=True):
        for axis, strips in zip(axes, columns.values(), strict=True):
            if name in strips:
                show(axis, strips[name])
            else:
                hide(axis)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axis, (head, strips) in zip(figure.axes[0], columns.items(), strict=True):
        axis.set_title(head)
        above, parts = None, []
        for name, picture in strips.items():
            if name.startswith("image"):
                above = picture.astype(float)
            elif above is not None:
                parts.append(f"{np.abs(picture - above).mean() / 255:.3f} ({name})")
        figure.describe(f"{f'{head}: ' * bool(head)}mean difference from the images, of white: {', '.join(parts)}.")
    return figure

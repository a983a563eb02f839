"""huang, Figs. 8, 9 and 14: images reconstructed by the decoder, from TensorBoard's files."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsexp.figures.curves import Drawing
from capsexp.figures.networks import show
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import WIDTH, PaperFigure
from capsexp.results.collect import Line
from capsexp.results.runs import Run
from capsexp.run.tensorboard import event_folders

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, their reconstructions in the lower

BELOW = "Below: what the decoder makes of the capsule of the image's own class."

Picture = NDArray[np.uint8]  # [H, W] or [H, W, channels]


def epoch_by_epoch(sources: Sources) -> Drawing:
    """Figs. 8 and 9 side by side: both networks' reconstructions after each epoch."""
    found, missing, notes = _all_logged(sources, "huang_fig8")
    columns: list[tuple[str, dict[str, Picture]]] = []
    for line, images in found:
        strips = {"image": _upper(images[max(images)])}
        strips |= {f"epoch {epoch}": _lower(images[epoch]) for epoch in sorted(images)}
        columns.append((f"{line.row.name}: {line.setting}", strips))
    if not columns:
        return None, missing
    figure = _figure("huang, Figs. 8 and 9: Fashion-MNIST reconstructed, epoch by epoch", columns)
    figure.note(f"Test images, one of each class. {BELOW}", *notes)
    return figure, missing


def objects(sources: Sources) -> Drawing:
    """Fig. 14: one test image of each object, and both networks' reconstructions after their last epoch."""
    if short := sources.too_short(sources.lines("huang_fig14"), "huang_fig14"):
        return None, short
    found, missing, notes = _all_logged(sources, "huang_fig14")
    strips: dict[str, Picture] = {}
    for line, images in found:
        image = images[max(images)]
        if not any(np.array_equal(_upper(image), strip) for strip in strips.values()):
            strips["image" if not strips else f"image of {line.row.name}"] = _upper(image)
        strips[line.row.name] = _lower(image)
    if not strips:
        return None, missing
    figure = _figure("huang, Fig. 14: COIL-20, reconstructed by CapsNet and DA-CapsNet", [("", strips)])
    figure.note(f"Test images, one of each object. {BELOW}", *notes)
    return figure, missing


def _all_logged(
    sources: Sources, study: str
) -> tuple[list[tuple[Line, Mapping[int, Picture]]], list[Missing], list[str]]:
    """The rows with pictures, each with its pictures by epoch; what is missing; a note per row."""
    lines = sources.lines(study)
    missing, found, notes = sources.missing(lines, study), [], []
    for line in lines:
        pictures = logged(sources, line)
        if pictures is None or isinstance(pictures, Missing):
            missing += [pictures] if pictures else []
            notes.append(f"Without {line.row.name}.")
        else:
            run, images = pictures
            found.append((line, images))
            training = f"{line.setting}; one run (seed {run.seed})"
            notes.append(f"{line.row.name}, after epoch {max(images)}: {training}.")
    return found, missing, notes


def logged(sources: Sources, line: Line) -> tuple[Run, Mapping[int, Picture]] | Missing | None:
    """A row's first seed with logged images, and these by epoch; None for a row without runs."""
    for run in line.runs:
        for folder in event_folders(sources.logs, run.key):
            if images := logged_images(folder):
                return run, images
    return sources.unlogged(line, "reconstructions") if line.runs else None


def logged_images(folder: Path) -> Mapping[int, Picture]:
    """The images by epoch in a folder of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second to import

    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    if TAG not in events.Tags()["images"]:
        return {}
    return {event.step: np.asarray(Image.open(io.BytesIO(event.encoded_image_string))) for event in events.Images(TAG)}


def _upper(image: Picture) -> Picture:
    return image[: len(image) // 2]


def _lower(image: Picture) -> Picture:
    return image[len(image) // 2 :]


def _figure(title: str, columns: Sequence[tuple[str, Mapping[str, Picture]]]) -> PaperFigure:
    """Columns of strips of images below each other, each with its name at the left."""
    names = list(dict.fromkeys(name for _, strips in columns for name in strips))
    width = WIDTH if len(columns) > 1 else 8.0
    strip = (width - 1.2) / len(columns) / 10  # inches, of ten square images
    figure = PaperFigure(title, (width, 0.7 + (strip + 0.1) * len(names)), (len(names), len(columns)))
    for name, axes in zip(names, figure.axes, strict=True):
        for axis, (_, strips) in zip(axes, columns, strict=True):
            if name in strips:
                show(axis, strips[name])
            else:
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axis, (head, strips) in zip(figure.axes[0], columns, strict=True):
        axis.set_title(head)
        figure.describe(
            f"{f'{head}: ' * bool(head)}mean difference from the images, of white: {', '.join(_described(strips))}."
        )
    return figure


def _described(strips: Mapping[str, Picture]) -> list[str]:
    """For the alt text: how far each strip is from the images above it."""
    above, parts = None, []
    for name, strip in strips.items():
        if name.startswith("image"):
            above = strip.astype(float)
        elif above is not None:
            parts.append(f"{np.abs(strip - above).mean() / 255:.3f} ({name})")
    return parts

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
from capsexp.figures.style import PaperFigure
from capsexp.results.collect import Line
from capsexp.results.runs import Run

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, their reconstructions in the lower

BELOW = "Below: what the decoder makes of the capsule of the image's own class."

Picture = NDArray[np.uint8]  # [H, W] or [H, W, channels]


def epoch_by_epoch(number: int, network: str, attention: str, sources: Sources) -> Drawing:
    """Fig. 8 or 9: one network's reconstructions after each epoch."""
    (line,) = sources.lines("huang_fig8", network=network)
    found = logged(sources, line)
    if found is None:
        return None, sources.missing([line], "huang_fig8", f"attention={attention}")
    if isinstance(found, Missing):
        return None, [found]
    run, images = found
    strips = [("image", _upper(images[max(images)]))]
    strips += [(f"epoch {epoch}", _lower(images[epoch])) for epoch in sorted(images)]
    figure = _figure(f"huang, Fig. {number}: Fashion-MNIST reconstructed by {network}, epoch by epoch", strips)
    figure.note(f"Test images, one of each class. {BELOW}", _training(line, run, max(images)))
    return figure, []


def objects(sources: Sources) -> Drawing:
    """Fig. 14: one test image of each object, and both networks' reconstructions after their last epoch."""
    lines = sources.lines("huang_fig14")
    missing = sources.missing([line for line in lines if not line.runs], "huang_fig14")
    strips: list[tuple[str, Picture]] = []
    notes = []
    for line in lines:
        found = logged(sources, line)
        if found is None or isinstance(found, Missing):
            missing += [found] if found else []
            notes.append(f"Without {line.row.name}.")
            continue
        run, images = found
        image = images[max(images)]
        if not any(np.array_equal(_upper(image), strip) for _, strip in strips):
            strips.append(("image", _upper(image)))
        strips.append((line.row.name, _lower(image)))
        notes.append(_training(line, run, max(images)))
    if not strips:
        return None, missing
    figure = _figure("huang, Fig. 14: COIL-20, reconstructed by CapsNet and DA-CapsNet", strips)
    figure.note(f"Test images, one of each object. {BELOW}", *notes)
    return figure, missing


def logged(sources: Sources, line: Line) -> tuple[Run, Mapping[int, Picture]] | Missing | None:
    """A row's first seed with logged images, and these by epoch; None for a row without runs."""
    for run in line.runs:
        if images := logged_images(sources.folder(run)):
            return run, images
    return sources.unlogged(line.runs[0], "reconstructions") if line.runs else None


def logged_images(folder: Path) -> Mapping[int, Picture]:
    """A run's logged images by epoch; none without event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second to import

    if not folder.is_dir():
        return {}
    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    if TAG not in events.Tags()["images"]:
        return {}
    return {event.step: np.asarray(Image.open(io.BytesIO(event.encoded_image_string))) for event in events.Images(TAG)}


def _upper(image: Picture) -> Picture:
    return image[: len(image) // 2]


def _lower(image: Picture) -> Picture:
    return image[len(image) // 2 :]


def _figure(title: str, strips: Sequence[tuple[str, Picture]]) -> PaperFigure:
    """Strips of images below each other, each with its name."""
    figure = PaperFigure(title, (8, 0.4 + 0.72 * len(strips)), (len(strips), 1))
    for (axis,), (name, strip) in zip(figure.axes, strips, strict=True):
        show(axis, strip)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def _training(line: Line, run: Run, epoch: int) -> str:
    """A note on the training of a network."""
    return f"{line.row.name}, after epoch {epoch}: {line.setting}; one run (seed {run.seed})."

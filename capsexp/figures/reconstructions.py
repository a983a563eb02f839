"""Images drawn again by the decoder, out of TensorBoard's files: huang, Figs. 8, 9 and 14."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsexp.figures.curves import Drawn
from capsexp.figures.networks import show
from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import Page
from capsexp.results.collect import Line
from capsexp.results.runs import Run

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, what was drawn in the lower

BELOW = "Below: what the decoder makes of the capsule of the image's own class."

Picture = NDArray[np.uint8]  # [H, W] or [H, W, channels]


class Epochs:
    """Fig. 8 or 9: what one network draws after each epoch."""

    def __init__(self, number: int, network: str, attention: str) -> None:
        self.number, self.network, self.attention = number, network, attention

    def __call__(self, sources: Sources) -> Drawn:
        """The figure, or what makes it."""
        (measured,) = sources.lines("huang_fig8", network=self.network)
        found = last_of(sources, measured)
        if found is None:
            return None, sources.missing([measured], "huang_fig8", f"attention={self.attention}")
        if isinstance(found, Missing):
            return None, [found]
        run, images = found
        strips = [("image", _upper(images[max(images)]))]
        strips += [(f"epoch {epoch}", _lower(images[epoch])) for epoch in sorted(images)]
        title = f"huang, Fig. {self.number}: Fashion-MNIST reconstructed by {self.network}, epoch by epoch"
        page = _page(title, strips)
        page.note(f"Test images, one of each class. {BELOW}", _circumstances(measured, run, max(images)))
        return page, []


def objects(sources: Sources) -> Drawn:
    """Fig. 14: one test image of each object, and what either network draws of it at its end."""
    study = "huang_fig14"
    rows = sources.lines(study)
    missing = sources.missing([measured for measured in rows if not measured.runs], study)
    strips: list[tuple[str, Picture]] = []
    notes = []
    for measured in rows:
        found = last_of(sources, measured)
        if isinstance(found, Missing):
            missing.append(found)
        if found is None or isinstance(found, Missing):
            notes.append(f"Without {measured.row.name}.")
        else:
            run, images = found
            image = images[max(images)]
            if not any(np.array_equal(_upper(image), strip) for _, strip in strips):
                strips.append(("image", _upper(image)))
            strips.append((measured.row.name, _lower(image)))
            notes.append(_circumstances(measured, run, max(images)))
    if not strips:
        return None, missing
    page = _page("huang, Fig. 14: COIL-20, reconstructed by CapsNet and DA-CapsNet", strips)
    page.note(f"Test images, one of each object. {BELOW}", *notes)
    return page, missing


def last_of(sources: Sources, measured: Line) -> tuple[Run, Mapping[int, Picture]] | Missing | None:
    """A row's first seed with logged images, and these; None for a row without runs."""
    for run in measured.runs:
        if images := logged_images(sources.folder(run)):
            return run, images
    return sources.unlogged(measured.runs[0], "reconstructions") if measured.runs else None


def logged_images(folder: Path) -> Mapping[int, Picture]:
    """The images that a run wrote after each epoch, [H, W, channels]; none where there are no event files."""
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


def _page(title: str, strips: Sequence[tuple[str, Picture]]) -> Page:
    """Strips below each other, each with its name."""
    page = Page(title, (8, 0.4 + 0.72 * len(strips)), (len(strips), 1))
    for (axis,), (name, strip) in zip(page.axes, strips, strict=True):
        show(axis, strip)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    return page


def _circumstances(measured: Line, run: Run, epoch: int) -> str:
    """What was trained to get there."""
    return f"{measured.row.name}, after epoch {epoch}: {measured.setting}; one run (seed {run.seed})."

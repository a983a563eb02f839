"""Images drawn again by the decoder: huang, Figs. 8, 9 and 14."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from capsexp.figures.curves import Drawn
from capsexp.figures.networks import examples, mosaic, show, trained
from capsexp.figures.sources import Measured, Missing, Sources
from capsexp.figures.style import Page

TAG = "reconstructions"  # of TensorBoard's images: the inputs in the upper half, what was drawn in the lower


class Epochs:
    """Fig. 8 or 9: what one network draws after each epoch, out of TensorBoard's files."""

    def __init__(self, number: int, network: str) -> None:
        self.number, self.network = number, network

    def __call__(self, sources: Sources) -> Drawn:
        """The figure, or what makes it."""
        (measured,) = sources.rows("huang_fig8", network=self.network)
        if not measured.records:
            return None, sources.missing([measured], "huang_fig8")
        logged = {record.key: logged_images(sources.folder(record)) for record in measured.records}
        record = next((record for record in measured.records if logged[record.key]), None)
        if record is None:
            return None, [sources.unlogged(record, "reconstructions") for record in measured.records]
        images = logged[record.key]
        page = Page(
            f"huang, Fig. {self.number}: Fashion-MNIST reconstructed by {self.network}, epoch by epoch",
            (8, 0.3 + 0.62 * (len(images) + 1)),
            (len(images) + 1, 1),
        )
        last = max(images)
        strips = {"input": _upper(images[last])} | {f"epoch {epoch}": _lower(images[epoch]) for epoch in sorted(images)}
        for (axis,), (name, strip) in zip(page.axes, strips.items(), strict=True):
            show(axis, strip)
            axis.set_ylabel(name, rotation=0, ha="right", va="center")
        page.note(_circumstances(sources, measured, record.identity["seed"]))
        return page, []


def objects(sources: Sources) -> Drawn:
    """Fig. 14: one test image of each object, and what either network draws of it."""
    study = "huang_fig14"
    rows = sources.rows(study)
    networks = {measured.row.name: trained(sources, measured) for measured in rows if measured.records}
    found = {name: network for name, network in networks.items() if not isinstance(network, Missing)}
    missing = sources.missing([measured for measured in rows if not measured.records], study)
    missing += [network for network in networks.values() if isinstance(network, Missing)]
    if not found:
        return None, missing
    pixels, _ = examples(next(iter(found.values())))
    page = Page("huang, Fig. 14: COIL-20, reconstructed by CapsNet and DA-CapsNet", (8, 3.2), (1 + len(rows), 1))
    strips = {"input": pixels} | {name: _drawn(network, pixels) for name, network in found.items()}
    for (axis,), name in zip(page.axes, ["input", *(measured.row.name for measured in rows)], strict=True):
        if name in strips:
            show(axis, mosaic(strips[name][None]))
        else:
            axis.text(0.5, 0.5, "no run", ha="center")
            axis.set_axis_off()
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    for measured in rows:
        if measured.row.name in found:
            network = found[measured.row.name]
            page.note(_circumstances(sources, measured, network.config.seed, f"after epoch {network.epoch}"))
    page.note(*map(str, missing), "Test images. What is drawn is the winning class's capsule.")
    return page, missing


def logged_images(folder: Path) -> Mapping[int, NDArray[np.uint8]]:
    """The images that a run wrote after each epoch, [H, W, channels]; none where there are no event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second to import

    if not folder.is_dir():
        return {}
    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    if TAG not in events.Tags()["images"]:
        return {}
    return {event.step: np.asarray(Image.open(io.BytesIO(event.encoded_image_string))) for event in events.Images(TAG)}


def _upper(image: NDArray[Any]) -> NDArray[Any]:
    return image[: len(image) // 2]


def _lower(image: NDArray[Any]) -> NDArray[Any]:
    return image[len(image) // 2 :]


def _drawn(network: Any, pixels: Tensor) -> Tensor:
    """What a network's decoder makes of the winning capsules."""
    with torch.inference_mode():
        scores, poses = network.module(pixels)
        return network.module.decoder(poses, scores.argmax(dim=1))


def _circumstances(sources: Sources, measured: Measured, seed: int, *more: str) -> str:
    """What was trained to get there."""
    setting = measured.line["setting"]
    return f"{measured.row.name}: {', '.join([*more, str(setting)])}; one run (seed {seed})."

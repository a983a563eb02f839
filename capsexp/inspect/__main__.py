"""Draws what a trained network does with one image.

capsexp inspect checkpoint=PATH image=NUMBER|FILE [data=NAME] [output=FILE]

  checkpoint   a run's folder below paths.logs (its best.ckpt, else its last.ckpt), or one of the files in it
  image        the number of a test image, from 0; or an image file, which is brought to the network's size and channels
  data         another data set for NUMBER and for the names of the classes; data.root=DIR is the data folder, data.path
               that of your own images
  output       the picture, .png; the numbers go beside it as .json (default: inspect/IMAGE.png beside the checkpoint)

The picture shows the class scores; the contribution of the child capsules to the predicted class at their receptive
fields, by layer and routing iteration; the attention maps; and, for a network with a decoder, the reconstruction, and
what changes in it with each dimension of the predicted capsule.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from capsexp.cli import end_with, own_words
from capsexp.config.checks import nearest
from capsexp.data.folder import pictures
from capsexp.data.reader import fit
from capsexp.errors import InputError
from capsexp.files import write_file

if TYPE_CHECKING:
    from capsexp.inspect.analysis import InputImage
    from capsexp.inspect.restore import Restored

KEYS = {
    "checkpoint": "a checkpoint or a run's folder",
    "image": "the number of a test image, or an image file",
    "output": "the name of a .png file",
}


def main(words: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    given, overrides = own_words(words, KEYS)
    _check(given, overrides)
    from capsexp.inspect.analysis import analyse, to_json  # torch takes seconds to import
    from capsexp.inspect.picture import picture
    from capsexp.inspect.restore import restore

    restored = restore(Path(given["checkpoint"]), "cpu", overrides)
    analysis = analyse(restored, input_image(restored, given["image"]))
    path = Path(given.get("output") or restored.path.parent / "inspect" / f"{Path(given['image']).stem}.png")
    write_file(path, picture(analysis))
    write_file(path.with_suffix(".json"), json.dumps(to_json(analysis), ensure_ascii=False) + "\n")
    score = f"{analysis.score_kind} {analysis.scores[analysis.predicted]:.3f}"
    print(f"{analysis.image.name}: {analysis.title} ({score})")
    print(f"picture {path}")
    print(f"numbers {path.with_suffix('.json')}")


def _check(given: dict[str, str], overrides: list[str]) -> None:
    """Raises InputError for missing and unknown keys, before any file is read."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key.partition(".")[0] != "data":
            names = sorted((*KEYS, "data"))
            raise InputError(f"{key}: no such key{nearest(key, names)} (there are {', '.join(names)})")
    for key in ("checkpoint", "image"):
        if key not in given:
            raise InputError(f"{key}: missing; must be {KEYS[key]}")
    if "output" in given and Path(given["output"]).suffix != ".png":
        raise InputError(f"output={given['output']}: must be {KEYS['output']}")


def input_image(restored: "Restored", image: str) -> "InputImage":
    """A test image by its number, or the image in a file; raises InputError."""
    import torch

    from capsexp.data import source
    from capsexp.data.module import test_split
    from capsexp.inspect.analysis import InputImage

    config, data = restored.config, restored.config.data
    if not re.fullmatch(r"[+-]?\d+", image):
        try:
            pixels = fit(pictures([Path(image)], data.size, data.channels), data.size, data.channels, data.name)
        except InputError as error:
            raise InputError(f"image={error}") from None
        return InputImage(Path(image).name, torch.from_numpy(pixels[0]).float() / 255, None)
    whole = dataclasses.replace(config, budget=dataclasses.replace(config.budget, test_images=None))
    images, labels = test_split(source.load(data), whole)
    number = int(image)
    if not 0 <= number < len(labels):
        raise InputError(f"image={number}: must be from 0 to {len(labels) - 1}, the test images of {data.name}")
    label = labels[number]
    classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
    return InputImage(f"{data.name} test image {number}", images[number].float() / 255, classes)


def run() -> NoReturn:
    """Runs the command line and exits; see `capsexp.cli.end_with`."""
    end_with(main, __doc__)


if __name__ == "__main__":
    run()

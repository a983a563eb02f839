"""Draws what a trained network does with one image: `capsexp inspect logs/RUN 7 --output=seven.png`.

RUN is a run's folder below paths.logs (its best.ckpt, else its last.ckpt), one of the files in it, or `sample`: the
trained network in the package. IMAGE is the number of a test image, from 0, or an image file, which is brought to the
network's size and channels. data=NAME takes NUMBER and the names of the classes from another data set; data.root=DIR is
the data folder, data.path that of your own images. The picture goes to inspect/IMAGE.png beside the checkpoint (of the
sample: in the working folder), the numbers beside it, as .json.

The picture shows the class scores; the contribution of the child capsules to the predicted class at their receptive
fields, by layer and routing iteration; the attention maps; and, for a network with a decoder, the reconstruction, and
what changes in it with each dimension of the predicted capsule.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from capsexp.cli import Parser, end_with, folder
from capsexp.data.folder import pictures
from capsexp.data.reader import fit
from capsexp.errors import InputError
from capsexp.files import write_file

if TYPE_CHECKING:
    from capsexp.inspect.analysis import InputImage
    from capsexp.run.restore import Restored


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; raises InputError for wrong input."""
    parser = Parser(__doc__, "capsexp inspect")
    parser.add_argument("words", nargs="*", metavar="RUN IMAGE | KEY=VALUE", help="a run and an image: see above")
    parser.add_argument("--output", type=folder, metavar="FILE", help="the picture, .png")
    options = parser.parse_words(arguments, "RUN", "IMAGE")
    run, image = options.names
    for key in (word.lstrip("+~").partition("=")[0] for word in options.overrides):
        if key.partition(".")[0] != "data":
            raise InputError(f"{key}: not used here; data=NAME and data.root, data.path are")
    if options.output and options.output.suffix != ".png":
        raise InputError(f"--output={options.output}: must be the name of a .png file")
    from capsexp.inspect.analysis import analyse, to_json  # torch takes seconds to import
    from capsexp.inspect.picture import picture
    from capsexp.run.restore import restore

    restored = restore(folder(run), "cpu", options.overrides)
    analysis = analyse(restored, input_image(restored, image))
    path = options.output or restored.folder / "inspect" / f"{Path(image).stem}.png"
    write_file(path, picture(analysis))
    write_file(path.with_suffix(".json"), json.dumps(to_json(analysis), ensure_ascii=False) + "\n")
    score = f"{analysis.score_kind} {analysis.scores[analysis.predicted]:.3f}"
    print(f"{analysis.image.name}: {analysis.title} ({score})")
    print(f"picture {path}")
    print(f"numbers {path.with_suffix('.json')}")


def input_image(restored: "Restored", image: str) -> "InputImage":
    """A test image by its number, or the image in a file; raises InputError."""
    import torch

    from capsexp.data import source
    from capsexp.data.module import test_split
    from capsexp.inspect.analysis import InputImage

    config, data = restored.config, restored.config.data
    if not re.fullmatch(r"[+-]?\d+", image):
        pixels = fit(pictures([Path(image)], data.size, data.channels), data.size, data.channels, data.name)
        return InputImage(Path(image).name, torch.from_numpy(pixels[0]).float() / 255, None)
    whole = dataclasses.replace(config, budget=dataclasses.replace(config.budget, test_images=None))
    images, labels = test_split(source.load(data), whole)
    number = int(image)
    if not 0 <= number < len(labels):
        raise InputError(f"image {number}: must be from 0 to {len(labels) - 1}, the test images of {data.name}")
    label = labels[number]
    classes = [int(label)] if label.ndim == 0 else label.nonzero().flatten().tolist()
    return InputImage(f"{data.name} test image {number}", images[number].float() / 255, classes)


if __name__ == "__main__":
    end_with(main)

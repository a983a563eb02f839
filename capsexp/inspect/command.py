"""Draws what a trained network does with one image: `capsexp inspect logs/RUN 7 --output=seven.png`.

IMAGE is the number of a test image, from 0, or an image file, which is brought to the network's size and channels.
data=NAME takes IMAGE and the class names from another data set; data.root=DIR is the data folder, data.path that of
your own images. The picture goes to inspect/IMAGE.png beside a run's checkpoint, else in the working folder.
`capsexp.inspect.analysis.analyse` gives its numbers.

The picture shows the class scores; the contribution of the child capsules to the predicted class, by position, by layer
and routing iteration; the attention maps; and, for a network with a decoder, the reconstruction, and what changes in it
with each dimension of the predicted capsule.
"""

from pathlib import Path

from capsexp.cli import RUN, Parser, check_new, folder
from capsexp.errors import InputError
from capsexp.files import write_output


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    parser = Parser(f"{__doc__}{RUN}", "capsexp inspect")
    parser.add_argument("words", nargs="*", metavar="RUN IMAGE | KEY=VALUE", help="a run and an image: see above")
    parser.add_argument("--output", type=folder, metavar="FILE", help="the picture, .png")
    options = parser.parse_words(arguments, "RUN", "IMAGE")
    run, image = options.names
    if options.output and options.output.suffix != ".png":
        raise InputError(f"--output={options.output}: must be the name of a .png file")
    from capsexp.inspect.analysis import analyse, input_image  # torch takes seconds to import
    from capsexp.inspect.picture import picture
    from capsexp.results import networks
    from capsexp.run.plan import BEST, LAST
    from capsexp.run.restore import restore

    restored = restore(networks.find(run), "cpu", options.overrides)
    folder_of_run = restored.path.parent if restored.path.name in (BEST, LAST) else Path()
    path = options.output or folder_of_run / "inspect" / f"{Path(image).stem}.png"
    if options.output or path.resolve() == Path(image).resolve():  # else it is in its own folder
        check_new(path)
    analysis = analyse(restored, input_image(restored, image))
    write_output(path, picture(analysis))
    score = f"{restored.score_kind} {analysis.scores[analysis.predicted]:.3f}"
    print(f"{analysis.image.name}: {analysis.title} ({score})")
    print(f"picture {path}")

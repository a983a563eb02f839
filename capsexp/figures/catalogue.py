"""All figures by name, and how to draw one into files."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, Protocol

from capsexp.config.checks import nearest
from capsexp.errors import InputError
from capsexp.figures.sources import Missing, Sources, UndrawnError
from capsexp.files import write_file


class Drawn(Protocol):
    """A drawn figure."""

    def files(self) -> dict[str, bytes]:
        """The files by suffix, the alt text as .txt."""


class Entry(NamedTuple):
    """What a figure shows, and the function here that draws it, with its first arguments; its import takes seconds."""

    what: str
    function: str
    arguments: tuple[Any, ...] = ()


FIGURES = {
    "answer": Entry("what attention adds, published and measured", "answer.answer"),
    "jiao_table2": Entry("accuracy and first epoch, published and measured", "jiao.table2"),
    "huang_fig3": Entry("two squash functions", "huang.squash_functions"),
    "huang_fig7": Entry("sample images of the data sets", "huang.sample_images"),
    "huang_fig8": Entry("reconstructions epoch by epoch (Figs. 8 and 9)", "reconstructions.epoch_by_epoch"),
    "huang_fig10": Entry("epochs to the top on MNIST", "huang.epochs_to_maximum"),
    "huang_fig11": Entry("accuracy on CIFAR-10 by epoch", "huang.accuracy_by_epoch", (11, "cifar10")),
    "huang_fig12": Entry("accuracy on Fashion-MNIST by epoch", "huang.accuracy_by_epoch", (12, "fashion_mnist")),
    "huang_fig13": Entry("accuracy on SVHN by epoch", "huang.accuracy_by_epoch", (13, "svhn")),
    "huang_fig14": Entry("COIL-20 reconstructed", "reconstructions.objects"),
    "tsai_fig4": Entry("routing iterations, ablations, memory, time", "tsai.iterations"),
    "tsai_fig5": Entry("overlaid digits", "tsai.overlaid"),
    "ou_traversal_mnist": Entry("each dimension of a digit's capsule", "ou.traversal", ("mnist",)),
    "ou_traversal_fashion_mnist": Entry("each dimension of a garment's capsule", "ou.traversal", ("fashion_mnist",)),
    "ou_backprop": Entry("routing with and without back-propagation", "ou.routing_against_backpropagation"),
}


def find(name: str) -> Entry:
    """The entry of a figure; raises InputError for an unknown name."""
    if name not in FIGURES:
        raise InputError(f"{name}: no such figure{nearest(name, list(FIGURES))} (there are {', '.join(FIGURES)})")
    return FIGURES[name]


def drawing(name: str, sources: Sources) -> tuple[Drawn | None, list[Missing]]:
    """A figure, None where nothing of it can be drawn, and what it lacks; raises InputError for unusable files."""
    _, function, arguments = find(name)
    try:
        drawn: tuple[Drawn, list[Missing]] = resolve_name(f"capsexp.figures.{function}")(*arguments, sources)
    except UndrawnError as error:
        return None, error.missing
    return drawn


def draw(name: str, sources: Sources, folder: Path) -> tuple[bool, list[str]]:
    """Writes NAME.png, NAME.svg, and NAME.txt, alt text and caption; whether it could be drawn, and lines about it."""
    files, missing = _files(name, sources)
    if not files:
        return False, [f"not drawn: {each}" for each in missing]
    for suffix, content in files.items():
        write_file(folder / f"{name}{suffix}", content)
    wrote = " ".join(str(folder / f"{name}{suffix}") for suffix in files)
    return True, [f"wrote {wrote}", *missing]


def matches(name: str, sources: Sources, folder: Path) -> bool:
    """Whether the SVG files and NAME.txt are what the records give.

    Not compared: figures that the logs and data here don't give, and SVG files of another version of matplotlib.
    """
    import matplotlib

    version = f"Matplotlib v{matplotlib.__version__},".encode()
    for suffix, content in _files(name, sources)[0].items():
        path = folder / f"{name}{suffix}"
        drawn = path.read_bytes() if path.exists() else b""
        if drawn != content and suffix != ".png" and (suffix == ".txt" or not drawn or version in drawn):
            return False
    return True


def _files(name: str, sources: Sources) -> tuple[dict[str, bytes], list[str]]:
    """A figure's contents by suffix, none where nothing of it can be drawn, and a line for each thing that it lacks."""
    from capsexp.figures.style import default_style

    with default_style():
        try:
            figure, missing = drawing(name, sources)
        except InputError as error:  # a checkpoint that can't be used, missing data
            return {}, [str(error)]
        return {} if figure is None else figure.files(), [*map(str, missing)]

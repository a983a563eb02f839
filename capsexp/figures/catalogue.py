"""All figures by name, and how to draw one into files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from capsexp.config.checks import nearest
from capsexp.errors import InputError
from capsexp.figures.sources import Missing, Sources
from capsexp.files import write_file


class Drawn(Protocol):
    """A drawn figure."""

    def files(self) -> dict[str, bytes]:
        """The files by suffix, the alt text as .txt."""


Draw = Callable[[Sources], tuple[Drawn | None, list[Missing]]]

#: The figures' descriptions.
FIGURES = {
    "answer": "what attention adds, published and measured",
    "jiao_table2": "accuracy and first epoch, published and measured",
    "huang_fig3": "two squash functions",
    "huang_fig7": "sample images of the data sets",
    "huang_fig8": "seven epochs of reconstructions, CapsNet and DA-CapsNet (Figs. 8 and 9)",
    "huang_fig10": "epochs to the top on MNIST",
    "huang_fig11": "accuracy on CIFAR-10 by epoch",
    "huang_fig12": "accuracy on Fashion-MNIST by epoch",
    "huang_fig13": "accuracy on SVHN by epoch",
    "huang_fig14": "COIL-20 reconstructed",
    "tsai_fig4": "routing iterations, ablations, memory, time",
    "tsai_fig5": "overlaid digits",
    "alberti_affine": "accuracy under rotation, shear, scale",
    "ou_traversal_mnist": "each dimension of a digit's capsule",
    "ou_traversal_fashion_mnist": "each dimension of a garment's capsule",
    "ou_backprop": "routing with and without back-propagation",
}


def find(name: str) -> Draw:
    """The function that draws a figure; raises InputError for an unknown name."""
    if name not in FIGURES:
        raise InputError(f"{name}: no such figure{nearest(name, list(FIGURES))} (there are {', '.join(FIGURES)})")
    from capsexp.figures import alberti, answer, huang, jiao, ou, reconstructions, tsai  # with Lightning: only to draw

    functions: dict[str, Draw] = {
        "answer": answer.answer,
        "jiao_table2": jiao.table2,
        "huang_fig3": huang.squash_functions,
        "huang_fig7": huang.sample_images,
        "huang_fig8": reconstructions.epoch_by_epoch,
        "huang_fig10": huang.epochs_to_maximum,
        "huang_fig11": partial(huang.accuracy_by_epoch, 11, "cifar10"),
        "huang_fig12": partial(huang.accuracy_by_epoch, 12, "fashion_mnist"),
        "huang_fig13": partial(huang.accuracy_by_epoch, 13, "svhn"),
        "huang_fig14": reconstructions.objects,
        "tsai_fig4": tsai.iterations,
        "tsai_fig5": tsai.overlaid,
        "alberti_affine": alberti.affine_maps,
        "ou_traversal_mnist": partial(ou.traversal, "mnist"),
        "ou_traversal_fashion_mnist": partial(ou.traversal, "fashion_mnist"),
        "ou_backprop": ou.routing_against_backpropagation,
    }
    return functions[name]


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
            figure, missing = find(name)(sources)
        except InputError as error:  # a checkpoint that can't be used, missing data
            return {}, [str(error)]
        return {} if figure is None else figure.files(), [*map(str, missing)]

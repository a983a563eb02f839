"""Every figure by name, and what draws it."""

from collections.abc import Callable
from pathlib import Path

from capsexp.config.checks import nearest
from capsexp.errors import InputError
from capsexp.figures import affine, epochs, reconstructions, squashing, tsai
from capsexp.figures.curves import Drawn, huang_curves
from capsexp.figures.sources import Sources
from capsexp.figures.style import SUFFIXES, ours, write
from capsexp.figures.traversals import Traversal

FIGURES: dict[str, tuple[str, Callable[[Sources], Drawn]]] = {
    "huang_fig3": ("two squash functions", squashing.scales),
    "huang_fig8": ("seven epochs of reconstructions, CapsNet", reconstructions.Epochs(8, "CapsNet", "none")),
    "huang_fig9": ("seven epochs of reconstructions, DA-CapsNet", reconstructions.Epochs(9, "DA-CapsNet", "dual")),
    "huang_fig10": ("epochs to the top on MNIST", epochs.to_the_top),
    "huang_fig11": ("accuracy on CIFAR-10 by epoch", huang_curves(11, "CIFAR-10", "cifar10")),
    "huang_fig12": ("accuracy on Fashion-MNIST by epoch", huang_curves(12, "Fashion-MNIST", "fashion_mnist")),
    "huang_fig13": ("accuracy on SVHN by epoch", huang_curves(13, "SVHN", "svhn")),
    "huang_fig14": ("COIL-20 reconstructed", reconstructions.objects),
    "tsai_fig4": ("routing iterations, ablations, memory, time", tsai.iterations),
    "tsai_fig5": ("overlaid digits", tsai.overlaid),
    "alberti_affine": ("accuracy under rotation, shear, scale", affine.robust),
    "ou_traversal_mnist": ("each dimension of a digit's capsule", Traversal("MNIST", "mnist")),
    "ou_traversal_fashion_mnist": (
        "each dimension of a garment's capsule",
        Traversal("Fashion-MNIST", "fashion_mnist"),
    ),
}


def find(name: str) -> Callable[[Sources], Drawn]:
    """What draws a figure; raises InputError for a name that isn't there."""
    if name not in FIGURES:
        raise InputError(f"{name}: no such figure{nearest(name, list(FIGURES))} (there are {', '.join(FIGURES)})")
    return FIGURES[name][1]


def draw(name: str, sources: Sources, folder: Path) -> tuple[bool, list[str]]:
    """Draws a figure into NAME.png and NAME.svg, if anything of it can be drawn; what there is to say, in lines."""
    try:
        with ours():
            page, missing = find(name)(sources)
            if page is not None:
                write(page.files(), folder, name)
    except InputError as error:  # a checkpoint that can't be used, data that aren't there
        return False, [f"not drawn: {error}"]
    if page is None:
        return False, [f"not drawn: {lacks}" for lacks in missing]
    wrote = " ".join(str(folder / f"{name}{suffix}") for suffix in SUFFIXES)
    return True, [f"wrote {wrote}", *map(str, missing)]

"""All figures by name, and how to draw one into files."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from capsexp.config.checks import nearest
from capsexp.errors import InputError
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import Drawing
from capsexp.files import write_file
from capsexp.study import studies
from capsexp.study.studies import Study


class Entry(NamedTuple):
    """What a figure shows; the function here that draws it from `Inputs`, whose import takes seconds; its arguments."""

    what: str
    function: str
    arguments: Mapping[str, str | bool] = {}


def _by_epoch(title: str, study: str, **more: str) -> Entry:
    what = f"{title}; a line a network, by epoch"
    return Entry(what, "lines.accuracy_by_epoch", {"study": study, "title": title, **more})


def _reconstructed(title: str, study: str, each_epoch: bool = False) -> Entry:
    return Entry(title, "reconstructions.reconstructions", {"study": study, "title": title, "each_epoch": each_epoch})


def _traversal(label: str) -> Entry:
    title = f"ou, after Sabour et al. 2017, Fig. 4: each dimension of the winning capsule, {label}"
    return Entry(title, "traversal.traversals", {"study": "ou_traversal", "title": title, "label": label})


FIGURES = {
    "answer": Entry("what attention adds, published and measured", "answer.answer"),
    "jiao_epochs": _by_epoch(
        "jiao: CapsNet on MNIST, without and with CBAM, by routing iterations", "jiao_table2", panel="iterations"
    ),
    "huang_fig8": _reconstructed("huang, Figs. 8 and 9: Fashion-MNIST reconstructed", "huang_fig8", each_epoch=True),
    "huang_fig11": _by_epoch("huang, Fig. 11: accuracy on CIFAR-10", "huang_table2", label="CIFAR-10"),
    "huang_fig12": _by_epoch("huang, Fig. 12: accuracy on Fashion-MNIST", "huang_table2", label="Fashion-MNIST"),
    "huang_gains": Entry(
        "huang: what dual attention adds, by epoch",
        "lines.gain_by_epoch",
        {"title": "What dual attention adds, by epoch"},
    ),
    "huang_fig14": _reconstructed("huang, Fig. 14: COIL-20 reconstructed", "huang_fig14"),
    "tsai_fig4": Entry(
        "tsai, Fig. 4: accuracy by routing iterations, ablations; of GPUs memory and time",
        "iterations.routing_iterations",
    ),
    "ou_backprop": _by_epoch("ou: routing against back-propagation, CapsNet on Fashion-MNIST", "ou_backprop"),
    "ou_traversal": _traversal("MNIST"),
    "ou_traversal_fashion_mnist": _traversal("Fashion-MNIST"),
}


def every() -> dict[str, Entry]:
    """All figures: these, and a strip plot of each other study."""
    return {name: strip(studies.load(name)) for name in studies.names()} | FIGURES


def strip(study: Study) -> Entry:
    """The strip plot of a study."""
    return Entry(f"The numbers of the table, a row a network: {study.title}", "strip.of_study", {"study": study.name})


def find(name: str) -> Entry:
    """The entry of a figure; raises InputError for an unknown name."""
    figures = every()
    if name not in figures:
        raise InputError(f"{name}: no such figure{nearest(name, list(figures))} (there are {', '.join(figures)})")
    return figures[name]


def drawing(name: str, inputs: Inputs) -> Drawing:
    """A figure; raises UndrawnError where nothing of it can be drawn, InputError for unusable files."""
    _, function, arguments = find(name)
    drawn: Drawing = resolve_name(f"capsexp.figures.{function}")(inputs, **arguments)
    return drawn


def draw(name: str, inputs: Inputs, folder: Path) -> tuple[bool, list[str]]:
    """Writes NAME_light.svg, NAME_dark.svg …; whether it could be drawn, and lines about it."""
    try:
        drawn = drawing(name, inputs)
    except (UndrawnError, InputError) as error:  # InputError: of a checkpoint that can't be used, or missing data
        return False, [f"not drawn: {line}" for line in error.args]
    files = {folder / f"{name}{suffix}": content for suffix, content in drawn.files().items()}
    for path, content in files.items():
        write_file(path, content)
    return True, [f"wrote {' '.join(map(str, files))}", *drawn.missing]


def matches(name: str, inputs: Inputs, folder: Path) -> bool:
    """Whether the files are what the records give.

    Not compared: figures that the logs and data here don't give, and files of another version of matplotlib.
    """
    import matplotlib

    version = f"Matplotlib v{matplotlib.__version__},".encode()
    try:
        files = drawing(name, inputs).files()
    except (UndrawnError, InputError):
        return True
    for suffix, content in files.items():
        path = folder / f"{name}{suffix}"
        there = path.read_bytes() if path.exists() else b""
        if there != content and (b"Matplotlib v" not in there or version in there):
            return False
    return True

"""All figures by name, and how to draw one into files."""

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from capsexp.config.checks import unknown_name
from capsexp.errors import InputError
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.style import Drawing
from capsexp.files import write_file
from capsexp.study import studies


class Entry(NamedTuple):
    """What a figure shows; the function that draws it from `Inputs`, whose import takes seconds; its arguments."""

    what: str
    function: str
    arguments: Mapping[str, str | bool] = {}


#: The functions of the figures that studies name under `figures`, with a title.
FUNCTIONS: dict[str, tuple[str, Mapping[str, str | bool]]] = {
    "jiao_table2": ("figures.pairs.first_epochs", {"study": "jiao_table2"}),
    "huang_fig8": ("figures.reconstructions.reconstructions", {"study": "huang_fig8", "each_epoch": True}),
    "huang_fig11": ("figures.lines.accuracy_by_epoch", {"study": "huang_table2", "label": "CIFAR-10"}),
    "huang_fig12": ("figures.lines.accuracy_by_epoch", {"study": "huang_table2", "label": "Fashion-MNIST"}),
    "huang_gains": ("figures.lines.gain_by_epoch", {}),
    "huang_fig14": ("figures.reconstructions.reconstructions", {"study": "huang_fig14"}),
    "tsai_fig4": ("figures.iterations.routing_iterations", {}),
    "ou_backprop": ("figures.lines.accuracy_by_epoch", {"study": "ou_backprop"}),
    "ou_traversal": ("inspect.traversal.traversals", {"study": "ou_traversal", "label": "MNIST"}),
    "ou_traversal_fashion_mnist": (
        "inspect.traversal.traversals",
        {"study": "ou_traversal", "label": "Fashion-MNIST"},
    ),
}


def every() -> dict[str, Entry]:
    """All figures: those that studies name, and a strip plot of each other study."""
    figures: dict[str, Entry] = {}
    for study in map(studies.load, studies.names()):
        for name, title in study.pictures.items():
            if name in FUNCTIONS:
                function, arguments = FUNCTIONS[name]
                figures[name] = Entry(title, function, {"title": title, **arguments})
            elif name == study.name:
                figures[name] = Entry(title, "figures.strip.of_study", {"study": name})
    return figures


def find(name: str) -> Entry:
    """The entry of a figure; raises InputError for an unknown name."""
    figures = every()
    if name not in figures:
        raise unknown_name(name, "figure", figures)
    return figures[name]


def drawing(name: str, inputs: Inputs) -> Drawing:
    """A figure; raises UndrawnError where nothing of it can be drawn, InputError for unusable files."""
    _, function, arguments = find(name)
    drawn: Drawing = resolve_name(f"capsexp.{function}")(inputs, **arguments)
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


def matches(name: str, inputs: Inputs, folder: Path) -> bool | None:
    """Whether the files are what the records give; None where the logs and data here don't give the figure.

    Files of another version of matplotlib are taken for equal.
    """
    import matplotlib

    version = f"Matplotlib v{matplotlib.__version__},".encode()
    try:
        files = drawing(name, inputs).files()
    except (UndrawnError, InputError):
        return None
    for suffix, content in files.items():
        path = folder / f"{name}{suffix}"
        there = path.read_bytes() if path.exists() else b""
        if there != content and (b"Matplotlib v" not in there or version in there):
            return False
    return True

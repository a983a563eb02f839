"""All figures by name, and how to draw one into files."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from capsexp.config.checks import unknown_name
from capsexp.errors import InputError
from capsexp.figures import strip
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.iterations import routing_iterations
from capsexp.figures.lines import accuracy_by_epoch
from capsexp.figures.pairs import first_epochs
from capsexp.figures.reconstructions import reconstructions
from capsexp.figures.style import Drawing
from capsexp.figures.traversal import traversals
from capsexp.files import write_file
from capsexp.study import studies

#: The figures that studies name under `figures`; each is drawn from `Inputs` and that title.
FUNCTIONS: dict[str, Callable[..., Drawing]] = {
    "jiao_table2": partial(first_epochs, study="jiao_table2"),
    "huang_fig8": partial(reconstructions, study="huang_fig8", each_epoch=True),
    "huang_fig11": partial(accuracy_by_epoch, study="huang_table2", label="CIFAR-10"),
    "huang_fig12": partial(accuracy_by_epoch, study="huang_table2", label="Fashion-MNIST"),
    "huang_fig14": partial(reconstructions, study="huang_fig14"),
    "tsai_fig4": routing_iterations,
    "ou_backprop": partial(accuracy_by_epoch, study="ou_backprop"),
    "ou_traversal": partial(traversals, study="ou_traversal", label="MNIST"),
    "ou_traversal_fashion_mnist": partial(traversals, study="ou_traversal", label="Fashion-MNIST"),
}


def every() -> dict[str, str]:
    """What each figure shows, by name: those that studies name, and a strip plot of each other study."""
    loaded = [studies.load(name) for name in studies.names()]
    pictures = [(study.name, *picture) for study in loaded for picture in study.pictures.items()]
    return {name: title for study, name, title in pictures if name in FUNCTIONS or name == study}


def named(typed: Sequence[str]) -> Sequence[str]:
    """The typed names, else all; raises InputError for the name of no figure."""
    if unknown := [name for name in typed if name not in every()]:
        raise unknown_name(unknown[0], "figure", every())
    return typed or [*every()]


def drawing(name: str, inputs: Inputs) -> Drawing:
    """A figure; raises UndrawnError where nothing of it can be drawn, InputError for unusable files."""
    return FUNCTIONS[name](inputs, title=every()[name]) if name in FUNCTIONS else strip.of_study(inputs, name)


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
    """Whether the files are what the records give; None where the logs and data here don't give the figure, but the
    files name the training that it would show.

    Files of another version of matplotlib are taken for equal.
    """
    import matplotlib

    version = f"Matplotlib v{matplotlib.__version__},".encode()
    try:
        files = drawing(name, inputs).files()
    except (UndrawnError, InputError):
        return None if _names_training(name, inputs, folder) else False
    for suffix, content in files.items():
        path = folder / f"{name}{suffix}"
        there = path.read_bytes() if path.is_file() else b""
        if there != content and (b"Matplotlib v" not in there or version in there):
            return False
    return True


def _names_training(name: str, inputs: Inputs, folder: Path) -> bool:
    """Whether the committed file of a figure, if there is one, names the training of its study's runs, if there are."""
    path = folder / f"{name}_light.svg"
    study = next(study for study in map(studies.load, studies.names()) if name in study.pictures)
    try:
        training = inputs.rows(study.name).training
    except UndrawnError:
        return True
    text = re.sub(r"<[^>]*>|\s", "", path.read_text(encoding="utf-8")) if path.is_file() else ""
    return not text or escape(re.sub(r"\s", "", training)) in text

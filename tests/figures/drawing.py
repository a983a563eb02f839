"""Sources of made-up records, and the contents of a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made import run, write
from matplotlib.axes import Axes
from matplotlib.text import Text

from capsexp.figures import catalogue
from capsexp.figures.sources import Sources
from capsexp.figures.style import PaperFigure
from capsexp.results import runs
from capsexp.run.records import Record, name_of
from capsexp.study import studies

UNDRAWN = ("(no runs)", "(not drawn)")
ATTENTION = ("CapsNet", "CapsNet+Conv", "CapsNet+Caps", "DA-CapsNet")


def words(study: str, row: str) -> str:
    """The command line of a row."""
    (found,) = (one for one in studies.load(study).rows if one.name == row)
    assert found.run is not None
    return found.run


def seeds(study: str, row: str, curves: Sequence[Sequence[float]], more: str = "", **changed: Any) -> list[Record]:
    """A row's runs with seeds 0, 1, 2 …, from their accuracies epoch by epoch."""
    line = f"{words(study, row)} {more}".strip()
    return [run(line, seed, curve, **changed) for seed, curve in enumerate(curves)]


def sources(where: Path, *records: Record, typed: Sequence[str] = ()) -> Sources:
    """A folder with these records and no logs."""
    (where / "results" / "runs").mkdir(parents=True, exist_ok=True)
    write(where / "results", records)
    return Sources(runs.read(where / "results")[0], where / "logs", typed)


def drawn(name: str, made: Sources) -> PaperFigure:
    """A figure; it can be drawn."""
    figure, _ = catalogue.drawing(name, made)
    assert figure is not None
    return figure


def folder(made: Sources, record: Record) -> Path:
    """The logs of a run."""
    return made.logs / name_of(record.identity)


def labels(axis: Axes) -> list[str]:
    """The legend, without the entries of published numbers whose rows are not drawn."""
    legend = axis.get_legend()
    found = [text.get_text().replace("\n", " ") for text in legend.get_texts()] if legend else []
    return [text for text in found if not text.endswith(UNDRAWN)]


def texts(axis: Axes) -> list[str]:
    """The texts in and beside the axes."""
    return [text.get_text() for text in axis.texts]


def curve(axis: Axes, label: str) -> tuple[list[float], list[float]]:
    """x and y of the line whose label begins with `label`."""
    (line,) = (line for line in axis.lines if str(line.get_label()).startswith(label))
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def everything(figure: PaperFigure) -> str:
    """All texts of a figure and its notes."""
    found = [text.get_text() for text in figure.figure.findobj(Text)]
    return "\n".join([*found, *figure.notes])

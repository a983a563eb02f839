"""Inputs of made-up records, and the figures of matplotlib that are drawn from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from made import run, write
from matplotlib.figure import Figure

from capsexp.figures import catalogue
from capsexp.figures.inputs import Inputs
from capsexp.figures.style import default_style
from capsexp.results import runs
from capsexp.run.keys import name_of
from capsexp.run.records import Record
from capsexp.study import studies
from capsexp.study.selection import LAPTOP


def words(study: str, row: str, setting: str = LAPTOP) -> str:
    """The command line of a row in a setting."""
    whole = studies.load(study)
    (found,) = (one for one in whole.rows if one.name == row)
    (one,) = found.combinations(whole.settings[setting])
    return " ".join(one)


def seeds(
    study: str, row: str, curves: Sequence[Sequence[float]], setting: str = LAPTOP, **changed: Any
) -> list[Record]:
    """A row's runs in a setting with seeds 0, 1, 2 …, from their accuracies epoch by epoch."""
    line = words(study, row, setting)
    precision = line.partition("trainer.precision=")[2].partition(" ")[0]
    return [run(line, seed, curve, precision=precision, **changed) for seed, curve in enumerate(curves)]


def inputs(where: Path, *records: Record, typed: Sequence[str] = ()) -> Inputs:
    """A folder with these records and no logs."""
    (where / "results" / "runs").mkdir(parents=True, exist_ok=True)
    write(where / "results", records)
    return Inputs(runs.read(where / "results")[0], where / "logs", typed)


def plot(name: str, made: Inputs) -> Figure:
    """A figure of matplotlib, before it is an SVG file."""
    with default_style():
        return catalogue.drawing(name, made).plot()


def legend(figure: Figure) -> list[str]:
    """The names in the legend of all plots."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def folder(made: Inputs, record: Record) -> Path:
    """The logs of a run."""
    return made.logs / name_of(record.identity)

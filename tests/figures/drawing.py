"""Inputs of made-up records, and the figures of matplotlib that are drawn from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made import run, write
from matplotlib.figure import Figure

from capsexp.figures import catalogue, lines, reconstructions, traversal
from capsexp.figures.inputs import Inputs
from capsexp.figures.style import default_style
from capsexp.results import runs
from capsexp.run.records import Record, name_of
from capsexp.study import studies


def words(study: str, row: str) -> str:
    """The command line of a row."""
    (found,) = (one for one in studies.load(study).rows if one.name == row)
    assert found.run is not None
    return found.run


def seeds(study: str, row: str, curves: Sequence[Sequence[float]], more: str = "", **changed: Any) -> list[Record]:
    """A row's runs with seeds 0, 1, 2 …, from their accuracies epoch by epoch."""
    line = f"{words(study, row)} {more}".strip()
    return [run(line, seed, curve, **changed) for seed, curve in enumerate(curves)]


def inputs(where: Path, *records: Record, typed: Sequence[str] = ()) -> Inputs:
    """A folder with these records and no logs."""
    (where / "results" / "runs").mkdir(parents=True, exist_ok=True)
    write(where / "results", records)
    return Inputs(runs.read(where / "results")[0], where / "logs", typed)


def plot(name: str, made: Inputs) -> Figure:
    """A figure of matplotlib, before it is an SVG file."""
    plots: list[Any] = []
    with pytest.MonkeyPatch.context() as patch, default_style():
        for module in (lines, reconstructions, traversal):
            patch.setattr(module, "plotted", plots.append)
        catalogue.drawing(name, made)
        figure = plots[0]()
    assert isinstance(figure, Figure)
    return figure


def folder(made: Inputs, record: Record) -> Path:
    """The logs of a run."""
    return made.logs / name_of(record.identity)

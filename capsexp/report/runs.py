"""Every run in a line, as the table at the page's end sorts and filters it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pandas as pd

from capsexp.config.checks import NAME
from capsexp.results.sheets import decimal
from capsexp.results.tables import JUDGED, Line, Table
from capsexp.run.records import Record, run_name

STATES = ("finished", "failed", "trial")
ATTENTION = {"cbam": "CBAM", "conv": "Conv", "caps": "Caps"}


@dataclass(frozen=True)
class Cell:
    """What one run has in one column."""

    text: str = ""
    number: float | None = None  # to sort by
    parts: tuple[str, ...] = ()  # instead of the text, where there are several
    link: str = ""  # of the text; of parts: what stands before their names
    note: str = ""


@dataclass(frozen=True)
class Run:
    """What a line is made of."""

    record: Record
    line: Line  # of capsexp.results.tables
    studies: tuple[str, ...]
    verdicts: tuple[str, ...]
    folder: str  # of the records, as seen from the page


@dataclass(frozen=True)
class Column:
    """A column of the table; a filtered one has few different texts, to choose one of."""

    name: str
    cell: Callable[[Run], Cell]
    numeric: bool = False
    filtered: bool = False


def state(line: Line) -> str:
    """Of a run: finished, failed, or only a trial of a few steps."""
    return "trial" if line["trial"] else "finished" if line["finished"] else "failed"


def lines(records: Sequence[Record], found: pd.DataFrame, made: Sequence[Table], folder: str) -> list[list[Cell]]:
    """A line of cells a run, in the order of studies, then as they were started.

    Args:
        found: the records' runs, in their order.
        folder: of the records, as seen from the page.
    """
    places = _places(made)
    listed = []
    measured: list[Any] = found.to_dict("records")
    for record, line in zip(records, measured, strict=True):
        judged = places.get(record.key, {})
        verdicts = sorted({verdict for of_study in judged.values() for verdict in of_study})
        listed.append(Run(record, line, tuple(judged), tuple(verdicts), folder))
    listed.sort(key=lambda run: (not run.studies, run.studies, str(run.line["started"]), run.record.key))
    return [[column.cell(run) for column in COLUMNS] for run in listed]


def _places(made: Sequence[Table]) -> dict[str, dict[str, set[str]]]:
    """For each run's key the studies that it serves, and the verdicts there."""
    places: dict[str, dict[str, set[str]]] = {}
    for table in made:
        for line in table.cells.to_dict("records"):
            verdicts = {verdict for measure in JUDGED if (verdict := line[f"{measure}_verdict"])}
            for key in line["keys"]:
                places.setdefault(key, {}).setdefault(table.study.name, set()).update(verdicts)
    return places


def _number(value: float | None, places: int) -> Cell:
    return Cell() if pd.isna(value) else Cell(decimal(value, places), float(value))


def _measure(name: str, places: int) -> Callable[[Run], Cell]:
    return lambda run: _number(run.line[name], places)


def _attention(run: Run) -> Cell:
    names = [name for key, name in ATTENTION.items() if run.record.config["attention"].get(key)]
    return Cell(" + ".join(names) or "none")


def _iterations(run: Run) -> Cell:
    return _number(run.record.config["routing"].get("iterations"), 0)


def _record(run: Run) -> Cell:
    name = run_name(run.record.identity)
    return Cell(name, link=f"{run.folder}/{quote(name)}.json")


def _state(run: Run) -> Cell:
    return Cell(state(run.line), note=run.record.error or "")


def _commit(run: Run) -> Cell:
    return Cell((run.record.provenance.get("commit") or "")[:10])


COLUMNS = [
    Column("study", lambda run: Cell(parts=run.studies, link="#"), filtered=True),
    Column("data", lambda run: Cell(run.record.identity["data"][NAME]), filtered=True),
    Column("network", lambda run: Cell(run.record.identity["model"][NAME]), filtered=True),
    Column("routing", lambda run: Cell(run.record.identity["routing"][NAME]), filtered=True),
    Column("iterations", _iterations, numeric=True),
    Column("attention", _attention, filtered=True),
    Column("seed", _measure("seed", 0), numeric=True),
    Column("maximum %", _measure("accuracy", 2), numeric=True),
    Column("first epoch", _measure("first_epoch", 0), numeric=True),
    Column("last epoch %", _measure("last", 2), numeric=True),
    Column("held-out %", _measure("heldout", 2), numeric=True),
    Column("state", _state, filtered=True),
    Column("verdict", lambda run: Cell(parts=run.verdicts), filtered=True),
    Column("training", lambda run: Cell(str(run.line["setting"]))),
    Column("protocol", lambda run: Cell(run.line["protocol"]), filtered=True),
    Column("parameters", _measure("parameters", 0), numeric=True),
    Column("s / epoch", _measure("seconds", 1), numeric=True),
    Column("hours", _measure("hours", 2), numeric=True),
    Column("MB device", _measure("memory", 0), numeric=True),
    Column("MB host", _measure("host", 0), numeric=True),
    Column("device", lambda run: Cell(run.line["device"])),
    Column("started", lambda run: Cell(run.line["started"].replace("T", " ")[:16])),
    Column("commit", _commit),
    Column("record", _record),
]

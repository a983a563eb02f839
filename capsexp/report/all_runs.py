"""Tables of all runs: each in a line, for the table that the page sorts and filters; and how many were made where."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args
from urllib.parse import quote

from capsexp.results.cells import JUDGED
from capsexp.results.collect import Results
from capsexp.results.runs import Run, State
from capsexp.run.environment import LIBRARIES
from capsexp.tables.pages import Table
from capsexp.tables.texts import decimal, hours

STATES = get_args(State)


@dataclass(frozen=True)
class Entry:
    """What one run has in one column."""

    text: str = ""
    parts: Sequence[str] = ()  # instead of the text, where there are several
    link: str = ""  # of the text; of parts: what stands before their names
    note: str = ""


@dataclass(frozen=True)
class Shown:
    """A run with what the studies say of it."""

    run: Run
    record: str  # the address of its record
    studies: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunColumn:
    """A column of the table of all runs; a choice has few different texts, to filter by one of."""

    entry: Callable[[Shown], Entry]
    kind: Literal["text", "choice", "number"] = "text"


def entries(runs: Iterable[Run], studies: Sequence[Results], folder: str) -> Iterator[dict[str, Entry]]:
    """An entry per column for each run, in the order of studies, then as they were started.

    Args:
        folder: of the records, relative to the page.
    """
    names: dict[str, dict[str, None]] = {}
    verdicts: dict[str, set[str]] = {}
    for cell in (cell for results in studies for cell in results.cells):
        for key in cell.keys:
            names.setdefault(key, {})[cell.study] = None
            if cell.verdict and cell.measure in JUDGED:
                verdicts.setdefault(key, set()).add(cell.verdict)
    shown = []
    for run in runs:
        of_studies = (*names.get(run.key, ()),), (*sorted(verdicts.get(run.key, ())),)
        shown.append(Shown(run, f"{folder}/{quote(run.name)}.json", *of_studies))
    shown.sort(key=lambda one: (not one.studies, one.studies, one.run.started, one.run.key))
    return ({name: column.entry(one) for name, column in COLUMNS.items()} for one in shown)


def _text(name: str, kind: Literal["text", "choice"] = "text") -> RunColumn:
    return RunColumn(lambda one: Entry(getattr(one.run, name) or ""), kind)


def _number(name: str, digits: int) -> RunColumn:
    return RunColumn(lambda one: Entry(_decimal(getattr(one.run, name), digits)), "number")


def _measure(name: str, digits: int, protocol: str = "paper") -> RunColumn:
    def entry(one: Shown) -> Entry:
        return Entry(_decimal(one.run.measures.get(name) if one.run.protocol == protocol else None, digits))

    return RunColumn(entry, "number")


def _decimal(value: float | None, digits: int) -> str:
    return "" if value is None else decimal(value, digits)


COLUMNS = {
    "run": RunColumn(lambda one: Entry(one.run.key[:8], link=one.record)),
    "study": RunColumn(lambda one: Entry(parts=one.studies, link="#"), "choice"),
    **{name: _text(name, "choice") for name in ("data", "network", "routing")},
    "iterations": _number("iterations", 0),
    "attention": _text("attention", "choice"),
    "seed": _number("seed", 0),
    "maximum %": _measure("accuracy", 2),
    "first epoch": _measure("first_epoch", 0),
    "last epoch %": _measure("last", 2),
    "held-out %": _measure("accuracy", 2, "heldout"),
    "state": RunColumn(
        lambda one: Entry(one.run.state, note=one.run.error or "didn't learn" * (one.run.learned is False)), "choice"
    ),
    "verdict": RunColumn(lambda one: Entry(parts=one.verdicts), "choice"),
    "training": RunColumn(lambda one: Entry(str(one.run.setting)), "choice"),
    "protocol": _text("protocol", "choice"),
    "parameters": _number("parameters", 0),
    "s / epoch": _measure("seconds", 1),
    "hours": _number("hours", 2),
    "MB device": _measure("memory", 0),
    "MB host": _measure("host", 0),
    "device": _text("device"),
    "started": RunColumn(lambda one: Entry(one.run.started.replace("T", " ")[:16])),
    "commit": RunColumn(lambda one: Entry(_short(one.run.commit))),
}


def _short(commits: str | None) -> str:
    """The commits of a run, each by its first ten digits."""
    return ", ".join(commit[:10] for commit in (commits or "").split(", "))


def environments(runs: Iterable[Run]) -> list[Table]:
    """On which devices, with which versions and which code the runs were made."""
    runs = sorted(runs, key=lambda run: run.started)
    counted = ["runs", *STATES, "time", "first", "last"]
    return [
        _grouped("Devices", {"device": lambda run: run.device, "cores": lambda run: run.cores}, runs, counted),
        _grouped(
            "Versions", {name: partial(_version, name.lower()) for name in ("Python", *LIBRARIES)}, runs, ["runs"]
        ),
        _grouped("Code", {"commit": lambda run: _short(run.commit), "tree": lambda run: run.tree}, runs, counted),
    ]


def _version(name: str, run: Run) -> str | None:
    return run.versions.get(name)


def _grouped(
    title: str, columns: Mapping[str, Callable[[Run], object]], runs: Sequence[Run], counted: Sequence[str]
) -> Table:
    """A line for all runs that are equal in these columns, in the order of the first of them."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        own = tuple("" if (value := column(run)) is None else str(value) for column in columns.values())
        groups.setdefault(own, []).append(run)
    rows = []
    for own, group in groups.items():
        states = Counter(run.state for run in group)
        numbers = {"runs": len(group), **{state: states[state] for state in STATES}}
        texts = {name: f"{number:,}" if number else "" for name, number in numbers.items()}
        texts |= {"first": group[0].started[:10], "last": group[-1].started[:10]}
        texts["time"] = hours(sum(run.hours for run in group))
        rows.append([*own, *(texts[name] for name in counted)])
    return Table(title, [*columns, *counted], "l" * len(columns) + "r" * len(counted), rows)

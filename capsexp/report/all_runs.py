"""Tables of all runs: each in a line, for the table that the page sorts and filters; and how many were made where."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import pandas as pd

from capsexp.results.cells import JUDGED
from capsexp.results.collect import Results
from capsexp.run.environment import LIBRARIES
from capsexp.tables.pages import Table
from capsexp.tables.texts import decimal, hours

STATES = ("finished", "failed", "trial")


@dataclass(frozen=True)
class Entry:
    """What one run has in one column."""

    text: str = ""
    parts: Sequence[str] = ()  # instead of the text, where there are several
    link: str = ""  # of the text; of parts: what stands before their names
    note: str = ""


@dataclass(frozen=True)
class RunColumn:
    """A column of the table of all runs; a choice has few different texts, to filter by one of."""

    entry: Callable[[Any], Entry]
    kind: Literal["text", "choice", "number"] = "text"


def entries(runs: pd.DataFrame, studies: Sequence[Results], folder: str) -> list[dict[str, Entry]]:
    """An entry per column for each run, in the order of studies, then as they were started.

    Args:
        runs: all runs; see capsexp.results.runs.
        folder: of the records, relative to the page.
    """
    cells: Any = pd.concat([results.cells for results in studies]).explode("keys")
    names = cells.groupby("keys").study.agg(lambda found: tuple(dict.fromkeys(found))).to_dict()
    judged = cells[cells.measure.isin(JUDGED)].dropna(subset="verdict")
    verdicts = judged.groupby("keys").verdict.agg(lambda found: sorted(set(found))).to_dict()
    runs = runs.assign(
        studies=[names.get(key, ()) for key in runs.key],
        verdicts=[verdicts.get(key, ()) for key in runs.key],
        record=[f"{folder}/{quote(name)}.json" for name in runs.name],
    )
    found = sorted(runs.itertuples(), key=lambda run: (not run.studies, run.studies, str(run.started), run.key))
    return [{name: column.entry(run) for name, column in COLUMNS.items()} for run in found]


def _text(name: str, kind: Literal["text", "choice"] = "text") -> RunColumn:
    return RunColumn(lambda run: Entry(getattr(run, name) or ""), kind)


def _number(name: str, places: int, protocol: str = "") -> RunColumn:
    """A number of the runs under one protocol, or under both."""

    def entry(run: Any) -> Entry:
        value = getattr(run, name) if protocol in ("", run.protocol) else None
        return Entry("" if pd.isna(value) else decimal(value, places))

    return RunColumn(entry, "number")


COLUMNS = {
    "run": RunColumn(lambda run: Entry(run.key[:8], link=run.record)),
    "study": RunColumn(lambda run: Entry(parts=run.studies, link="#"), "choice"),
    **{name: _text(name, "choice") for name in ("data", "network", "routing")},
    "iterations": _number("iterations", 0),
    "attention": _text("attention", "choice"),
    "seed": _number("seed", 0),
    "maximum %": _number("accuracy", 2, "paper"),
    "first epoch": _number("first_epoch", 0),
    "last epoch %": _number("last", 2),
    "held-out %": _number("accuracy", 2, "heldout"),
    "state": RunColumn(
        lambda run: Entry(run.state, note=run.error or ("didn't learn" if run.learned is False else "")), "choice"
    ),
    "verdict": RunColumn(lambda run: Entry(parts=run.verdicts), "choice"),
    "training": RunColumn(lambda run: Entry(str(run.setting))),
    "protocol": _text("protocol", "choice"),
    "parameters": _number("parameters", 0),
    "s / epoch": _number("seconds", 1),
    "hours": _number("hours", 2),
    "MB device": _number("memory", 0),
    "MB host": _number("host", 0),
    "device": _text("device"),
    "started": RunColumn(lambda run: Entry(run.started.replace("T", " ")[:16])),
    "commit": RunColumn(lambda run: Entry(_short(run.commit))),
}


def _short(commits: str | None) -> str:
    """The commits of a run, each by its first ten digits."""
    return ", ".join(commit[:10] for commit in (commits or "").split(", "))


def environments(runs: pd.DataFrame) -> list[Table]:
    """On which devices, with which versions and which code the runs were made."""
    runs = runs.assign(commit=runs.commit.map(_short)).sort_values("started", kind="stable")
    counted = ["runs", *STATES, "time", "first", "last"]
    return [
        _grouped("Devices", {"device": "device", "cores": "cores"}, runs, counted),
        _grouped("Versions", {"Python": "python", **{name: name for name in LIBRARIES}}, runs, ["runs"]),
        _grouped("Code", {"commit": "commit", "tree": "tree"}, runs, counted),
    ]


def _grouped(title: str, columns: dict[str, str], runs: pd.DataFrame, counted: list[str]) -> Table:
    """A line for all runs that are equal in these columns, in the order of the first of them."""
    rows = []
    for own, group in runs.fillna(dict.fromkeys(columns.values(), "")).groupby([*columns.values()], sort=False):
        states = group.state.value_counts()
        numbers = {"runs": len(group), **{state: states.get(state, 0) for state in STATES}}
        texts = {name: f"{number:,}" if number else "" for name, number in numbers.items()}
        texts |= {
            "time": hours(group.hours.sum()),
            "first": group.started.iloc[0][:10],
            "last": group.started.iloc[-1][:10],
        }
        rows.append([*map(str, own), *(texts[name] for name in counted)])
    return Table(title, [*columns, *counted], "l" * len(columns) + "r" * len(counted), rows)

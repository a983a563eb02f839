"""On which machines, with which versions and which code the runs were made."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from capsexp.report.runs import STATES, state
from capsexp.results.sheets import LEFT, RIGHT, Sheet, hours
from capsexp.results.tables import Line
from capsexp.run.environment import LIBRARIES
from capsexp.run.records import Json, Record

COUNTED = ("runs", *STATES, "time", "first", "last")

Of = Callable[[Json], list[str]]


def sheets_of(records: Sequence[Record], found: pd.DataFrame) -> list[Sheet]:
    """Devices, versions, commits; `found`: the records' runs, in their order."""
    lines: list[Any] = found.to_dict("records")
    pairs = [(record.provenance, line) for record, line in zip(records, lines, strict=True)]
    return [
        _sheet("Devices", ["device", "cores"], _device, pairs, COUNTED),
        _sheet("Versions", ["Python", *LIBRARIES], _versions, pairs, ["runs"]),
        _sheet("Code", ["commit", "tree"], _commit, pairs, COUNTED),
    ]


def _sheet(title: str, names: list[str], of: Of, pairs: Sequence[tuple[Json, Line]], counted: Sequence[str]) -> Sheet:
    """A line for all runs that have the same in these columns, in the order of the first of them."""
    groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    for provenance, line in sorted(pairs, key=lambda pair: str(pair[1]["started"])):
        groups[tuple(of(provenance))].append(line)
    rows = [[*own, *(_counts(lines)[name] for name in counted)] for own, lines in groups.items()]
    return Sheet(title, [*names, *counted], LEFT * len(names) + RIGHT * len(counted), rows, [], [])


def _counts(lines: Sequence[Line]) -> dict[str, str]:
    """Of lines in the order of their beginning."""
    states = Counter(state(line) for line in lines)
    numbers = {"runs": len(lines), **{name: states[name] for name in STATES}}
    return {
        **{name: f"{number:,}" if number else "" for name, number in numbers.items()},
        "time": hours(sum(line["hours"] for line in lines)),
        "first": str(lines[0]["started"])[:10],
        "last": str(lines[-1]["started"])[:10],
    }


def _device(provenance: Json) -> list[str]:
    return [_text(provenance.get(name)) for name in ("device", "cores")]


def _versions(provenance: Json) -> list[str]:
    libraries = provenance.get("libraries") or {}
    return [_text(provenance.get("python")), *(_text(libraries.get(name)) for name in LIBRARIES)]


def _commit(provenance: Json) -> list[str]:
    clean = provenance.get("clean_tree")
    return [_text(provenance.get("commit"))[:10], "" if clean is None else "clean" if clean else "changed"]


def _text(value: object) -> str:
    return "" if value is None else str(value)

"""The launcher in tests: four tiny runs, launched from this process or from one of its own."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from support import ROOT, TINY, begun, folders, numbers

from capsexp.reproduce import planning
from capsexp.reproduce.command import main
from capsexp.run import records
from capsexp.run.execute import is_locked
from capsexp.study import studies
from capsexp.study.selection import PAPER

SCRIPT = ROOT / "scripts" / "reproduce_tables.py"

#: With two seeds, four runs of a second each: two rows of jiao's Table II.
TWO_ROWS = (*(word for word in TINY if word != "budget=demo"), "logger=[]", "routing.iterations=2")


def arguments(folder: Path, *more: str) -> list[str]:
    """The launcher's arguments, for files below `folder`."""
    return ["jiao_table2", "--budget=demo", *TWO_ROWS, *folders(folder), "--seeds=2", "--jobs=2", *more]


def reproduce(folder: Path, *more: str) -> int:
    """Runs the launcher to its end in this process; its runs are processes all the same."""
    return main(arguments(folder, *more))


def start(folder: Path, *more: str, **options: bool) -> "subprocess.Popen[str]":
    """The launcher in a process of its own."""
    return begun(SCRIPT, *arguments(folder, *more), stderr=subprocess.STDOUT, **options)


def planned(folder: Path) -> list[planning.Job]:
    """The launcher's jobs."""
    overrides = [word for word in arguments(folder) if "=" in word and not word.startswith("--")]
    study = studies.load("jiao_table2")
    made = planning.plan_runs(planning.commands_of([study], ["budget=demo", *overrides], PAPER, range(2)))
    assert not made.barred
    return made.jobs


def records_in(folder: Path) -> dict[str, records.Record]:
    """All records by key, read and checked; there must be no other file."""
    paths = list((folder / "results" / "runs").iterdir())
    found = {(record := records.read(path)).key: record for path in paths}
    assert len(found) == len(paths)
    return found


def assert_same(found: dict[str, records.Record], expected: dict[str, records.Record]) -> None:
    """None lost, doubled or changed."""
    assert found.keys() == expected.keys()
    for key, record in found.items():
        assert record.status == "finished"
        assert numbers(record) == numbers(expected[key])
        assert (record.data, record.parameters) == (expected[key].data, expected[key].parameters)


def running(folder: Path) -> list[int]:
    """The processes that train a run."""
    locks = [path for path in (folder / "logs").glob("*/lock") if is_locked(path.parent)]
    return [int(text.split()[0]) for path in locks if (text := path.read_text())]


def wait_until(condition: Callable[[], bool], seconds: float = 600) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

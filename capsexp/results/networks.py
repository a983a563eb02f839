"""The trained network behind a number, by name: of a table's row `huang_table4:DA-CapsNet COIL-20`, or another's."""

import os
import shlex
import sys
from pathlib import Path

from capsexp import Log
from capsexp.cli import print_line
from capsexp.config.checks import unknown_name
from capsexp.config.searchpath import ROOT
from capsexp.errors import InputError, duration
from capsexp.results import runs
from capsexp.results.cells import by_training, rows_of
from capsexp.results.packed import own_or_packed
from capsexp.results.runs import Run
from capsexp.run.keys import key_in
from capsexp.run.restore import checkpoint_in
from capsexp.study import studies
from capsexp.study.selection import LAPTOP, select

WEIGHTS = Path(__file__).parents[1] / "weights"  # trained networks that come with the package
RESULTS, LOGS = Path("results"), Path("logs")  # where nothing else is typed


def of(run: Run, results: Path = RESULTS) -> Path | None:
    """The network that `make networks` kept of a run; None without one."""
    path = results / "networks" / f"{run.name}.ckpt"
    return path if path.exists() else None


def find(name: Path | str, log: Log = lambda line: print_line(line, sys.stderr)) -> Path:
    """A network's file or folder, by its path, by its name in WEIGHTS, by a row, or by a run: by the beginning of its
    key, or by what ends with that, its record and curves.

    Raises InputError for a name of none; of a row with the command that trains it, and how long that took.
    """
    path, text = Path(os.path.expanduser(name)), str(name)  # unchanged where there is no such user
    if checkpoint_in(path) or (path.is_file() and path.suffix != ".json"):
        return path
    if ":" in text and not path.exists():
        return _of_row(text, log)
    if key := key_in(path):
        places = [*(RESULTS / "networks").glob(f"*-{key}*"), *LOGS.glob(f"*/*-{key}*"), *LOGS.glob(f"*-{key}*")]
        there = {one.name.removesuffix(".ckpt"): one for one in places if one.is_file() or checkpoint_in(one)}
        if len(there) == 1:
            return there.popitem()[1]
        what = f"{len(there)} runs in {LOGS} have such a key" if there else f"no checkpoint of this run below {LOGS}"
        raise InputError(f"{path}: {what}; name its folder below paths.logs")
    packaged = {} if path.exists() else {file.stem: file for file in sorted(WEIGHTS.glob("*.ckpt"))}
    if packaged and path.name == text not in packaged:
        raise InputError(f"{path}: no run here, no STUDY:ROW and no network of the package: {', '.join(packaged)}")
    return packaged.get(text, path)


def _of_row(name: str, log: Log) -> Path:
    """The network of a row's first seed that has one, of the source's training before the laptop's."""
    study, row = studies.load(name.partition(":")[0]), name.partition(":")[2]
    if row not in (names := [one.name for one in study.rows if one.run]):
        raise unknown_name(row, f"row of {study.name}", names)
    with own_or_packed(RESULTS if (RESULTS / "runs").is_dir() else ROOT / RESULTS) as results:
        trained_runs, blocks = by_training(runs.read(results)[0]), select(study).blocks
        rows = [one for block in blocks for one in rows_of(study, block, trained_runs) if one.row.name == row]
        for block, run in ((one.block, run) for one in rows for run in one.runs):
            if path := of(run, results) or checkpoint_in(LOGS / run.name):
                if block.name == LAPTOP:
                    log(f"{name}: so far, of a shorter training than the source's: {run.trained}")
                return path
    trained = next((one for one in rows if one.runs), rows[0])
    took = "".join(f", in {duration(3600 * run.hours)} on {run.device}" for run in trained.runs[:1])
    words = shlex.join(["capsexp", *trained.block.runs[row][0].overrides, "seed=0"])
    raise InputError(f"{name}: no network of it here; `{words}` trains it{took}")

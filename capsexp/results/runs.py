"""Records as one data frame, a line a run: what was trained, where, and each measure of the result."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import pandas as pd

from capsexp.config.checks import NAME
from capsexp.errors import CapsexpError, InputError, first_line, printable
from capsexp.files import write_file
from capsexp.results.statistics import ZERO
from capsexp.run import records
from capsexp.run.environment import LIBRARIES
from capsexp.run.records import REMEDY, Json, Record
from capsexp.study import studies
from capsexp.study.setting import Setting, has_official_test_set, tested_images

#: Measures that depend on the machine: never averaged over two devices.
COSTS = ("seconds", "memory", "host", "inference")
#: Measures of a finished run; of protocol heldout only `accuracy`, of the one test.
MEASURES = ("accuracy", "last", "first_epoch", "within", "first_five", *COSTS)

BATCH = 128  # images, of the inference time
NEAR = 0.1  # points below the maximum

Run = Any  # a line of the frame, as `itertuples` gives it

ATTENTION = {"cbam": "CBAM", "conv": "Conv", "caps": "Caps"}

COLUMNS = [
    *("name", "key", "condition", "setting", "protocol", "seed", "state", "error", "learned", "selected_by", "curve"),
    "curves",
    *("part", "dataset", "images", "official", "censored", "correct", "load", "threads"),
    *("data", "network", "routing", "iterations", "attention", "parameters", *MEASURES),
    *("hours", "started", "command", "device", "cores", "python", *LIBRARIES, "commit", "tree"),
]


def read(results: Path) -> tuple[pd.DataFrame, list[str]]:
    """The runs of all records in `results`/runs, and a line for each file there that can't be used.

    Raises InputError where there is no folder `results`.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder; the records are in results/runs")
    found, problems = [], []
    for path in sorted((results / "runs").glob("*.json")):
        try:
            found.append((path, line_of(path)))
        except InputError as error:
            problems.append(printable(str(error)))
    return frame([*(line for _, line in found), *_beginnings(found)]), problems


def _beginnings(found: Sequence[tuple[Path, Json]]) -> Iterator[Json]:
    """The first epochs of whole trainings, as runs of so many epochs, where a network was trained so with several seeds
    and these are missing: what a schedule or a loss does in them must not depend on the run's length.

    The records are read again: few are needed, and all of them would fill the memory.
    """
    there = {(line["condition"], line["setting"], line["seed"]) for _, line in found}
    seeds = Counter((line["dataset"], line["condition"], line["setting"]) for _, line in found)
    settings = {(dataset, setting) for (dataset, _, setting), count in seeds.items() if count > 1 and setting.epochs}
    for path, line in found:
        if line["state"] != "finished" or line["protocol"] != "paper" or line["setting"].epochs:
            continue
        wanted = [
            setting.epochs[0]
            for dataset, setting in settings
            if dataset == line["dataset"]
            and replace(line["setting"], epochs=setting.epochs) == setting
            and setting.epochs[0] < len(line["curve"])
            and (line["condition"], setting, line["seed"]) not in there
        ]
        record = records.read(path) if wanted else None
        if record is not None and not _depends_on_length(record):
            yield from (_first(record, epochs) for epochs in wanted)


def _depends_on_length(record: Record) -> bool:
    """Whether the first epochs of a longer training are others than those of a shorter one."""
    loss, schedule = record.identity["loss"], record.identity["optim"].get("schedule")
    return schedule == "steps" or (loss[NAME] == "spread" and loss.get("steps", 0) is None)


def _first(record: Record, epochs: int) -> Json:
    """The line of a record's first epochs."""
    kept = record.epochs[:epochs]
    maximum, first, last, seconds = records.summary(kept, "test")
    identity = record.identity | {"budget": record.identity["budget"] | {"epochs": epochs}}
    part = replace(record, identity=identity, epochs=kept, correct=None, seconds_per_epoch=seconds)
    part = replace(part, max_accuracy=maximum, first_epoch_to_max=first, last_accuracy=last)
    name = f"first {epochs} epochs of {record.key}"
    return line(part) | {"name": name, "key": name, "part": True}


def take_in(folder: Path, results: Path) -> tuple[list[Path], list[Path], list[str]]:
    """Copies the records of finished runs in `folder`, or in its runs/, to `results`/runs.

    Gives the new files, those that are there and stay (of finished runs), and a line for each file that is refused: no
    record, under another run's name, or of a failed run. Raises InputError where there is no `folder`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    taken, kept, refused = [], [], []
    for path in sorted([*folder.glob("*.json"), *folder.glob("runs/*.json")]):
        target = results / "runs" / path.name
        try:
            if (found := line_of(path))["selected_by"] is None:
                raise InputError(f"{path}: of a failed run ({found['error']})")
            if _is_finished(target):
                kept.append(target)
                continue
            write_file(target, path.read_bytes())
            taken.append(target)
        except InputError as error:
            refused.append(printable(str(error)))
    return taken, kept, refused


def _is_finished(path: Path) -> bool:
    """Whether it is the record of a finished run; not if it is damaged."""
    with suppress(InputError):
        return records.read(path).status == "finished"
    return False


def line_of(path: Path) -> Json:
    """The run of a record's file; raises InputError."""
    try:
        found = line(records.read(path))
    except CapsexpError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a record ({type(error).__name__}: {first_line(error)}){REMEDY}") from None
    if path.stem != found["name"]:
        raise InputError(f"{path}: is the record of {found['name']}; rename or remove it")
    return found


def frame(lines: Sequence[Json]) -> pd.DataFrame:
    """The frame of these lines."""
    return pd.DataFrame(lines, columns=COLUMNS, dtype=object)


def line(record: Record) -> Json:
    """One run; a measure that it doesn't have is missing or None. Raises LookupError, TypeError for a bad record.

    `state` is finished, failed or trial (a few steps); `learned`: records.has_learned; `selected_by` is the accuracy by
    which the best of several runs is selected; `curve` is the test accuracy after each epoch; `part`: the
    first epochs of a longer run; `dataset` is a digest of
    the data set and its split; `images` are the test images, `official` if everybody has the same; `censored`: the
    maximum is in the last epoch, so that `first_epoch` and `within` are lower bounds.
    """
    identity, provenance, finished = record.identity, record.provenance, record.status == "finished"
    paper = identity["protocol"] == "paper"
    evaluated = [epoch["test_accuracy" if paper else "heldout_accuracy"] for epoch in record.epochs]
    found = {
        **{name: (provenance.get("libraries") or {}).get(name) for name in LIBRARIES},
        "name": records.run_name(identity),
        "key": record.key,
        "condition": studies.condition_of(identity),
        "setting": Setting.of(identity),
        "protocol": identity["protocol"],
        "seed": identity["seed"],
        "state": "trial" if identity["budget"]["steps"] is not None else record.status,
        "error": record.error,
        "learned": record.learned,
        "selected_by": max(evaluated) if finished else None,
        "curve": evaluated if paper else [],
        "curves": _curves(record) if finished else {},
        "part": False,
        "dataset": records.key_of({name: part for name, part in identity["data"].items() if name != "note"}),
        "images": _tested(record),
        "official": has_official_test_set(identity) and record.config["data"].get("official", True),
        "censored": finished and record.first_epoch_to_max == len(record.epochs),
        "correct": record.correct,
        "load": provenance.get("load"),
        "threads": provenance.get("threads"),
        "data": identity["data"][NAME],
        "network": identity["model"][NAME],
        "routing": identity["routing"][NAME],
        "iterations": record.config["routing"].get("iterations"),
        "attention": " + ".join(ATTENTION[key] for key in ATTENTION if record.config["attention"].get(key)) or "none",
        "parameters": record.parameters,
        "hours": sum(_seconds(epoch) for epoch in record.epochs) / 3600,
        **{name: provenance[name] for name in ("started", "command", "device")},
        **{name: provenance.get(name) for name in ("cores", "python")},
        "commit": ", ".join(dict.fromkeys(filter(None, provenance.get("commits") or [provenance.get("commit")])))
        or None,
        "tree": {None: "", True: "clean", False: "changed"}[provenance.get("clean_tree")],
    }
    if finished:
        found |= _paper_measures(record, evaluated) if paper else {"accuracy": record.heldout_accuracy}
    return found


def _curves(record: Record) -> dict[str, "array[float]"]:
    """Accuracy and loss after each epoch, of training and test images, or those held out; NaN where there is none."""
    found = {}
    for epoch in record.epochs[:1]:
        for name in epoch:
            part, _, quantity = name.rpartition("_")
            if quantity in ("accuracy", "loss"):
                values = (one[name] for one in record.epochs)
                key = f"{'train' if part == 'train' else 'test'} {quantity}"
                found[key] = array("d", [math.nan if value is None else value for value in values])
    return found


def _tested(record: Record) -> int | None:
    """The number of test images; of older records as far as known."""
    return record.data.get("test_images") or tested_images(record.identity)


def _seconds(epoch: Json) -> float:
    return sum(value for name, value in epoch.items() if name.endswith("_seconds"))


def _paper_measures(record: Record, accuracies: list[float]) -> Json:
    images = _tested(record)
    seconds = median(epoch["test_seconds"] for epoch in record.epochs)
    return {
        "accuracy": record.max_accuracy,
        "last": record.last_accuracy,
        "first_epoch": record.first_epoch_to_max,
        "within": next(i for i, a in enumerate(accuracies, 1) if a >= max(accuracies) - NEAR - ZERO),
        "first_five": mean(accuracies[:5]) if len(accuracies) >= 5 else None,
        "seconds": record.seconds_per_epoch,
        "memory": record.peak_memory_mb["device"],
        "host": record.peak_memory_mb["host"],
        "inference": images and 1000 * seconds * BATCH / images,
    }

"""Records as runs: what was trained, where, and each measure of the result."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Literal

from capsexp.config.checks import NAME
from capsexp.errors import CapsexpError, InputError, first_line, printable
from capsexp.files import write_file
from capsexp.results.statistics import ZERO
from capsexp.run import records
from capsexp.run.records import REMEDY, Json, Record
from capsexp.study import studies
from capsexp.study.setting import Setting, depends_on_length, has_official_test_set, tested_images

#: Measures that depend on the machine: never averaged over two devices; times are also of its threads and other work.
TIMES = ("seconds", "inference")
COSTS = ("seconds", "memory", "host", "inference")
#: Measures of a finished run; of protocol heldout only `accuracy`, of the one test.
MEASURES = ("accuracy", "last", "first_epoch", "within", "first_five", *COSTS)

BATCH = 128  # images, of the inference time
NEAR = 0.1  # points below the maximum

State = Literal["finished", "failed", "trial"]  # trial: a few steps

ATTENTION = {"cbam": "CBAM", "conv": "Conv", "caps": "Caps"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """What a record tells of its run: what was trained, where, and each measure of the result."""

    name: str
    key: str
    condition: str  # what was trained: studies.condition_of
    setting: Setting
    protocol: str
    seed: int
    state: State
    error: str | None = None
    learned: bool | None = None  # records.has_learned
    measures: Mapping[str, float]  # of MEASURES, those that it has
    selected_by: float | None  # the accuracy by which the best of several runs is selected; None if it failed
    censored: bool = False  # the maximum is in the last epoch, so that `first_epoch` and `within` are lower bounds
    curve: Sequence[float] = ()  # the test accuracy in percent after each epoch
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)  # see `_curves`
    correct: Json | None = None  # a bit per test image, records.packed, where others would test on other images
    dataset: str  # a digest of the data set and its split
    images: int | None = None  # the test images
    official: bool  # everybody tests on the same images
    data: str = ""
    network: str = ""
    routing: str = ""
    iterations: int | None = None
    attention: str = "none"
    parameters: int | None = None
    hours: float = 0.0
    started: str = ""
    device: str
    cores: int | None = None
    load: float | None = None  # of the machine, at its start
    threads: int | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)  # of Python and LIBRARIES
    commit: str | None = None
    tree: str = ""  # clean, changed or not known
    part: bool = False  # the first epochs of a longer run

    @property
    def busy(self) -> bool | None:
        """Whether the machine had other work: its load average was above the run's own threads. None: not known."""
        return None if self.load is None or self.threads is None else self.load > self.threads + 0.5

    def machine(self, measure: str) -> str | None:
        """What the values of a measure must have in common to be compared: of memory the device, of times its cores
        and the threads too, of others nothing; None for a time that isn't known to be one on a quiet machine.
        """
        if measure in TIMES:
            return f"{self.device}, cores={self.cores}, threads={self.threads}" if self.busy is False else None
        return self.device if measure in COSTS else ""


def read(results: Path) -> tuple[list[Run], list[str]]:
    """The runs of all records in `results`/runs, and a line for each file there that can't be used.

    Raises InputError where there is no folder `results`.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder; the records are in results/runs")
    runs, problems = dict[Path, Run](), list[str]()
    for path in sorted((results / "runs").glob("*.json")):
        try:
            runs[path] = read_run(path)
        except InputError as error:
            problems.append(printable(str(error)))
    return [*runs.values(), *_beginnings(runs)], problems


def _beginnings(runs: Mapping[Path, Run]) -> Iterator[Run]:
    """The first epochs of whole trainings, as runs of so many epochs, where a network was trained so with several seeds
    and these are missing: what a schedule or a loss does in them must not depend on the run's length.

    The records are read again: few are needed, and all of them would fill the memory.
    """
    complete = [run for run in runs.values() if run.state == "finished" and run.protocol == "paper"]
    there = {(run.condition, run.setting, run.seed) for run in complete}
    seeds = Counter((run.dataset, run.condition, run.setting) for run in distinct(complete))
    settings = {(dataset, setting) for (dataset, _, setting), count in seeds.items() if count > 1}
    for path, run in runs.items():
        if run.state != "finished" or run.protocol != "paper" or run.setting.epochs:
            continue
        wanted = [
            setting.epochs[0]
            for dataset, setting in settings
            if setting.epochs
            and dataset == run.dataset
            and replace(run.setting, epochs=setting.epochs) == setting
            and setting.epochs[0] < len(run.curve)
            and (run.condition, setting, run.seed) not in there
        ]
        if wanted and not depends_on_length((record := records.read(path)).identity):
            yield from (_first(record, epochs) for epochs in wanted)


def _first(record: Record, epochs: int) -> Run:
    """A record's first epochs as a run."""
    kept = record.epochs[:epochs]
    identity = record.identity | {"budget": record.identity["budget"] | {"epochs": epochs}}
    part = replace(record, identity=identity, epochs=kept, correct=None)
    name = f"first {epochs} epochs of {record.key}"
    return replace(run_of(part), name=name, key=name, part=True)


def distinct(runs: Iterable[Run]) -> list[Run]:
    """The finished ones, each training once: of the same under another name of its budget, the one started first."""
    first: dict[tuple[str, Setting, str, int], Run] = {}
    for run in sorted(runs, key=lambda run: (run.started, run.key)):
        if run.state == "finished":
            first.setdefault((run.condition, run.setting, run.protocol, run.seed), run)
    return [*first.values()]


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
            if (run := read_run(path)).selected_by is None:
                raise InputError(f"{path}: of a failed run ({run.error})")
            if records.is_finished(target):
                kept.append(target)
                continue
            write_file(target, path.read_bytes())
            taken.append(target)
        except InputError as error:
            refused.append(printable(str(error)))
    return taken, kept, refused


def read_run(path: Path) -> Run:
    """The run of a record's file; raises InputError."""
    try:
        run = run_of(records.read(path))
    except CapsexpError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a record ({type(error).__name__}: {first_line(error)}){REMEDY}") from None
    if path.stem != run.name:
        raise InputError(f"{path}: is the record of {run.name}; rename or remove it")
    return run


def run_of(record: Record) -> Run:
    """The run of a record; raises LookupError, TypeError for a bad one."""
    identity, provenance, finished = record.identity, record.provenance, record.status == "finished"
    paper = identity["protocol"] == "paper"
    columns = {name: [epoch[name] for epoch in record.epochs] for name in (record.epochs or [{}])[0]}
    evaluated = columns.get("test_accuracy" if paper else "heldout_accuracy", [])
    images = record.data.get("test_images") or tested_images(identity)  # of older records as far as known
    official = has_official_test_set(identity) and record.config["data"].get("official", True)
    curves, measures = _curves(columns), Json()
    if finished:
        measures = _paper_measures(record, columns, images) if paper else {"accuracy": record.heldout_accuracy}
    commits = filter(None, provenance.get("commits") or [provenance.get("commit")])
    return Run(
        name=records.name_of(identity),
        key=record.key,
        condition=studies.condition_of(identity),
        setting=Setting.of(identity),
        protocol=identity["protocol"],
        seed=identity["seed"],
        state="trial" if identity["budget"]["steps"] is not None else record.status,
        error=record.error,
        learned=record.learned,
        measures={name: value for name, value in measures.items() if value is not None},
        selected_by=max(evaluated) if finished else None,
        censored=finished and record.first_epoch_to_max == len(record.epochs),
        curve=curves.get("test accuracy", ()) if paper else (),
        curves=curves if finished else {},
        correct=None if official else record.correct,
        dataset=records.key_of({name: part for name, part in identity["data"].items() if name != "note"}),
        images=images,
        official=official,
        data=identity["data"][NAME],
        network=identity["model"][NAME],
        routing=identity["routing"][NAME],
        iterations=record.config["routing"].get("iterations"),
        attention=" + ".join(ATTENTION[key] for key in ATTENTION if record.config["attention"].get(key)) or "none",
        parameters=record.parameters,
        hours=sum(sum(values) for name, values in columns.items() if name.endswith("_seconds")) / 3600,
        started=provenance["started"],
        device=provenance["device"],
        cores=provenance.get("cores"),
        load=provenance.get("load"),
        threads=provenance.get("threads"),
        versions={"python": provenance.get("python"), **(provenance.get("libraries") or {})},
        commit=", ".join(dict.fromkeys(commits)) or None,
        tree={None: "", True: "clean", False: "changed"}[provenance.get("clean_tree")],
    )


def _curves(columns: Mapping[str, Sequence[float | None]]) -> dict[str, "array[float]"]:
    """Accuracy and loss after each epoch, of training and test images, or those held out; NaN where there is none."""
    return {
        f"{'train' if name.startswith('train') else 'test'} {quantity}": array(
            "d", [math.nan if value is None else value for value in values]
        )
        for name, values in columns.items()
        if (quantity := name.rpartition("_")[2]) in ("accuracy", "loss")
    }


def _paper_measures(record: Record, columns: Mapping[str, list[float]], images: int | None) -> Json:
    accuracies, maximum = columns["test_accuracy"], record.max_accuracy or 0.0
    return {
        "accuracy": record.max_accuracy,
        "last": record.last_accuracy,
        "first_epoch": record.first_epoch_to_max,
        "within": next(i for i, accuracy in enumerate(accuracies, 1) if accuracy >= maximum - NEAR - ZERO),
        "first_five": mean(accuracies[:5]) if len(accuracies) >= 5 else None,
        "seconds": record.seconds_per_epoch,
        "memory": record.peak_memory_mb["device"],
        "host": record.peak_memory_mb["host"],
        "inference": images and 1000 * median(columns["test_seconds"]) * BATCH / images,
    }

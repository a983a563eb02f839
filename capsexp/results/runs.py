"""Records as runs: what was trained, where, and each measure of the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from capsexp.config.checks import NAME
from capsexp.config.searchpath import ROOT
from capsexp.errors import CapsexpError, InputError, first_line, printable
from capsexp.results.measures import MEASURES
from capsexp.results.packed import own_or_packed
from capsexp.run import keys, records
from capsexp.run.keys import Json
from capsexp.run.records import RUN_AGAIN, Record, Status
from capsexp.study.identity import Trained, describe

BATCH = 128  # images, of the inference time

ATTENTION = {"cbam": "CBAM", "conv": "Conv", "caps": "Caps"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """What a record tells of its run: what was trained, where, and each measure of the result."""

    name: str
    key: str
    trained: Trained
    amount: str = ""  # of the training: study.identity.Description
    command: Sequence[str] = ()  # the words that repeat it
    protocol: str
    seed: int
    status: Status
    learned: bool | None = None  # records.has_learned
    measures: Mapping[str, float]  # those that it has; of protocol heldout `accuracy` only, of the one test
    selected_by: float | None  # the accuracy by which the best of several runs is selected; None if it failed
    censored: bool = False  # the maximum is in the last epoch, so that `first_epoch` is a lower bound
    curve: Sequence[float] = ()  # the test accuracy in percent after each epoch
    correct: Json | None = None  # a bit per test image, records.packed, where others would test on other images
    dataset: str  # a digest of the data set and its split
    images: int | None = None  # the test images
    leak: str = ""  # Record.leak
    trained_images: int | None = None  # the training images of an epoch
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
    load: float | None = None  # of the machine, at its end
    threads: int | None = None

    @property
    def late_gain(self) -> float:
        """By how many points the best test accuracy rose in the last fifth of the epochs, at least in the last one."""
        before = self.curve[: len(self.curve) - max(1, round(len(self.curve) / 5))]
        return max(self.curve) - max(before) if before else 0.0

    @property
    def words(self) -> str:
        """capsnet mnist, dynamic 3, CBAM."""
        routing = f", {self.routing} {self.iterations}" if self.iterations is not None else ""
        return f"{self.network} {self.data}{routing}" + (f", {self.attention}" if self.attention != "none" else "")

    @property
    def busy(self) -> bool | None:
        """Whether the machine had other work: its load average was above the run's own threads. None: not known."""
        return None if self.load is None or self.threads is None else self.load > self.threads + 0.5

    def machine(self, measure: str) -> str | None:
        """What the values of a measure must have in common to be compared: of memory the device, of times its cores
        and the threads too, of others nothing; None for a time that isn't known to be one on a quiet machine.
        """
        shared = MEASURES[measure].machine
        if shared == "quiet device":
            return f"{self.device}, cores={self.cores}, threads={self.threads}" if self.busy is False else None
        return self.device if shared else ""


def read(results: Path) -> tuple[list[Run], list[str]]:
    """The runs of all records in `results`/runs, and a line for each file there that can't be used.

    Raises InputError where there is no folder `results`.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder; the records are in results/runs")
    runs, problems = list[Run](), list[str]()
    for path in sorted((results / "runs").glob("*.json")):
        try:
            runs.append(read_run(path))
        except InputError as error:
            problems.append(printable(str(error)))
    return runs, problems


def with_project(own: Sequence[Run]) -> list[Run]:
    """These runs, then the project's that are not among them: a clone's, or those that came with the package."""
    with own_or_packed(ROOT / "results") as results:
        known = {run.key for run in own}
        others = read(results)[0] if results.is_dir() else ()
        return [*own, *(run for run in others if run.key not in known)]


def read_run(path: Path) -> Run:
    """The run of a record's file; raises InputError."""
    try:
        return run_of(records.read(path))
    except CapsexpError as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a record ({type(error).__name__}: {first_line(error)}){RUN_AGAIN}") from None


def run_of(record: Record) -> Run:
    """The run of a record; raises LookupError, TypeError for a bad one."""
    identity, provenance, finished = record.identity, record.provenance, record.status == "finished"
    paper = identity["protocol"] == "paper"
    columns = {name: [epoch[name] for epoch in record.epochs] for name in (record.epochs or [{}])[0]}
    evaluated = columns.get("test_accuracy" if paper else "heldout_accuracy", [])
    description = describe(identity)
    images = record.data.get("test_images") or description.test_images  # of older records as far as known
    official = description.official and record.config["data"].get("official", True)
    measures = Json()
    if finished:
        measures = _paper_measures(record, columns, images) if paper else {"accuracy": record.heldout_accuracy}
    return Run(
        name=keys.name_of(identity),
        key=record.key,
        trained=description.trained,
        amount=description.amount,
        command=(provenance.get("command") or "").split(),
        protocol=identity["protocol"],
        seed=identity["seed"],
        status=record.status,
        learned=record.learned,
        measures={name: value for name, value in measures.items() if value is not None},
        selected_by=max(evaluated) if finished else None,
        censored=finished and record.first_epoch_to_max == len(record.epochs),
        curve=columns.get("test_accuracy", ()) if paper else (),
        correct=None if official else record.correct,
        dataset=keys.key_of({name: part for name, part in identity["data"].items() if name != "note"}),
        images=images,
        leak=record.leak,
        trained_images=description.train_images,
        official=official,
        data=identity["data"][NAME],
        network=identity["model"][NAME],
        routing=identity["routing"][NAME],
        iterations=record.config["routing"].get("iterations"),
        attention=_attention(record.config["attention"]),
        parameters=record.parameters,
        hours=sum(sum(values) for name, values in columns.items() if name.endswith("_seconds")) / 3600,
        started=provenance["started"],
        device=provenance["device"],
        cores=provenance.get("cores"),
        load=provenance.get("load"),
        threads=provenance.get("threads"),
    )


def _attention(chosen: Json) -> str:
    first = [chosen["first"][NAME]] if chosen.get("first") else []
    return " + ".join([*first, *(ATTENTION[key] for key in ATTENTION if chosen.get(key))]) or "none"


def _paper_measures(record: Record, columns: Mapping[str, list[float]], images: int | None) -> Json:
    accuracies = columns["test_accuracy"]
    return {
        "accuracy": record.max_accuracy,
        "last": record.last_accuracy,
        "first_epoch": record.first_epoch_to_max,
        "first_five": mean(accuracies[:5]) if len(accuracies) >= 5 else None,
        "reconstruction": columns.get("test_reconstruction", [None])[-1],
        "seconds": record.seconds_per_epoch,
        "memory": record.peak_memory_mb["device"],
        "host": record.peak_memory_mb["host"],
        "inference": images and 1000 * median(columns["test_seconds"]) * BATCH / images,
    }

"""Records and studies as data frames: what was measured for each row of a published table.

    runs   a line a record                                what one run gave
    found  a line a row of the study and record of it     matched by what was trained, see studies.condition
    best   a line a row, setting, protocol and seed       the best of the row's jobs, where it has several
    cells  a line a row and setting                       statistics over the seeds, and the verdicts

Numbers of two settings or two protocols never meet in one cell.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import pandas as pd

from capsexp.results import statistics
from capsexp.run.records import Json, Record
from capsexp.study import studies
from capsexp.study.selection import RowRun, select
from capsexp.study.setting import Setting, tested_images
from capsexp.study.studies import Row, Study

#: Of a run under protocol paper, and beside the parameters.
MEASURES = ("accuracy", "last", "first_epoch", "within", "first_five", "seconds", "memory", "host", "inference")
#: Published numbers of these get a verdict.
JUDGED = ("accuracy", "first_epoch", "first_five")
#: They depend on the machine: never over two devices, and a paper's machine was another.
COSTS = ("seconds", "memory", "host", "inference")
BATCH = 128  # images, of the time for inference
NEAR = 0.1  # points below the maximum

Line = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A study as it was measured."""

    study: Study
    typed: Sequence[str]  # what replaces the rows' own choices
    replaced: bool  # whether that makes it another experiment than the paper's
    found: pd.DataFrame
    best: pd.DataFrame
    cells: pd.DataFrame


def make(study: Study, runs: pd.DataFrame, typed: Sequence[str] = ()) -> Table:
    """The table of a study out of the runs that belong to it; raises InputError for what can't be typed."""
    selection = select(study, typed)
    study, jobs, replaced = selection.study, selection.runs, selection.replaces()
    found = _found(jobs, runs)
    best = _best(found)
    return Table(study, typed, replaced, found, best, _cells(study, jobs, found, best, replaced))


def runs(found: Iterable[Record]) -> pd.DataFrame:
    """A line a record."""
    return pd.DataFrame([measured(record) for record in found], columns=COLUMNS)


def measured(record: Record) -> Line:
    """What one run gave, None where it gave no such number; raises KeyError and TypeError for a misshapen record."""
    identity, provenance = record.identity, record.provenance
    paper, finished = identity["protocol"] == "paper", record.status == "finished"
    evaluated = [epoch["test_accuracy" if paper else "heldout_accuracy"] for epoch in record.epochs]
    judged = max(evaluated) if finished else None
    line = {
        "key": record.key,
        "condition": studies.condition_of(identity),
        "setting": Setting.of(identity),
        "protocol": identity["protocol"],
        "seed": identity["seed"],
        "finished": finished,
        "trial": identity["budget"]["steps"] is not None,
        "judged": judged,  # what a row with several jobs chooses by
        "heldout": record.heldout_accuracy if finished else None,
        "parameters": record.parameters,
        "hours": sum(_seconds(epoch) for epoch in record.epochs) / 3600,
        "device": provenance["device"],
        "started": provenance["started"],
        "command": provenance["command"],
    }
    return line | (_paper_measures(record, evaluated) if paper and finished else {})


def _paper_measures(record: Record, accuracies: list[float]) -> Line:
    images = tested_images(record.identity)
    seconds = median(epoch["test_seconds"] for epoch in record.epochs)
    return {
        "accuracy": record.max_accuracy,
        "last": record.last_accuracy,
        "first_epoch": record.first_epoch_to_max,
        "within": next(i for i, a in enumerate(accuracies, 1) if a >= max(accuracies) - NEAR - statistics.ZERO),
        "first_five": mean(accuracies[:5]) if len(accuracies) >= 5 else None,
        "seconds": record.seconds_per_epoch,
        "memory": record.peak_memory_mb["device"],
        "host": record.peak_memory_mb["host"],
        "inference": images and 1000 * seconds * BATCH / images,
    }


def _seconds(epoch: Json) -> float:
    return sum(value for name, value in epoch.items() if name.endswith("_seconds"))


COLUMNS = [
    *("key", "condition", "setting", "protocol", "seed", "finished", "trial", "judged", "heldout", "parameters"),
    *("hours", "device", "started", "command"),
    *MEASURES,
]


def _found(jobs: list[RowRun], runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of each row. `counts`: not the same training as another, under another name of its budget."""
    wanted = pd.DataFrame([(job.row, job.number, job.condition) for job in jobs], columns=["row", "job", "condition"])
    found = wanted.merge(runs[~runs.trial.astype(bool)], on="condition")
    asked = {(job.row, job.number): job for job in jobs}
    places = zip(found.row, found.job, found.setting, strict=True)
    found = found[pd.Series([asked[row, job].admits(setting) for row, job, setting in places], dtype=bool)]
    # Which of two is taken must not depend on its numbers: a finished one, then the first.
    found = found.sort_values(["row", "job", "finished", "started", "key"], ascending=[True, True, False, True, True])
    found["counts"] = ~found.duplicated(["row", "job", "setting", "protocol", "seed"])
    return found.reset_index(drop=True)


def _best(found: pd.DataFrame) -> pd.DataFrame:
    """For each seed the best of a row's jobs, and of how many; of equals the first."""
    cell = ["row", "setting", "protocol", "seed"]
    best = found[found.counts & found.finished.astype(bool)].copy()
    best["jobs"] = best.groupby(cell, sort=False)["job"].transform("size")
    best = best.sort_values(["row", "judged", "job"], ascending=[True, False, True], kind="stable")
    return best.drop_duplicates(cell).sort_values(["row", "seed"], kind="stable").reset_index(drop=True)


def _cells(study: Study, jobs: list[RowRun], found: pd.DataFrame, best: pd.DataFrame, replaced: bool) -> pd.DataFrame:
    """A line a row and setting, the row's main one first; a row without runs has one line without numbers."""
    counted, lines = found[found.counts], []
    shared = Counter(best[best.protocol == "paper"].drop_duplicates(["row", "setting"]).setting)
    for index, row in enumerate(study.rows):
        of_row, number = counted[counted.row == index], sum(job.row == index for job in jobs)
        settings = list(dict.fromkeys(of_row.setting)) or [None]
        several = [
            _cell(study, row, setting, _in(of_row, setting), _in(best[best.row == index], setting), number, replaced)
            for setting in settings
        ]
        several.sort(key=lambda line: _rank(line, shared), reverse=True)
        lines += [line | {"row": index, "main": line is several[0]} for line in several]
    return pd.DataFrame(lines, dtype=object)


def _in(runs: pd.DataFrame, setting: Setting | None) -> pd.DataFrame:
    return runs[runs.setting == setting]


def _rank(line: Line, shared: Mapping[Setting, int]) -> tuple[Any, ...]:
    """Which setting stands in the main table: the paper's training first, then that of most rows, which can then be
    compared, then the most of the paper's training, then most seeds. `shared`: the rows that have runs at a setting."""
    setting: Setting | None = line["setting"]
    if setting is None:
        return ()
    runs, seeds = line["paper_runs"], line["paper_seeds"]
    most = shared.get(setting, 0), setting.share, len(seeds)
    return runs > 0, setting.whole, bool(seeds), *most, setting.precision == "bf16", str(setting)


def _cell(
    study: Study,
    row: Row,
    setting: Setting | None,
    counted: pd.DataFrame,
    best: pd.DataFrame,
    jobs: int,
    replaced: bool,
) -> Line:
    line: Line = {"name": row.name, "labels": row.labels, "setting": setting, "jobs": jobs}
    line["swept"] = row.swept if jobs > 1 else ""
    for protocol in ("paper", "heldout"):
        all_of, best_of = counted[counted.protocol == protocol], best[best.protocol == protocol]
        line |= {
            f"{protocol}_runs": len(all_of),
            f"{protocol}_failed": int((~all_of.finished.astype(bool)).sum()),
            f"{protocol}_seeds": best_of.seed.tolist(),
            f"{protocol}_jobs": (int(best_of.jobs.min()), int(best_of.jobs.max())) if len(best_of) else None,
        }
    paper, heldout = best[best.protocol == "paper"], best[best.protocol == "heldout"]
    whole = setting is not None and setting.whole and not replaced
    comparable = whole and line["paper_jobs"] == (jobs, jobs)
    line["device"] = _usual(paper.device)
    for measure in MEASURES:
        values = paper[paper.device == line["device"]] if measure in COSTS else paper
        line |= _statistics(measure, _numbers(values[measure]))
        if measure in JUDGED:
            line |= _comparison(measure, _numbers(values[measure]), row.published.get(measure), comparable)
    line |= _statistics("heldout", _numbers(heldout.heldout))
    line |= {f"{measure}_published": row.published.get(measure) for measure in ("memory", "inference")}
    line |= _parameters(counted.parameters, row, comparable=setting is not None and setting.width == 1 and not replaced)
    return line | {"keys": sorted(set(counted.key))}


def _usual(devices: "pd.Series[str]") -> str | None:
    """The device of most runs."""
    return max(sorted(set(devices)), key=devices.tolist().count) if len(devices) else None


def _numbers(values: "pd.Series[Any]") -> list[float]:
    return [float(value) for value in values.dropna()]


def _statistics(measure: str, ours: Sequence[float]) -> Line:
    """n, mean, standard deviation, and the bounds for one more run."""
    spread = statistics.describe(ours) if ours else None
    low, high = statistics.prediction_interval(ours) or (None, None)
    middle, deviation = (spread.mean, spread.deviation) if spread else (None, None)
    numbers = {"n": len(ours), "mean": middle, "sd": deviation, "low": low, "high": high}
    return {f"{measure}_{name}": value for name, value in numbers.items()}


def _comparison(measure: str, ours: Sequence[float], printed: str | None, comparable: bool) -> Line:
    """How the published number compares, where there is one."""
    published = None if printed is None else studies.published_number(printed)
    difference = verdict = None
    if published and ours:
        difference = statistics.describe(ours).mean - published.value
        verdict = statistics.verdict(ours, published, comparable)
    return {f"{measure}_published": printed, f"{measure}_difference": difference, f"{measure}_verdict": verdict}


def _parameters(counts: "pd.Series[int]", row: Row, comparable: bool) -> Line:
    """Exact numbers, mostly one; equal when they round to the printed one."""
    ours, printed = sorted(set(counts.tolist())), row.published.get("parameters")
    published = None if printed is None else printed_count(printed)
    verdict = None
    if ours and published and comparable:
        value, half = published
        verdict = (
            "equal" if all(abs(count - value) <= half + statistics.ZERO * value for count in ours) else "different"
        )
    return {"parameters": ours, "parameters_published": printed, "parameters_verdict": verdict}


def printed_count(text: str) -> tuple[float, float] | None:
    """A number of parameters, printed in millions, and half a unit of its last digit."""
    number = studies.published_number(text)
    return None if number is None else (1e6 * number.value, 1e6 * number.resolution)

"""What a sweep has found: a line for each combination of what it varies, with its seeds together."""

from collections.abc import Sequence
from statistics import mean, stdev

from capsexp.results.pages import Table
from capsexp.results.texts import DIGITS, number
from capsexp.run.records import Record

Job = tuple[Sequence[str], Record | None]  # the KEY=VALUE of a run, and its record unless it failed


def table(jobs: Sequence[Job]) -> Table:
    """The accuracies on the test images in percent, and the epochs in which they are reached."""
    typed = [{key: value for key, _, value in (word.partition("=") for word in words)} for words, _ in jobs]
    named = dict.fromkeys(key for one in typed for key in one)
    varied = [key for key in named if len({one.get(key) for one in typed}) > 1]
    keys = [key for key in varied if key != "seed"]
    groups: dict[tuple[str, ...], list[Record | None]] = {}
    for one, (_, record) in zip(typed, jobs, strict=True):
        groups.setdefault(tuple(one.get(key, "") for key in keys), []).append(record)
    paper = all(record.heldout_accuracy is None for _, record in jobs if record)
    columns = [*keys, "maximum test accuracy, %" if paper else "test accuracy, %", "first epoch" if paper else "epoch"]
    rows = [[*values, *_results(records)] for values, records in groups.items()]
    notes = ["Mean ± standard deviation over seeds (number of seeds)."] if "seed" in varied else []
    return Table(f"{len(jobs)} runs", columns, "l" * len(keys) + "rr", rows, notes)


def _results(records: Sequence[Record | None]) -> tuple[str, str]:
    """98.21 ± 0.07 (3), and 4.3 ± 0.6 (3)."""
    finished = [record for record in records if record]
    accuracies = [value for one in finished for value in (one.max_accuracy, one.heldout_accuracy) if value is not None]
    epochs = [one.first_epoch_to_max for one in finished if one.first_epoch_to_max is not None]
    bounds = [one.first_epoch_to_max == len(one.epochs) for one in finished]
    failed = f"failed ({len(records) - len(finished)} of {len(records)})" if len(finished) < len(records) else ""
    unlearned = [one for one in finished if one.learned is False]
    guessed = f"didn't learn ({len(unlearned)} of {len(records)})" if unlearned else ""
    if not finished:
        return failed, ""
    sds = [stdev(values) if len(values) > 1 else None for values in (accuracies, epochs)]
    accuracy = number(mean(accuracies), sds[0], accuracies, DIGITS["accuracy"])
    epoch = number(mean(epochs), sds[1], epochs, DIGITS["first_epoch"] if len(epochs) > 1 else 0, bounds)
    return ", ".join(filter(None, [accuracy, failed, guessed])), epoch

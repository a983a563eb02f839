"""The results of a sweep: a line for each combination of what it varies, with its seeds together."""

from collections.abc import Sequence
from statistics import mean, stdev

from capsexp.config.compose import varied
from capsexp.errors import CapsexpError
from capsexp.results.measures import MEASURES
from capsexp.run.records import Record
from capsexp.tables.table import Table
from capsexp.tables.texts import number, part_of

Returned = Record | CapsexpError  # by a run
Outcome = tuple[Sequence[str], Returned]  # the KEY=VALUE of a run, and what it returned


def table(outcomes: Sequence[Outcome]) -> Table:
    """The accuracies on the test images in percent, and the epochs in which they are reached."""
    columns_of, _ = varied([words for words, _ in outcomes])
    keys = [key for key in columns_of if key != "seed"]
    groups: dict[tuple[str, ...], list[Returned]] = {}
    for at, (_, returned) in enumerate(outcomes):
        groups.setdefault(tuple(columns_of[key][at] for key in keys), []).append(returned)
    paper = all(one.heldout_accuracy is None for _, one in outcomes if isinstance(one, Record))
    columns = [*keys, "maximum test accuracy, %" if paper else "test accuracy, %", "first epoch" if paper else "epoch"]
    rows = [[*values, *_results(returned)] for values, returned in groups.items()]
    notes = ["Mean ± standard deviation over seeds (number of seeds)."] if "seed" in columns_of else []
    return Table(f"{len(outcomes)} runs", columns, "l" * len(keys) + "rr", rows, notes)


def _results(returned: Sequence[Returned]) -> tuple[str, str]:
    """98.21 ± 0.07 (3), and 4.3 ± 0.6 (3)."""
    finished = [one for one in returned if isinstance(one, Record)]
    accuracies = [value for one in finished for value in (one.max_accuracy, one.heldout_accuracy) if value is not None]
    epochs = [one.first_epoch_to_max for one in finished if one.first_epoch_to_max is not None]
    bounds = [one.first_epoch_to_max == len(one.epochs) for one in finished]
    failed = part_of("failed", len(returned) - len(finished), len(returned))
    unlearned = part_of("didn't learn", sum(one.learned is False for one in finished), len(returned))
    if not finished:
        return failed, ""
    sds = [stdev(values) if len(values) > 1 else None for values in (accuracies, epochs)]
    accuracy = f"{number(mean(accuracies), sds[0], accuracies, MEASURES['accuracy'].digits)} ({len(accuracies)})"
    epoch = f"{number(mean(epochs), sds[1], epochs, 1 if len(epochs) > 1 else 0, bounds)} ({len(epochs)})"
    return ", ".join(filter(None, [accuracy, failed, unlearned])), epoch

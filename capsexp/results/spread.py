"""The spread over seeds in each data set and setting, whatever study the runs belong to: runs → pools.

Accuracies are pooled in percent, first epochs as natural logarithms, costs of one machine as they are compared.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import mean

from capsexp.results.runs import Run, distinct
from capsexp.results.statistics import Pool, least_variance, pool
from capsexp.study.setting import Setting

PERCENT = ("accuracy", "last", "first_five")
EPOCHS = ("first_epoch", "within")

#: Digest of data set and split (`Run.dataset`), setting, protocol: networks of one pool spread alike.
PoolKey = tuple[str, Setting, str]


class Pools:
    """The pools of all runs, each calculated once. A network is what was trained; a seed counts once."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: dict[PoolKey, list[Run]] = {}
        for run in distinct(runs):
            self._runs.setdefault((run.dataset, run.setting, run.protocol), []).append(run)
        self._made: dict[tuple[PoolKey, str, str, bool], Pool] = {}

    def pool(self, key: PoolKey, measure: str, machine: str = "", logarithms: bool = False) -> Pool:
        """The pool of a measure, in the unit of `scaled`, without lower bounds of epochs.

        Args:
            machine: of costs; see `Run.machine`.
            logarithms: pools logarithms, of first epochs always.
        """
        asked = key, measure, machine, logarithms
        if asked not in self._made:
            cells: dict[str, list[float]] = {}
            for run in self._runs.get(key, ()):
                bound = measure in EPOCHS and run.censored
                if measure in run.measures and not bound and run.machine(measure) == machine:
                    cells.setdefault(run.condition, []).append(scaled(measure, run.measures[measure], logarithms))
            self._made[asked] = pool(cells, {name: self.least(key, measure, values) for name, values in cells.items()})
        return self._made[asked]

    def least(self, key: PoolKey, measure: str, values: Sequence[float]) -> float:
        """The least variance of scaled values: of accuracies by the test images, of epochs that of rounding to one."""
        images = self._runs[key][0].images if key in self._runs else None
        if measure in PERCENT and images:
            return least_variance(mean(values), images)
        return math.exp(-2 * mean(values)) / 12 if measure in EPOCHS else 0.0


def scaled(measure: str, value: float, logarithm: bool = False) -> float:
    """A value on the scale on which it is compared: the logarithm of an epoch, and of what is compared by ratios."""
    return math.log(value) if logarithm or measure in EPOCHS else value


def unscaled(measure: str, interval: tuple[float, float]) -> tuple[float, float]:
    """An interval in the measure's unit; of accuracies, within 0 to 100 %."""
    if measure in EPOCHS:
        return math.exp(interval[0]), math.exp(interval[1])
    return (max(interval[0], 0.0), min(interval[1], 100.0)) if measure in PERCENT else interval

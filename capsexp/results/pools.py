"""The pools of networks whose spreads over seeds are estimated together, whatever study their runs belong to.

Accuracies are pooled in percent, first epochs as natural logarithms, costs per machine, as logarithms where they are
compared by ratio.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import mean

from capsexp.results.measures import MEASURES
from capsexp.results.runs import Run, distinct
from capsexp.results.statistics import Pool, Spread, least_variance, pool

PoolKey = tuple[str, ...]


def key_of(run: Run) -> PoolKey:
    """Key of a pool: the data set and its split, training, files, precision and protocol."""
    return (run.dataset, *run.trained[1:], run.protocol)


class Pools:
    """The pools of all runs, each calculated once. A network is what was trained; a seed counts once."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: dict[PoolKey, list[Run]] = {}
        for run in distinct(runs):
            self._runs.setdefault(key_of(run), []).append(run)
        self._made: dict[tuple[PoolKey, str, str, bool], Pool] = {}

    def spread(
        self, runs: Sequence[Run], measure: str, values: Sequence[float], machine: str = "", ratio: bool = False
    ) -> Spread | None:
        """The spread of a row's runs, with these values on the scale of `Measure.scaled`; None if nothing is known.

        Args:
            machine: of costs; see `Run.machine`.
            ratio: of logarithms, as those of first epochs always are.
        """
        key, networks = key_of(runs[0]), {run.trained.condition for run in runs}
        return self._pool(key, measure, machine, ratio).spread(values, self._least(key, measure, values), networks)

    def _pool(self, key: PoolKey, measure: str, machine: str, ratio: bool) -> Pool:
        """The pool of a measure, without lower bounds of epochs."""
        asked = key, measure, machine, ratio
        if asked not in self._made:
            values: dict[str, list[float]] = {}
            for run in self._runs.get(key, ()):
                bound = MEASURES[measure].scale == "epochs" and run.censored
                if measure in run.measures and not bound and run.machine(measure) == machine:
                    scaled = MEASURES[measure].scaled(run.measures[measure], ratio)
                    values.setdefault(run.trained.condition, []).append(scaled)
            self._made[asked] = pool(values, {name: self._least(key, measure, own) for name, own in values.items()})
        return self._made[asked]

    def _least(self, key: PoolKey, measure: str, values: Sequence[float]) -> float:
        """The least variance of scaled values: of accuracies by the test images, of epochs that of rounding to one."""
        images = self._runs[key][0].images if key in self._runs else None
        if MEASURES[measure].scale == "percent" and images:
            return least_variance(mean(values), images)
        return math.exp(-2 * mean(values)) / 12 if MEASURES[measure].scale == "epochs" else 0.0

"""The contrast Σ_k w_k y_k that a claim is about, and the runs that it is measured on.

Effects are added on a scale: of `relative`, `factor` and `spread`, and of first epochs, that of logarithms.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean

import numpy as np

from capsexp.errors import plural
from capsexp.results import statistics
from capsexp.results.cells import MeasuredRow
from capsexp.results.measures import MEASURES
from capsexp.results.runs import Run
from capsexp.results.statistics import Estimate, Interval, Pools, Term, slope_weights
from capsexp.run.records import unpacked
from capsexp.study.selection import Block
from capsexp.study.studies import SPREAD_OF_MEANS, Claim

#: A row decides nothing whose best accuracy rose by more than so many points, in its runs' mean, in the last fifth of
#: their epochs: three times the most (0.63) in any of 92 runs of 100 or 250 epochs here. Declared from curves alone.
STILL_RISING = 2.0


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval, in the unit of the claim."""

    value: float
    interval: Interval | None = None  # None where no spread is known


@dataclass(frozen=True)
class Contrast:
    """What a claim compares, on some of its rows."""

    claim: Claim
    rows: Collection[str]  # that are there

    @property
    def ratio(self) -> bool:
        """Whether values are compared by ratios."""
        return self.claim.estimate in ("relative", "factor")

    @property
    def pairs(self) -> list[list[str]]:
        """The pairs of which both rows are there."""
        return [pair for pair in self.claim.pairs if {*pair} <= {*self.rows}]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each row; nothing where the contrast isn't defined."""
        if self.claim.estimate == "slope":
            points = {name: x for x, name in enumerate(self.claim.rows, start=1) if name in self.rows}
            return dict(zip(points, slope_weights([*points.values()]), strict=True)) if len(points) > 1 else {}
        if self.claim.estimate == SPREAD_OF_MEANS:  # of the two sides' means, each under its first row's name
            return dict(zip(self.pairs[0], (-1.0, 1.0), strict=True)) if len(self.pairs) > 1 else {}
        weights: dict[str, float] = {row: 1 / len(self.rows) for row in self.claim.rows if row in self.rows}
        sign = -1 if self.claim.estimate == "factor" else 1
        for a, b in self.pairs:
            weights[a] = weights.get(a, 0.0) - sign / len(self.pairs)
            weights[b] = weights.get(b, 0.0) + sign / len(self.pairs)
        return weights

    @property
    def part(self) -> str:
        """How much of the claim it is, where that isn't all: 3 of 5 comparisons."""
        claim = self.claim
        whole, there = (claim.pairs, self.pairs) if claim.pairs else (claim.rows, [*self.weights])
        kind = "comparisons" if claim.pairs else "rows"
        return f"{len(there)} of {len(whole)} {kind}" if len(there) < len(whole) else ""

    def scaled(self, value: float) -> float:
        """A value of the measure on the scale on which effects are added."""
        return MEASURES[self.claim.measure].scaled(value, self.ratio)

    def effect(self, values: Mapping[str, float]) -> Effect:
        """The effect on rows with these values, which are on the scale."""
        total = sum(weight * values[name] for name, weight in self.weights.items())
        return Effect(self.in_unit(total - (self.claim.reference or 0)))

    def on_scale(self, size: float) -> float:
        """A size in the claim's unit, on the scale."""
        if self.claim.in_percent:
            return math.log1p(size / 100)
        return math.log(size) if self.claim.estimate == "factor" else size

    def in_unit(self, value: float) -> float:
        """The reverse of `on_scale`."""
        if self.claim.in_percent:
            return 100 * math.expm1(value)
        return math.exp(value) if self.claim.estimate == "factor" else value

    def interval(self, estimate: Estimate) -> Interval:
        """The 95 % interval of an estimate, in the claim's unit."""
        low, high = estimate.interval()
        return self.in_unit(low), self.in_unit(high)


@dataclass(frozen=True)
class ComparedRuns:
    """The runs of a claim's rows in one setting, those of them that can be compared."""

    contrast: Contrast
    machine: str
    rows: Sequence[MeasuredRow]  # of the claim
    runs: Mapping[str, Sequence[Run]]  # of the rows with a weight
    left_out: Sequence[str]  # rows with one run, where others have more

    @classmethod
    def of(cls, claim: Claim, rows: Sequence[MeasuredRow]) -> "ComparedRuns | None":
        """None where nothing can be compared: costs of different machines, or times of a busy one."""
        own = [row for row in rows if row.row.name in claim.compared]
        runs = {row.row.name: [run for run in row.runs if claim.measure in run.measures] for row in own}
        runs = {name: of_row for name, of_row in runs.items() if of_row}
        machine, *others = {run.machine(claim.measure) for run in chain(*runs.values())} or {None}
        if machine is None or others:
            return None
        several = {name for name, of_row in runs.items() if len(of_row) > 1}
        contrast = Contrast(claim, several)
        left_out = sorted(runs.keys() - several)
        if not contrast.weights:
            contrast, left_out = Contrast(claim, runs), []
        weights = contrast.weights
        if not weights:
            return None
        used = {name: runs[name] for name in dict.fromkeys([*weights, *chain(*contrast.pairs)])}
        return cls(contrast, machine, own, used, left_out)

    @property
    def block(self) -> Block:
        """The setting."""
        return self.rows[0].block

    @property
    def failed(self) -> int:
        """How many further runs of these rows have failed."""
        used = (row for row in self.rows if row.row.name in self.runs)
        return sum(run.status == "failed" for row in used for run in row.all_runs)

    @property
    def is_bounded(self) -> bool:
        """Whether a first epoch is a lower bound; to leave that run out would select by what is measured."""
        runs = (run for name in self.contrast.weights for run in self.runs[name])
        return self.contrast.claim.measure == "first_epoch" and any(run.censored for run in runs)

    @property
    def is_complete(self) -> bool:
        """Whether all of the claim's rows have two seeds and all of their combinations were run."""
        whole = not (self.contrast.part or self.left_out or self.single)
        return whole and all(row.tried == row.options for row in self.rows)

    @property
    def single(self) -> list[str]:
        """The rows with one run."""
        return [name for name, of_row in self.runs.items() if len(of_row) == 1]

    def values(self, measure: str = "") -> dict[str, list[float]]:
        """The values of the claim's measure, or another one, on the scale on which effects are added; NaN where a run
        hasn't it; of a spread its logarithm alone.
        """
        measure = measure or self.contrast.claim.measure
        values = {
            name: [self.contrast.scaled(run.measures.get(measure, math.nan)) for run in runs]
            for name, runs in self.runs.items()
        }
        if self.contrast.claim.estimate == SPREAD_OF_MEANS:
            sides = zip(*self.contrast.pairs, strict=True)
            return {side[0]: [statistics.log_spread([mean(values[row]) for row in side])] for side in sides}
        spread = self.contrast.claim.estimate == "spread"
        return {name: [statistics.log_spread(of_row)] for name, of_row in values.items()} if spread else values

    @property
    def is_mixed(self) -> bool:
        """Whether the rows differ in data set, files, amount of training, precision or protocol."""
        runs = [run for of_row in self.runs.values() for run in of_row]
        return len({(run.dataset, run.amount, *run.trained[2:], run.protocol) for run in runs}) > 1

    def terms(self, pools: Pools) -> dict[str, Term] | None:
        """The term of each row; None where a spread isn't known, or `is_mixed`."""
        claim, values = self.contrast.claim, self.values()
        if self.is_mixed:
            return None
        if claim.estimate in ("spread", SPREAD_OF_MEANS):
            number = 0 if claim.estimate == "spread" else len(self.contrast.pairs)
            return {
                name: statistics.spread_term(weight, values[name], number or len(self.runs[name]))
                for name, weight in self.contrast.weights.items()
            }
        terms = {}
        for name, weight in self.contrast.weights.items():
            of_row = self.runs[name], claim.measure, values[name]
            if not (spread := pools.spread(*of_row, self.machine, self.contrast.ratio)):
                return None
            terms[name] = Term(weight, values[name], spread)
        return terms

    def sampling(self, terms: Sequence[Term]) -> float | None:
        """The variance that the test images add, where others would test on others: paired, by the records of each row
        that have a bit per image. None where their number isn't known.
        """
        runs = [*self.runs.values()]
        points = MEASURES[self.contrast.claim.measure].scale == "percent" and not self.contrast.claim.is_spread
        if not points or all(run.official for of_row in runs for run in of_row):
            return 0.0
        if (images := runs[0][0].images) is None:
            return None
        of_protocol = {"paper": "max_accuracy", "heldout": "heldout_accuracy"}[runs[0][0].protocol]
        bits = of_protocol if self.contrast.claim.measure == "accuracy" else ""
        known = [[text for run in of_row if (text := (run.correct or {}).get(bits))] for of_row in runs]
        if not all(known):
            return statistics.independent_images(terms, images)
        right = [np.mean([unpacked(text, images) for text in of_row], axis=0) for of_row in known]  # of the seeds
        weights = [term.weight for term in terms]
        return statistics.paired_images(np.dot(weights, right).tolist(), weights)

    @property
    def unready(self) -> list[str]:
        """The rows that tell nothing yet, and why: a run didn't learn, or the mean accuracy rises to the end."""
        claim, lines = self.contrast.claim, list[str]()
        measure = MEASURES[claim.measure]
        for row in self.rows if not measure.machine else ():
            if (name := row.row.name) not in self.runs:
                continue
            unlearned = sum(run.learned is False for run in row.runs)
            rising = measure.unit == "points" and claim.measure != "first_five"
            if unlearned and claim.reference is None:  # with one, it is what the claim asks
                lines.append(f"{unlearned} of {plural(len(row.runs), 'run')} of {name} didn't learn")
            elif rising and (gain := mean(run.late_gain for run in self.runs[name])) > STILL_RISING:
                lines.append(f"{name} still gained {gain:.1f} points in the last fifth of its epochs")
        return lines

    @property
    def has_room(self) -> bool:
        """Whether the baseline leaves room below 100 % for the claimed effect, or for one test image."""
        pairs, values = self.contrast.pairs, self.values()
        if MEASURES[self.contrast.claim.measure].scale != "percent" or self.contrast.claim.is_spread or not pairs:
            return True
        size, images = self.contrast.claim.size, next(iter(self.runs.values()))[0].images
        least = size.value if size else 100 / (images or math.inf)
        return 100 - mean(mean(values[a]) for a, _ in pairs) >= least - statistics.ZERO

"""The contrast Σ_k w_k y_k that a claim is about: its weights, its scale and its unit.

Effects are added on a scale: of `relative`, `factor` and `spread`, and of first epochs, that of logarithms.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from capsexp.results.measures import MEASURES
from capsexp.results.statistics import Estimate, Interval, slope_weights
from capsexp.study.studies import Claim


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval, in the unit of the claim."""

    value: float
    interval: Interval | None = None  # None where no spread is known
    pairs: tuple[float, ...] = ()  # the effect in each pair


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
        weights: dict[str, float] = {}
        for a, b in self.pairs:
            weights[a] = weights.get(a, 0.0) - self._sign / len(self.pairs)
            weights[b] = weights.get(b, 0.0) + self._sign / len(self.pairs)
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
        return Effect(
            self.in_unit(total), None, tuple(self.in_unit(self._sign * (values[b] - values[a])) for a, b in self.pairs)
        )

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

    @property
    def _sign(self) -> int:
        return -1 if self.claim.estimate == "factor" else 1

"""A source's claims: what our runs say of each, and what the source's own printed numbers say.

A claim is judged in the paper's training if all its rows have two seeds there, else in the laptop's setting. There it
may be measured on the pairs or rows that have runs. Costs are compared on one machine; what can be counted, or was
measured by the steps of `results.steps`, needs no run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, variance
from typing import Literal

import numpy as np

from capsexp.results import statistics
from capsexp.results.cells import Best, Group, Index, is_whole
from capsexp.results.contrast import Contrast, Effect
from capsexp.results.measures import MEASURES
from capsexp.results.pools import Pools, key_of
from capsexp.results.runs import Run
from capsexp.results.statistics import Answer, Estimate, Term
from capsexp.results.steps import Steps
from capsexp.run.records import unpacked
from capsexp.study.selection import TYPED, Block
from capsexp.study.studies import Claim, Row, Study

SHOWN = ("supported", "no difference, shown", "contradicted")

Size = Literal["compatible", "smaller", "larger", "no gain of that size", "open"]


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and its verdict."""

    claim: Claim
    key: tuple[object, ...]  # what is compared, and on which trainings: equal for a claim that two studies have
    verdict: Answer | Literal["untested", "not run", "no verdict"]  # whether there is the effect
    reason: str = ""  # why it isn't decided, or on which part it is
    block: Block | None = None  # the setting in which it was measured
    so_far: bool = False  # after another training than the paper's experiment, or on a part of its rows
    effect: Effect | None = None
    last: Effect | None = None  # of accuracies, the effect in the last epoch
    runs: int = 0
    unlearned: int = 0  # of these
    failed: int = 0  # further ones, without a result
    p_value: float | None = None  # of the test that decides
    adjusted: float | None = None  # by Holm's method, over the source's claims that are so far, too, or aren't
    size: Size | None = None  # whether the effect is as large as printed, where a size is claimed
    size_p: float | None = None  # of the difference from the printed size
    size_adjusted: float | None = None
    seeds: int | None = None  # per network, that would decide an open claim
    printed: Effect | None = None  # what the printed numbers of its rows give
    terms: tuple[Term, ...] = ()  # of the effect
    sampling: float = 0.0  # the variance that the test images add to it
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of a claim on time, of each row's steps

    @property
    def holds(self) -> bool:
        """Whether the effect, or its contrary, is shown after Holm's correction too, or by counting."""
        return self.verdict in SHOWN and (self.adjusted or 0.0) < statistics.ALPHA

    @property
    def decided(self) -> str:
        """The verdict after Holm's correction."""
        return "open" if self.verdict in SHOWN and not self.holds else self.verdict

    @property
    def decided_size(self) -> Size | None:
        """The answer on the size after Holm's correction."""
        differs = self.size in ("smaller", "larger", "no gain of that size")
        return "open" if differs and (self.size_adjusted or 0.0) >= statistics.ALPHA else self.size


def measure_claim(
    claim: Claim,
    study: Study,
    groups: Sequence[Sequence[Group]],
    pools: Pools,
    indexed: Index,
    steps: Steps | None = None,
) -> MeasuredClaim:
    """A claim of a study and its verdict, Holm's correction still missing.

    Args:
        groups: of each setting, the paper's first.
        steps: measured for claims on time.
    """
    result = MeasuredClaim(claim, _key(claim, study, groups[0][0].block), "untested", claim.untested or "")
    if claim.untested is not None:
        return result
    result = replace(result, printed=_printed(claim, study.rows))
    if MEASURES[claim.measure].counted:
        return _counted(result, groups[0][0].block, indexed)
    if steps and (seconds := steps.of(claim, groups[0][0].block)):
        return _timed(result, groups[0][0].block, seconds, steps.device)
    trials = [trial for trial in (_Trial.of(claim, of_setting) for of_setting in groups) if trial]
    if not trials:
        return _without_runs(result, groups)
    trial = next((one for one in trials if one.is_complete), trials[-1])
    result = trial.measured(result, study)
    terms = None if trial.single else trial.terms(pools)
    return _judged(result, trial, study, terms) if terms else result


@dataclass(frozen=True)
class _Trial:
    """The runs of a claim's rows in one setting, those of them that can be compared."""

    contrast: Contrast
    block: Block
    machine: str
    best: Mapping[str, Sequence[Best]]  # of the rows with a weight
    failed: int
    left_out: Sequence[str]  # rows with one run, where others have more

    @classmethod
    def of(cls, claim: Claim, groups: Sequence[Group]) -> "_Trial | None":
        """None where nothing can be compared."""
        own = [one for one in groups if one.is_own and one.row.name in claim.compared]
        on: dict[str, dict[str, list[Best]]] = {}
        for group in own:
            for one in group.best:
                machine = one.run.machine(claim.measure)
                if machine is not None and claim.measure in one.run.measures:
                    on.setdefault(machine, {}).setdefault(group.row.name, []).append(one)
        made = [cls._on(claim, own, machine, of_rows) for machine, of_rows in sorted(on.items())]
        return max(filter(None, made), key=lambda one: (len(one.best), sum(map(len, one.best.values()))), default=None)

    @classmethod
    def _on(
        cls, claim: Claim, groups: Sequence[Group], machine: str, best: Mapping[str, list[Best]]
    ) -> "_Trial | None":
        several = {name for name, of_row in best.items() if len(of_row) > 1}
        contrast = Contrast(claim, several)
        left_out = sorted(best.keys() - several)
        if not contrast.weights:
            contrast, left_out = Contrast(claim, best), []
        weights = contrast.weights
        bounded = MEASURES[claim.measure].scale == "epochs" and any(
            one.run.censored for name in weights for one in best[name]
        )
        if not weights or bounded:  # to leave runs out would select by what is measured
            return None
        failed = sum(run.status == "failed" for one in groups if one.row.name in weights for run in one.runs)
        used = {name: best[name] for name in weights}
        return cls(contrast, groups[0].block, machine, used, failed, left_out)

    @property
    def is_complete(self) -> bool:
        """Whether all of the claim's rows have two seeds and all of their combinations were run."""
        whole = not (self.contrast.part or self.left_out or self.single)
        return whole and all(one.tried == one.options for of_row in self.best.values() for one in of_row)

    @property
    def single(self) -> list[str]:
        """The rows with one run."""
        return [name for name, of_row in self.best.items() if len(of_row) == 1]

    @property
    def runs(self) -> dict[str, list[Run]]:
        return {name: [one.run for one in of_row] for name, of_row in self.best.items()}

    @property
    def values(self) -> dict[str, list[float]]:
        """On the scale on which effects are added."""
        return self._of(self.contrast.claim.measure)

    def _of(self, measure: str) -> dict[str, list[float]]:
        """The values of a measure on this scale, NaN where a run hasn't it; of a spread its logarithm alone."""
        values = {
            name: [self.contrast.scaled(run.measures.get(measure, math.nan)) for run in runs]
            for name, runs in self.runs.items()
        }
        spread = self.contrast.claim.estimate == "spread"
        return {name: [statistics.log_spread(of_row)] for name, of_row in values.items()} if spread else values

    @property
    def is_mixed(self) -> bool:
        """Whether the rows differ in data set, files, training or precision."""
        return len({key_of(run) for of_row in self.runs.values() for run in of_row}) > 1

    def terms(self, pools: Pools) -> dict[str, Term] | None:
        """The term of each row; None where a spread isn't known, or `is_mixed`."""
        claim, values = self.contrast.claim, self.values
        if self.is_mixed:
            return None
        if claim.estimate == "spread":
            return {
                name: statistics.spread_term(weight, values[name], len(self.best[name]))
                for name, weight in self.contrast.weights.items()
            }
        terms = {}
        for name, weight in self.contrast.weights.items():
            of_row = self.runs[name], claim.measure, values[name]
            if not (spread := pools.spread(*of_row, self.machine, self.contrast.ratio)):
                return None
            terms[name] = Term(weight, values[name], spread)
        return terms

    def measured(self, result: MeasuredClaim, study: Study) -> MeasuredClaim:
        """The claim with the effect, which is open."""
        claim, contrast = self.contrast.claim, self.contrast
        runs = [run for of_row in self.runs.values() for run in of_row]
        effect, last = (
            contrast.effect({name: mean(of_row) for name, of_row in self._of(measure).items()})
            for measure in (claim.measure, "last")
        )
        few = self.left_out or self.single
        mixed = "the rows differ in data, training or precision" if self.is_mixed else ""
        return replace(
            result,
            verdict=_undecided(self.block),
            reason=", ".join(filter(None, [contrast.part, f"one run of {_listed(few)}" if few else "", mixed])),
            block=self.block,
            so_far=not (is_whole(study, self.block, claim.measure) and self.is_complete),
            effect=None if math.isnan(effect.value) else effect,  # a spread isn't known of one run
            last=None if claim.measure != "accuracy" or math.isnan(last.value) else last,  # not of held-out runs
            runs=len(runs),
            unlearned=sum(run.learned is False for run in runs),
            failed=self.failed,
        )

    def sampling(self, terms: Sequence[Term]) -> float | None:
        """The variance that the test images add, where others would test on others: paired, where each run's record has
        a bit per image. None where their number isn't known.
        """
        runs = [*self.runs.values()]
        points = MEASURES[self.contrast.claim.measure].scale == "percent" and self.contrast.claim.estimate != "spread"
        if not points or all(run.official for of_row in runs for run in of_row):
            return 0.0
        if (images := runs[0][0].images) is None:
            return None
        of_protocol = {"paper": "max_accuracy", "heldout": "heldout_accuracy"}[runs[0][0].protocol]
        bits = of_protocol if self.contrast.claim.measure == "accuracy" else ""
        known = [[(run.correct or {}).get(bits) for run in of_row] for of_row in runs]
        if not all(map(all, known)):
            return statistics.independent_images(terms, images)
        right = [np.mean([unpacked(text or "", images) for text in of_row], axis=0) for of_row in known]  # of the seeds
        weights = [term.weight for term in terms]
        return statistics.paired_images(np.dot(weights, right).tolist(), weights)

    @property
    def has_room(self) -> bool:
        """Whether the baseline leaves room below 100 % for the claimed effect, or for one test image."""
        pairs, values = self.contrast.pairs, self.values
        if MEASURES[self.contrast.claim.measure].scale != "percent" or not pairs:
            return True
        size, images = self.contrast.claim.size, next(iter(self.runs.values()))[0].images
        least = size.value if size else 100 / (images or math.inf)
        return 100 - mean(mean(values[a]) for a, _ in pairs) >= least - statistics.ZERO


def _judged(result: MeasuredClaim, trial: _Trial, study: Study, terms: Mapping[str, Term]) -> MeasuredClaim:
    """The claim with both answers and intervals; of another experiment than the source's with the interval alone."""
    of_rows, contrast = [*terms.values()], trial.contrast
    if (sampling := trial.sampling(of_rows)) is None or result.effect is None:
        return result
    estimate = statistics.effect(of_rows, sampling=sampling)
    result = replace(result, effect=replace(result.effect, interval=contrast.interval(estimate)))
    if trial.block.name == TYPED:
        return result
    verdict, p_value = _verdict(contrast, estimate, trial.has_room)
    ceiling = verdict == "ceiling"  # nothing is tested
    printed = _printed_interval(contrast, result.printed, terms, sampling, study)
    size, size_p = _size(contrast, statistics.effect(of_rows, study.printed_runs, 2 * sampling))
    if size == "smaller" and verdict != "supported":
        size = "no gain of that size"
    return replace(
        result,
        verdict=verdict,
        p_value=None if ceiling else p_value,
        printed=printed,
        size=None if ceiling else size,
        size_p=None if ceiling else size_p,
        terms=tuple(of_rows),
        sampling=sampling,
    )


def _verdict(contrast: Contrast, estimate: Estimate, room: bool) -> tuple[Answer, float]:
    """Whether there is the effect, and the p-value."""
    claim = contrast.claim
    margin = float(claim.margin or "nan")
    margin = math.log1p(margin / 100) if contrast.ratio else margin
    match claim.claimed.split():
        case ["same"]:
            return statistics.judge_sameness(estimate, margin)
        case ["no", direction]:
            return statistics.judge_absence(estimate, direction, margin)  # type: ignore[arg-type]
    upwards = contrast.on_scale(claim.size.value) > 0 if claim.size else claim.claimed == "increase"
    return statistics.judge_direction(estimate, "increase" if upwards else "decrease", ceiling=upwards and not room)


def _size(contrast: Contrast, predicted: Estimate) -> tuple[Size | None, float | None]:
    """Whether an effect is as large as printed, and the p-value of their difference; None without a printed size."""
    if (size := contrast.claim.size) is None:
        return None, None
    ends = sorted(contrast.on_scale(size.value + sign * size.resolution) for sign in (-1, 1))
    effect = contrast.on_scale(size.value)
    position, p_value = statistics.judge_printed(predicted, (ends[0], ends[1]), abs(effect) / 2)
    if position in ("within", "around"):
        return "compatible" if position == "within" else "open", p_value
    return "smaller" if (position == "below") == (effect > 0) else "larger", p_value


def _timed(result: MeasuredClaim, block: Block, seconds: Mapping[str, Sequence[float]], device: str) -> MeasuredClaim:
    """A claim on time, by the effect in each round of steps, in which the rows alternate."""
    claim = result.claim
    contrast = Contrast(claim, claim.compared)
    rounds = zip(*(map(contrast.scaled, seconds[name]) for name in contrast.weights), strict=True)
    effects = [float(np.dot([*contrast.weights.values()], values)) for values in rounds]
    estimate = Estimate(mean(effects), variance(effects) / len(effects), len(effects) - 1)
    means = {name: mean(map(contrast.scaled, seconds[name])) for name in contrast.weights}
    effect = replace(contrast.effect(means), interval=contrast.interval(estimate))
    reason = f"processor time of {len(effects)} rounds on {device}"
    result = replace(result, effect=effect, block=block, so_far=True, reason=reason, seconds=seconds)
    if block.name == TYPED:
        return replace(result, verdict="no verdict")
    verdict, p_value = _verdict(contrast, estimate, True)
    return replace(result, verdict=verdict, p_value=p_value)


def _counted(result: MeasuredClaim, block: Block, indexed: Index) -> MeasuredClaim:
    """A claim on what can be counted, which needs no run."""
    claim = result.claim
    contrast = Contrast(claim, claim.compared)
    if missing := [name for name in claim.compared if not block.runs[name]]:
        return replace(result, verdict="not run", reason=_listed(missing))
    counts = {name: indexed.count(block.runs[name][0], claim.measure) for name in claim.compared}
    effect = contrast.effect({name: contrast.scaled(count) for name, count in counts.items()})
    result = replace(result, effect=effect, block=block)
    if block.name == TYPED:
        return replace(result, verdict="no verdict")
    exact = Estimate(contrast.on_scale(effect.value), 0.0, math.inf)
    return replace(result, verdict=_verdict(contrast, exact, True)[0], size=_size(contrast, exact)[0])


def _printed(claim: Claim, rows: Sequence[Row]) -> Effect | None:
    """What the printed numbers of the claim's rows give; None without such numbers."""
    known = [row for row in rows if claim.measure in row.printed and claim.estimate != "spread"]
    numbers = {row.name: row.printed[claim.measure].value for row in known}
    contrast = Contrast(claim, numbers)
    scaled = {name: contrast.scaled(number) for name, number in numbers.items()}
    return contrast.effect(scaled) if contrast.weights else None


def _printed_interval(
    contrast: Contrast, printed: Effect | None, terms: Mapping[str, Term], sampling: float, study: Study
) -> Effect | None:
    """A printed effect with the interval of our networks' spread, of as many runs per row as the source's."""
    rows = {row.name for row in study.rows if contrast.claim.measure in row.printed}
    weights = Contrast(contrast.claim, rows).weights
    if printed is None or not weights.keys() <= terms.keys():
        return printed
    as_printed = [0.0] * study.printed_runs
    of_rows = [replace(terms[name], weight=weight, values=as_printed) for name, weight in weights.items()]
    estimate = replace(statistics.effect(of_rows, sampling=sampling), value=contrast.on_scale(printed.value))
    return replace(printed, interval=contrast.interval(estimate))


def _without_runs(result: MeasuredClaim, groups: Sequence[Sequence[Group]]) -> MeasuredClaim:
    """The claim with the reason why nothing can be compared."""
    claim = result.claim
    of_settings = [
        {
            group.row.name: [one.run for one in group.best if claim.measure in one.run.measures]
            for group in of_setting
            if group.is_own and group.best
        }
        for of_setting in groups
    ]
    runs = max(of_settings, key=lambda rows: sum(bool(rows.get(name)) for name in claim.compared))
    if missing := [name for name in claim.compared if not runs.get(name)]:
        some = len(missing) < len(claim.compared)
        reason = f"{len(missing)} of {len(claim.compared)} rows without runs" if some else ""
        return replace(result, verdict="not run", reason=reason)
    found = [run for name in claim.compared for run in runs[name]]
    machines = {run.machine(claim.measure) for run in found}
    if MEASURES[claim.measure].scale == "epochs":
        reason = "still rising in the last epoch"
    elif any(run.busy for run in found):
        reason = "times were measured on a busy machine only"
    else:
        reason = "whether the machine was busy isn't known" if None in machines else "measured on different machines"
    return replace(result, verdict=_undecided(groups[0][0].block), reason=reason)


def _undecided(block: Block) -> Literal["open", "no verdict"]:
    """Of another experiment than the source's, nothing is open either."""
    return "no verdict" if block.name == TYPED else "open"


def _key(claim: Claim, study: Study, block: Block) -> tuple[object, ...]:
    trained = {name: tuple(run.trained[:2] for run in block.runs[name]) or name for name in claim.compared}
    compared = tuple(tuple(trained[name] for name in pair) for pair in [*claim.pairs, claim.rows])
    text = claim.text if not claim.compared or not claim.counted else ""
    return study.source, text, claim.measure, claim.estimate, claim.claimed, compared


def _listed(texts: Sequence[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

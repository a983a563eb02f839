"""A source's claims: what our runs say of each, and what the source's own printed numbers say.

A claim is judged in the paper's training if all its rows have two seeds there, else in the laptop's setting, in which
pairs and rows without runs are left out. Costs are compared on one machine; what can be counted, or was measured by
the steps of `results.steps`, needs no run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, variance
from typing import Literal, get_args

import numpy as np

from capsexp.results import statistics
from capsexp.results.cells import MeasuredRow, count_of, is_whole
from capsexp.results.contrast import ComparedRuns, Contrast, Effect
from capsexp.results.measures import MEASURES
from capsexp.results.statistics import Estimate, Pools, Term, Verdict
from capsexp.results.steps import Steps
from capsexp.study.selection import TYPED, Block
from capsexp.study.studies import Claim, Row, Study

HOLDS = ("supported", "no difference, shown")
DECIDED = (*HOLDS, "contradicted", "none above")

Size = Literal["compatible", "smaller", "larger", "open"]

#: On what a verdict rests: a training as the source's, another one, or no training. Claims of two kinds are never
#: counted together, and are corrected apart.
Evidence = Literal["trained", "so far", "counted"]

#: In points: the smallest gain of accuracy that matters where none is printed, as in tsai's claims on losses.
LEAST_GAIN = 0.5


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and its verdict."""

    claim: Claim
    key: tuple[object, ...]  # what is compared, and on which trainings: equal for a claim that two studies have
    verdict: Verdict | Literal["untested", "not run", "no verdict"]  # whether there is the effect
    reason: str = ""  # why it isn't decided, or on which part it is
    block: Block | None = None  # the setting in which it was measured
    evidence: Evidence = "trained"  # so far: after another training than the source's, or on a part of its rows
    effect: Effect | None = None
    last: Effect | None = None  # of accuracies, the effect in the last epoch
    runs: int = 0
    unlearned: int = 0  # of these
    failed: int = 0  # further ones, without a result
    p_value: float | None = None  # of the test that decides
    adjusted: float | None = None  # by Holm's method, over the source's claims of the same evidence
    size: Size | None = None  # whether the effect is as large as printed, where a size is claimed
    size_p: float | None = None  # of the difference from the printed size
    size_adjusted: float | None = None
    least: float | None = None  # the smallest effect that matters, in its unit: "none above" it can be the verdict
    seeds: int | None = None  # per network, that would decide an open claim; 0: no number of seeds does
    printed: Effect | None = None  # what the printed numbers of its rows give
    terms: tuple[Term, ...] = ()  # of the effect
    sampling: float = 0.0  # the variance that the test images add to it
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of a claim on time, of each row's steps

    @property
    def is_decided(self) -> bool:
        """Whether the verdict is one after Holm's correction too, or by counting."""
        return self.verdict in DECIDED and (self.adjusted or 0.0) < statistics.ALPHA

    @property
    def so_far(self) -> bool:
        """Whether it was measured after another training than the source's, or on a part of its rows."""
        return self.evidence == "so far"

    @property
    def decided(self) -> str:
        """The verdict after Holm's correction."""
        return "open" if self.verdict in DECIDED and not self.is_decided else self.verdict

    @property
    def decided_size(self) -> Size | None:
        """The answer on the size after Holm's correction."""
        differs = self.size in ("smaller", "larger")
        return "open" if differs and (self.size_adjusted or 0.0) >= statistics.ALPHA else self.size


def measure_claim(
    claim: Claim, study: Study, settings: Sequence[Sequence[MeasuredRow]], pools: Pools, steps: Steps | None = None
) -> MeasuredClaim:
    """A claim of a study and its verdict, Holm's correction still missing.

    Args:
        settings: the rows in each setting, the paper's first.
        steps: measured for claims on time.
    """
    block = settings[0][0].block
    result = MeasuredClaim(claim, _key(claim, study, block), "untested", claim.untested or "")
    if claim.untested is not None:
        return result
    result = replace(result, printed=_printed(claim, study.rows))
    if MEASURES[claim.measure].counted:
        return _counted(result, block)
    if steps and (seconds := steps.of(claim, block)):
        return _timed(result, block, seconds, steps.device)
    of_settings = [runs for rows in settings if (runs := ComparedRuns.of(claim, rows))]
    if not of_settings:
        return _without_runs(result, settings)
    compared = next((runs for runs in of_settings if runs.is_complete), of_settings[-1])
    if compared.is_bounded:
        return _without_runs(result, settings)
    result = _measured(result, compared, study)
    terms = None if compared.single else compared.terms(pools)
    return _judged(result, compared, study, terms) if terms else result


def corrected(claims: Sequence[MeasuredClaim], of_source: Sequence[MeasuredClaim]) -> list[MeasuredClaim]:
    """The claims after Holm's correction, with the seeds that would decide an open one.

    It is over the distinct claims of the source with the same evidence: running more short experiments doesn't weaken
    what is known of long ones. Those that are no claims of the source stay as they are.
    """
    distinct = {one.key: one for one in [*reversed(of_source), *claims] if one.claim.counted}
    effects, sizes = dict[object, float](), dict[object, float]()
    undecided: dict[Evidence, int] = {}
    for evidence in get_args(Evidence):
        family = [claim for claim in distinct.values() if claim.evidence == evidence]
        absent = {claim.key for claim in family if claim.verdict == "none above"}
        by_holm = statistics.holm({one.key: one.p_value for one in family if one.p_value is not None}, absent)
        undecided[evidence] = max(1, sum(p_value >= statistics.ALPHA for p_value in by_holm.values()))
        effects |= by_holm
        sizes |= statistics.holm({one.key: one.size_p for one in family if one.size_p is not None})
    known = [
        replace(one, adjusted=effects.get(one.key), size_adjusted=sizes.get(one.key)) if one.claim.counted else one
        for one in claims
    ]
    return [replace(one, seeds=_seeds(one, statistics.ALPHA / undecided[one.evidence])) for one in known]


def _seeds(one: MeasuredClaim, level: float) -> int | None:
    """How many seeds per network would decide an open claim at the claimed, else printed size; 0 where no number does,
    None for over 100.
    """
    effect = one.claim.size.value if one.claim.size else one.printed.value if one.printed else None
    if one.decided != "open" or one.claim.margin or not one.terms or effect is None:
        return None
    size = Contrast(one.claim, one.claim.compared).on_scale(effect)
    seeds = statistics.seeds_to_decide(size, one.terms, one.sampling, level) if size else None
    return seeds if seeds is None or not 0 < seeds <= min(len(term.values) for term in one.terms) else None


def _measured(result: MeasuredClaim, compared: ComparedRuns, study: Study) -> MeasuredClaim:
    """The claim with the effect, which is open."""
    claim, contrast = compared.contrast.claim, compared.contrast
    runs = [run for of_row in compared.runs.values() for run in of_row]
    effect, last = (
        contrast.effect({name: mean(of_row) for name, of_row in compared.values(measure).items()})
        for measure in (claim.measure, "last")
    )
    few = compared.left_out or compared.single
    mixed = "the rows differ in data, training, precision or protocol" if compared.is_mixed else ""
    return replace(
        result,
        verdict="no verdict" if compared.block.name == TYPED else "open",
        reason=", ".join(filter(None, [contrast.part, f"one run of {_listed(few)}" if few else "", mixed])),
        block=compared.block,
        evidence="trained" if is_whole(study, compared.block, claim.measure) and compared.is_complete else "so far",
        effect=None if math.isnan(effect.value) else effect,  # a spread isn't known of one run
        last=None if claim.measure != "accuracy" or math.isnan(last.value) else last,  # not of held-out runs
        runs=len(runs),
        unlearned=sum(run.learned is False for run in runs),
        failed=compared.failed,
        printed=_printed(claim, [row for row in study.rows if row.name in contrast.rows]),  # beside what is measured
    )


def _judged(result: MeasuredClaim, compared: ComparedRuns, study: Study, terms: Mapping[str, Term]) -> MeasuredClaim:
    """The claim with both answers and intervals; of another experiment than the source's with the interval alone."""
    of_rows, contrast = [*terms.values()], compared.contrast
    if (sampling := compared.sampling(of_rows)) is None or result.effect is None:
        return result
    estimate = statistics.effect(of_rows, sampling=sampling)
    estimate = replace(estimate, value=estimate.value - (contrast.claim.reference or 0))
    result = replace(result, effect=replace(result.effect, interval=contrast.interval(estimate)))
    if compared.block.name == TYPED:
        return result
    if unready := compared.unready:
        return replace(result, reason=", ".join(filter(None, [result.reason, *unready])))
    least = _least(contrast, result.printed)
    verdict, p_value = _verdict(contrast, estimate, compared.has_room, least)
    ceiling = verdict == "ceiling"  # nothing is tested
    printed_runs = None if contrast.claim.of_method else study.printed_runs
    predicted = statistics.effect(of_rows, printed_runs, (1 if printed_runs is None else 2) * sampling)
    size, size_p = _size(contrast, replace(predicted, value=estimate.value))
    return replace(
        result,
        verdict=verdict,
        p_value=None if ceiling else p_value,
        least=None if least is None else contrast.in_unit(least),
        size=None if ceiling else size,
        size_p=None if ceiling else size_p,
        terms=tuple(of_rows),
        sampling=sampling,
    )


def _least(contrast: Contrast, printed: Effect | None) -> float | None:
    """The smallest effect that matters, on the scale, with its sign: half of what is claimed, else of what the rows'
    printed numbers give in the claimed direction, else LEAST_GAIN; None where no increase or decrease is claimed.
    """
    claim = contrast.claim
    if claim.size:
        return contrast.on_scale(claim.size.value) / 2
    if claim.claimed not in ("increase", "decrease"):
        return None
    sign = 1 if claim.claimed == "increase" else -1
    size = contrast.on_scale(printed.value) if printed else 0.0
    points = MEASURES[claim.measure].unit == "points" and claim.estimate == "difference"
    return size / 2 if sign * size > 0 else sign * LEAST_GAIN if points else None


def _verdict(
    contrast: Contrast, estimate: Estimate, room: bool = True, least: float | None = None
) -> tuple[Verdict, float]:
    """Whether there is the effect, and the p-value."""
    claim = contrast.claim
    margin = claim.margin or math.nan
    margin = math.log1p(margin / 100) if contrast.ratio else margin
    match claim.claimed.split():
        case ["same"]:
            return statistics.judge_sameness(estimate, margin)
        case ["no", direction]:
            return statistics.judge_absence(estimate, direction, margin)  # type: ignore[arg-type]
    upwards = contrast.on_scale(claim.size.value) > 0 if claim.size else claim.claimed == "increase"
    return statistics.judge_direction(
        estimate,
        "increase" if upwards else "decrease",
        ceiling=upwards and not room,
        least=None if least is None else abs(least),
    )


def _size(contrast: Contrast, predicted: Estimate) -> tuple[Size | None, float | None]:
    """Whether an effect is as large as printed, and the p-value of their difference; None without a printed size."""
    if (size := contrast.claim.size) is None:
        return None, None
    ends = sorted(contrast.on_scale(size.value + sign * size.resolution) for sign in (-1, 1))
    effect = contrast.on_scale(size.value)
    agreement, p_value = statistics.judge_printed(predicted, (ends[0], ends[1]))
    if agreement == "compatible":
        low, high = predicted.interval()
        return "compatible" if high - low <= abs(effect) else "open", p_value
    return "smaller" if (agreement == "lower") == (effect > 0) else "larger", p_value


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
    result = replace(result, effect=effect, block=block, evidence="counted", reason=reason, seconds=seconds)
    if block.name == TYPED or not claim.claimed:
        return replace(result, verdict="no verdict")
    verdict, p_value = _verdict(contrast, estimate)
    return replace(result, verdict=verdict, p_value=p_value)


def _counted(result: MeasuredClaim, block: Block) -> MeasuredClaim:
    """A claim on what can be counted, which needs no run."""
    claim = result.claim
    contrast = Contrast(claim, claim.compared)
    if missing := [name for name in claim.compared if not block.runs[name]]:
        return replace(result, verdict="not run", reason=_listed(missing))
    counts = {name: {count_of(run, claim.measure) for run in block.runs[name]} for name in claim.compared}
    if several := [name for name, of_row in counts.items() if len(of_row) > 1]:
        return replace(result, verdict="not run", reason=f"the combinations of {_listed(several)} differ in it")
    effect = contrast.effect({name: contrast.scaled(count) for name, (count,) in counts.items()})
    result = replace(result, effect=effect, block=block, evidence="counted")
    if block.name == TYPED:
        return replace(result, verdict="no verdict")
    exact = Estimate(contrast.on_scale(effect.value), 0.0, math.inf)
    return replace(result, verdict=_verdict(contrast, exact)[0], size=_size(contrast, exact)[0])


def _printed(claim: Claim, rows: Sequence[Row]) -> Effect | None:
    """What the printed numbers of the claim's rows give; None without such numbers."""
    known = [row for row in rows if claim.measure in row.printed and not claim.is_spread]
    numbers = {row.name: row.printed[claim.measure].value for row in known}
    contrast = Contrast(claim, numbers)
    scaled = {name: contrast.scaled(number) for name, number in numbers.items()}
    return contrast.effect(scaled) if contrast.weights else None


def _without_runs(result: MeasuredClaim, settings: Sequence[Sequence[MeasuredRow]]) -> MeasuredClaim:
    """The claim with the reason why nothing can be compared."""
    claim = result.claim
    of_settings = [
        {row.row.name: [run for run in row.runs if claim.measure in run.measures] for row in rows} for rows in settings
    ]
    runs = max(of_settings, key=lambda rows: sum(bool(rows.get(name)) for name in claim.compared))
    if missing := [name for name in claim.compared if not runs.get(name)]:
        some = len(missing) < len(claim.compared)
        reason = f"{len(missing)} of {len(claim.compared)} rows without runs" if some else ""
        return replace(result, verdict="not run", reason=reason)
    found = [run for name in claim.compared for run in runs[name]]
    machines = {run.machine(claim.measure) for run in found}
    if MEASURES[claim.measure].scale == "epochs":
        reason = "a run's last epoch was its best"
    elif any(run.busy for run in found):
        reason = "times were measured on a busy machine only"
    else:
        reason = "whether the machine was busy isn't known" if None in machines else "measured on different machines"
    return replace(result, verdict="no verdict" if settings[0][0].block.name == TYPED else "open", reason=reason)


def _key(claim: Claim, study: Study, block: Block) -> tuple[object, ...]:
    trained = {name: tuple(run.trained[:2] for run in block.runs[name]) or name for name in claim.compared}
    compared = tuple(tuple(trained[name] for name in pair) for pair in [*claim.pairs, claim.rows])
    text = claim.text if not claim.compared or not claim.counted else ""
    return study.source, text, claim.measure, claim.estimate, claim.claimed, compared


def _listed(texts: Sequence[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

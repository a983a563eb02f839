"""A source's claims: what our runs say of each, and what the source's own printed numbers say.

All rows of a claim are taken in one setting, and costs on one device: the best that the rows have in common. A claim of
which only some pairs or rows can be compared is measured on those.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, Literal

import numpy as np

from capsexp.results import statistics
from capsexp.results.cells import Best, Group, counted, so_far
from capsexp.results.runs import TIMES, Run
from capsexp.results.spread import EPOCHS, PERCENT, Pools, scaled
from capsexp.results.statistics import Answer, Estimate, Interval, Pool, Term
from capsexp.run.records import unpacked
from capsexp.study.selection import Selection
from capsexp.study.setting import Setting
from capsexp.study.studies import Claim, Published, Row, Study, published_number

SHOWN = ("supported", "no difference, shown", "contradicted")

Key = tuple[object, ...]
Size = Literal["as printed", "smaller", "larger", "no gain of that size", "open"]


@dataclass(frozen=True)
class Measured:
    """An effect with its 95 % interval, in the unit of the claim."""

    value: float
    interval: Interval | None = None  # None where no spread is known
    pairs: tuple[float, ...] = ()  # the effect in each pair


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and its verdict."""

    claim: Claim
    key: Key  # equal for the same claim in several studies of a source, and for readings of it
    reading: bool  # of rows that read the source in another way
    verdict: Answer | Literal["untested", "not run"]  # whether there is the effect
    so_far: str = ""  # in what the runs differ from the paper's experiment
    reason: str = ""  # the rows that were not run; those that stand out
    setting: Setting | None = None
    unsaid: bool = False  # the source doesn't give the epochs of this training
    measured: Measured | None = None
    last: Measured | None = None  # of accuracies, the effect in the last epoch
    runs: int = 0
    unlearned: int = 0  # of these
    failed: int = 0  # further ones, without a result
    p_value: float | None = None  # of the test that decides
    adjusted: float | None = None  # by Holm's method, over the source's claims of one training level
    size: Size | None = None  # whether the effect is as large as printed, where a size is claimed
    size_p: float | None = None  # of the difference from the printed size
    size_adjusted: float | None = None
    seeds: int | None = None  # per network, that would decide an open claim
    printed: Measured | None = None  # what the printed numbers of its rows give
    terms: tuple[Term, ...] = ()  # of the effect
    images: float = 0.0  # the variance that the test images add to it

    @property
    def holds(self) -> bool:
        """Whether the effect, or its contrary, is shown after Holm's correction too, or by counting."""
        return self.verdict in SHOWN and (self.adjusted or 0.0) < 1 - statistics.LEVEL

    @property
    def decided(self) -> str:
        """The verdict after Holm's correction."""
        return "open" if self.verdict in SHOWN and not self.holds else self.verdict

    @property
    def decided_size(self) -> Size | None:
        """The answer on the size after Holm's correction."""
        differs = self.size in ("smaller", "larger", "no gain of that size")
        return "open" if differs and (self.size_adjusted or 0.0) >= 1 - statistics.LEVEL else self.size


def adjusted(claims: Sequence[MeasuredClaim], of_source: Sequence[MeasuredClaim]) -> list[MeasuredClaim]:
    """The claims with Holm's correction, and the seeds that would decide an open one.

    It is over the distinct claims of the source that were trained as long as they need, or over those of shorter
    training, without readings and our own: running more short experiments doesn't weaken what is known of long ones.
    """
    distinct = {one.key: one for one in [*reversed(of_source), *claims] if _is_counted(one)}.values()
    effects, sizes, undecided = dict[Key, float](), dict[Key, float](), dict[bool, int]()
    for shorter in (False, True):
        family = [one for one in distinct if bool(one.so_far) == shorter]
        effects |= (corrected := _holm({one.key: one.p_value for one in family}))
        sizes |= _holm({one.key: one.size_p for one in family})
        undecided[shorter] = max(1, sum(p >= 1 - statistics.LEVEL for p in corrected.values()))
    known = [
        replace(one, adjusted=effects.get(one.key), size_adjusted=sizes.get(one.key)) if _is_counted(one) else one
        for one in claims
    ]
    return [replace(one, seeds=_seeds(one, (1 - statistics.LEVEL) / undecided[bool(one.so_far)])) for one in known]


def _holm(p_values: Mapping[Key, float | None]) -> dict[Key, float]:
    """The adjusted p-values."""
    known = {key: p_value for key, p_value in p_values.items() if p_value is not None}
    return dict(zip(known, statistics.holm([*known.values()]), strict=True))


def _is_counted(one: MeasuredClaim) -> bool:
    return not (one.reading or one.claim.ours)


def _seeds(one: MeasuredClaim, level: float) -> int | None:
    """How many seeds per network would decide an open claim at the claimed, else printed size; None for over 100."""
    size = published_number(one.claim.claimed)
    effect = size.value if size else one.printed.value if one.printed else None
    if not one.decided.startswith("open") or one.claim.margin or not one.terms or effect is None:
        return None
    scaled_effect = _on_scale(one.claim, effect)
    seeds = statistics.seeds_to_decide(scaled_effect, one.terms, one.images, level) if scaled_effect else None
    return seeds if seeds and seeds > min(len(term.values) for term in one.terms) else None  # more than there are


def measure_claim(
    claim: Claim, selection: Selection, groups: Sequence[Group], pools: Pools, conditions: Mapping[str, frozenset[str]]
) -> MeasuredClaim:
    """A claim of a study and its verdict, Holm's correction still missing.

    Args:
        conditions: of the runs of each row.
    """
    rows = {row.name: row for row in selection.study.rows}
    key, reading = _key(claim, selection, rows, conditions)
    result = MeasuredClaim(claim, key, reading, "untested", reason=claim.untested or "")
    if claim.untested is not None:
        return result
    result = replace(result, printed=_printed(claim, rows))
    if claim.measure == "parameters":
        return _counted(result, selection)
    measured = [
        (group.row.name, one)
        for group in groups
        if group.protocol == "paper" and group.row.name in claim.compared
        for one in group.best
        if claim.measure in one.run.measures
    ]
    failed = Counter((one.setting, one.row.name) for one in groups for run in one.runs if run.state == "failed")
    comparable: dict[tuple[Setting, str], dict[str, list[Best]]] = {}
    for name, one in measured:
        if (machine := one.run.machine(claim.measure)) is not None:
            comparable.setdefault((one.run.setting, machine), {}).setdefault(name, []).append(one)
    candidates = [_compare(result, selection, *place, by_row, failed, pools) for place, by_row in comparable.items()]
    if ranked := [(order, one) for order, one in filter(None, candidates)]:
        return max(ranked, key=lambda candidate: candidate[0])[1]
    if missing := [name for name in claim.compared if name not in dict(measured)]:
        return replace(result, verdict="not run", reason=_listed(missing) if len(missing) < len(claim.compared) else "")
    return replace(result, verdict="open", reason=_why_incomparable(claim, [one.run for _, one in measured]))


def _is_bounded(claim: Claim, runs: Sequence[Run]) -> bool:
    """Whether some first epochs are lower bounds: to leave these runs out would select by what is measured."""
    return claim.measure in EPOCHS and any(run.censored for run in runs)


def _why_incomparable(claim: Claim, runs: Sequence[Run]) -> str:
    """Why no two of a claim's rows can be compared, all of which have runs."""
    if _is_bounded(claim, runs):
        return "still rising in the last epoch"
    if claim.measure in TIMES and any(run.busy for run in runs):
        return "times were measured on a busy machine only"
    machines = [run.machine(claim.measure) for run in runs]
    if None in machines:
        return "whether the machine was busy isn't known"
    if len({run.setting for run in runs}) == 1:
        return f"measured on different machines: {_listed(sorted({*filter(None, machines)}))}"
    return "no two rows in one setting"


def _compare(
    result: MeasuredClaim,
    selection: Selection,
    setting: Setting,
    machine: str,
    best: Mapping[str, Sequence[Best]],
    failed: Counter[tuple[Setting | None, str]],
    pools: Pools,
) -> tuple[tuple[Any, ...], MeasuredClaim] | None:
    """The claim in one setting, and how good that setting is; None where nothing can be compared."""
    claim = result.claim
    by_row = {name: [one.run for one in of_row] for name, of_row in best.items()}
    single = {name for name, runs in by_row.items() if len(runs) == 1}
    weights = _weights(claim, by_row.keys() - single) or _weights(claim, by_row)
    used = [run for name in weights for run in by_row[name]]
    if not used or _is_bounded(claim, used):
        return None
    at, ratio = (used[0].dataset, setting, "paper"), _is_ratio(claim)
    pool = pools.pool(at, claim.measure, machine, ratio)
    values = {
        name: [scaled(claim.measure, run.measures[claim.measure], ratio) for run in by_row[name]] for name in weights
    }
    networks = {name: {run.condition for run in by_row[name]} for name in weights}
    terms = {
        name: Term(weights[name], values[name], spread)
        for name in weights
        if (spread := pool.spread(values[name], pools.least(at, claim.measure, values[name]), networks[name]))
    }
    drawn = claim.measure in PERCENT and not all(run.official for run in used)
    comparable = len(terms) == len(weights) and len({run.dataset for run in used}) == 1
    known = comparable and not (drawn and used[0].images is None)
    images = _images(claim, [*terms.values()], [by_row[name] for name in terms]) if known and drawn else 0.0
    means = {name: mean(of_row) for name, of_row in values.items()}
    part = _part(claim, means)
    left_out = sorted(single - weights.keys())
    notes = [f"without {_listed(left_out)} (one run each)"] if left_out else []
    notes += [f"{name} unstable, by its own spread" for name in weights if networks[name] <= pool.unstable]
    enough = not setting.reduced(claim.measure)  # then more training says nothing more of the claim, but more seeds do
    trained = 1.0 if enough else setting.fraction
    order = enough, len(weights), trained, len(used), setting.precision == "bf16", str(setting), machine
    rows = {row.name: row for row in selection.study.rows}
    differs = so_far(selection, claim.measure, setting, [one for name in weights for one in best[name]])
    result = replace(
        result,
        verdict="open (one run)" if single & weights.keys() else "open",
        so_far=", ".join(filter(None, [differs, part])),
        reason=_listed(notes),
        setting=setting,
        unsaid=any(selection.study.epochs_unsaid(rows[name]) for name in weights),
        measured=_effect(claim, means),
        last=_last(claim, by_row, weights),
        runs=len(used),
        unlearned=sum(run.learned is False for run in used),
        failed=sum(failed[setting, name] for name in weights),
    )
    if not known:
        return order, result
    pairs, percent = _pairs(claim, means), claim.measure in PERCENT
    room = 100 - mean(means[a] for a, _ in pairs) if percent and pairs else math.inf
    image = 100 / (used[0].images or math.inf)
    return order, _answered(result, terms, images, pool, selection.study, room, image)


def _answered(
    result: MeasuredClaim, terms: Mapping[str, Term], images: float, pool: Pool, study: Study, room: float, image: float
) -> MeasuredClaim:
    """The claim with both answers.

    Args:
        images: the variance that the test images add.
        room: what the baseline leaves to 100 %; image: what one test image is.
    """
    claim, of_rows, size = result.claim, [*terms.values()], published_number(result.claim.claimed)
    estimate = statistics.effect(of_rows, images=images)
    result = replace(result, terms=tuple(of_rows), images=images)
    low, high = estimate.interval()
    shown = (low > 0 or high < 0) and abs(estimate.value) > statistics.ONE_RUN * pool.largest
    if not shown and result.verdict == "open (one run)":
        return result
    verdict, p_value = _judged(claim, estimate, room < (size.value if size else image) - statistics.ZERO)
    result = replace(
        result,
        verdict=verdict,
        p_value=None if verdict == "ceiling" else p_value,  # nothing is tested
        measured=_with_interval(claim, result.measured, estimate),
        printed=_with_interval(claim, result.printed, _printed_estimate(claim, result.printed, terms, images, study)),
    )
    if size is None:
        return result
    predicted = statistics.effect(of_rows, study.printed_runs, 2 * images)
    answer, size_p = _size(claim, size, predicted, abs(_on_scale(claim, size.value)) / 2)
    if answer == "smaller" and verdict != "supported":
        answer = "no gain of that size"
    return result if verdict == "ceiling" else replace(result, size=answer, size_p=size_p)


def _size(claim: Claim, size: Published, predicted: Estimate, margin: float) -> tuple[Size, float]:
    """Whether an effect is as large as printed, and the p-value of their difference."""
    ends = [_on_scale(claim, size.value + sign * size.resolution) for sign in (-1, 1)]
    position, p_value = statistics.judge_printed(predicted, (min(ends), max(ends)), margin)
    less: statistics.Position = "below" if _on_scale(claim, size.value) > 0 else "above"
    return {"within": "as printed", "around": "open", less: "smaller"}.get(position, "larger"), p_value  # type: ignore[return-value]


def _counted(result: MeasuredClaim, selection: Selection) -> MeasuredClaim:
    """A claim on numbers of parameters, which needs no run."""
    claim, size = result.claim, published_number(result.claim.claimed)
    overrides = {run.row: run.overrides for run in reversed(selection.runs) if run.identity}
    if missing := [name for name in claim.compared if name not in overrides]:
        return replace(result, verdict="not run", reason=_listed(missing))
    values = {name: scaled(claim.measure, counted(overrides[name]), _is_ratio(claim)) for name in claim.compared}
    exact = Estimate(_sum(claim, values), 0.0, math.inf)
    verdict, _ = _judged(claim, exact, False)
    result = replace(result, verdict=verdict, measured=_effect(claim, values), so_far=selection.substitution)
    return replace(result, size=_size(claim, size, exact, 0.0)[0]) if size else result


def _printed(claim: Claim, rows: Mapping[str, Row]) -> Measured | None:
    """What the printed numbers of the claim's rows give; None without such numbers."""
    numbers = {name: published_number(rows[name].published.get(claim.measure)) for name in claim.compared}
    values = {name: scaled(claim.measure, one.value, _is_ratio(claim)) for name, one in numbers.items() if one}
    return _effect(claim, values) if _weights(claim, values) else None


def _printed_estimate(
    claim: Claim, printed: Measured | None, terms: Mapping[str, Term], images: float, study: Study
) -> Estimate | None:
    """A printed effect with our networks' spread, of as many runs per row as the source's."""
    rows = [row.name for row in study.rows if published_number(row.published.get(claim.measure))]
    weights = _weights(claim, rows)
    if printed is None or not weights.keys() <= terms.keys():
        return None
    one_row = [
        replace(terms[name], weight=weight, values=[0.0] * study.printed_runs) for name, weight in weights.items()
    ]
    return replace(statistics.effect(one_row, images=images), value=_on_scale(claim, printed.value))


def _images(claim: Claim, terms: Sequence[Term], runs: Sequence[Sequence[Run]]) -> float:
    """The variance that the test images add to an effect: paired, where each run's record has a bit per image."""
    images, bits = runs[0][0].images or 0, "max_accuracy" if claim.measure == "accuracy" else ""
    known = [[(run.correct or {}).get(bits) for run in of_row] for of_row in runs]
    if not all(map(all, known)):
        return statistics.independent_images(terms, images)
    right = [np.mean([unpacked(text or "", images) for text in of_row], axis=0) for of_row in known]  # of the seeds
    weights = [term.weight for term in terms]
    return statistics.paired_images(np.dot(weights, right).tolist(), weights)


def _last(claim: Claim, runs: Mapping[str, Sequence[Run]], rows: Collection[str]) -> Measured | None:
    """Of a claim on the maximum accuracy, the effect in the last epoch, which nobody selected."""
    if claim.measure != "accuracy" or any("last" not in run.measures for name in rows for run in runs[name]):
        return None
    return _effect(claim, {name: mean(run.measures["last"] for run in runs[name]) for name in rows})


def _effect(claim: Claim, values: Mapping[str, float]) -> Measured:
    """The effect on rows of these values, which are on the scale on which effects are added."""
    sign = -1 if claim.estimate == "factor" else 1
    pairs = tuple(_in_unit(claim, sign * (values[b] - values[a])) for a, b in _pairs(claim, values))
    return Measured(_in_unit(claim, _sum(claim, values)), None, pairs)


def _with_interval(claim: Claim, measured: Measured | None, estimate: Estimate | None) -> Measured | None:
    """An effect with the interval of its estimate."""
    if measured is None or estimate is None:
        return measured
    low, high = estimate.interval()
    return replace(measured, interval=(_in_unit(claim, low), _in_unit(claim, high)))


def _sum(claim: Claim, values: Mapping[str, float]) -> float:
    """The effect on the scale of the values."""
    return sum(weight * values[name] for name, weight in _weights(claim, values).items())


def _judged(claim: Claim, estimate: Estimate, ceiling: bool) -> tuple[Answer, float]:
    """Whether there is the effect, and the p-value."""
    margin = float(claim.margin or "nan")
    margin = math.log1p(margin / 100) if _is_ratio(claim) else margin
    match claim.claimed.split():
        case ["same"]:
            return statistics.judge_sameness(estimate, margin)
        case ["no", direction]:
            return statistics.judge_absence(estimate, direction, margin)  # type: ignore[arg-type]
    size = published_number(claim.claimed)
    upwards = _on_scale(claim, size.value) > 0 if size else claim.claimed == "increase"
    return statistics.judge_direction(estimate, "increase" if upwards else "decrease", ceiling=ceiling and upwards)


def _weights(claim: Claim, rows: Collection[str]) -> dict[str, float]:
    """The weight of each row in the effect, of those that are there; nothing where it isn't defined."""
    if claim.estimate == "slope":
        points = {name: x for x, name in enumerate(claim.rows, start=1) if name in rows}
        return dict(zip(points, statistics.slope_weights([*points.values()]), strict=True)) if len(points) > 1 else {}
    weights: dict[str, float] = {}
    pairs = _pairs(claim, rows)
    sign = -1 if claim.estimate == "factor" else 1
    for a, b in pairs:
        weights[a] = weights.get(a, 0.0) - sign / len(pairs)
        weights[b] = weights.get(b, 0.0) + sign / len(pairs)
    return weights


def _pairs(claim: Claim, rows: Collection[str]) -> list[list[str]]:
    """The pairs of these rows."""
    return [pair for pair in claim.pairs if set(pair) <= set(rows)]


def _is_ratio(claim: Claim) -> bool:
    return claim.estimate in ("relative", "factor")


def _on_scale(claim: Claim, size: float) -> float:
    """A size in the claim's unit, on the scale on which effects are added."""
    if claim.estimate == "relative":
        return math.log1p(size / 100)
    return math.log(size) if claim.estimate == "factor" else size


def _in_unit(claim: Claim, value: float) -> float:
    """The reverse of `_on_scale`."""
    if claim.estimate == "relative":
        return 100 * math.expm1(value)
    return math.exp(value) if claim.estimate == "factor" else value


def _key(
    claim: Claim, selection: Selection, rows: Mapping[str, Row], conditions: Mapping[str, frozenset[str]]
) -> tuple[Key, bool]:
    """What is claimed, in terms of what its rows train where they don't read the text in another way."""
    base = {name: name if claim.ours else rows[name].reading_of or name for name in claim.compared}
    reading = any(base[name] != name for name in base)
    trained = {name: conditions.get(one) or one for name, one in base.items()}
    pairs = tuple(
        tuple(trained[name] for name in pair) for pair in [*claim.pairs, *([claim.rows] if claim.rows else [])]
    )
    text = "" if pairs and not claim.ours else claim.text
    return (selection.study.publication, text, claim.measure, claim.estimate, claim.claimed, claim.ours, pairs), reading


def _part(claim: Claim, rows: Collection[str]) -> str:
    """How much of a claim was measured, where that isn't all."""
    part, kind = (_pairs(claim, rows), "comparisons") if claim.pairs else (rows, "rows")
    whole = len(claim.pairs or claim.rows)
    return f"{len(part)} of {whole} {kind}" if len(part) < whole else ""


def _listed(texts: list[str]) -> str:
    """The first three, and how many more."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")

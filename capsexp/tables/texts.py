"""Numbers, verdicts and claims as texts without markup."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from capsexp.errors import plural, printable
from capsexp.results.cells import Cell
from capsexp.results.claims import DECIDED, HOLDS, Evidence, MeasuredClaim
from capsexp.results.contrast import Effect
from capsexp.results.measures import MEASURES
from capsexp.results.questions import counts
from capsexp.results.runs import Run
from capsexp.study.studies import Claim, Published

#: What is claimed where no size is.
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}

#: On what verdicts rest.
EVIDENCE: dict[Evidence, str] = {
    "trained": "Trained in full",
    "so far": "Trained shorter",
    "counted": "By counting or timing",
}

#: The sources, as they are cited.
CITED = {
    "jiao": "Jiao, Zhao & Xu, IJANMC 2021",
    "huang": "Huang & Zhou, Scientific Reports 2020",
    "tsai": "Tsai et al., ICLR 2020",
    "alberti": "Alberti, blog post on capsule networks",
    "ou": "Ou, slides on capsule networks",
    "sabour": "Sabour, Frosst & Hinton, NeurIPS 2017",
    "mazzia": "Mazzia, Salvetti & Chiaberge, Scientific Reports 2021",
}


class ClaimTexts(NamedTuple):
    """What a table of claims says of one."""

    verdict: str
    claim: str
    printed: str
    measured: str
    remark: str  # how its size compares with the printed one, or why it isn't decided


def six_digits(value: float) -> float:
    """The value to six significant digits, whole and large ones unchanged: libraries differ in a sum's last digits."""
    return value if float(value).is_integer() or abs(value) >= 1e5 else float(f"{value:.6g}")


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus, halves rounded away from zero; nothing is negative zero."""
    rounded = Decimal(str(six_digits(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP) or Decimal(0)
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def printed(number: Published, measure: str) -> str:
    """A number as printed, but without the digits of single precision: 99.71 of 99.70999908."""
    if measure == "parameters":
        return f"{number.text}M"
    long = len(number.text.partition(".")[2]) > MEASURES[measure].digits
    return decimal(number.value, MEASURES[measure].digits) if long else number.text


def average(cell: Cell) -> str:
    """99.71: the mean alone; of first epochs the values."""
    return measured(replace(cell, sd=None), count=False)


def measured(cell: Cell, count: bool = True) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), or nothing; `count`: with the number of seeds.

    First epochs, which are compared as logarithms, are 37, ≥ 250; of more than three, their geometric mean and ends.
    """
    if cell.mean is None:
        return ""
    if MEASURES[cell.measure].scale == "epochs":
        few = cell.n <= 3 or any(cell.bounds)
        texts = [f"{'≥ ' * bound}{value:.0f}" for value, bound in zip(cell.values, cell.bounds, strict=True)]
        return ", ".join(texts) if few else f"{decimal(cell.mean, 1)} ({min(cell.values):.0f}–{max(cell.values):.0f})"
    digits = MEASURES[cell.measure].digits
    text = decimal(cell.mean, digits) + ("" if cell.sd is None else f" ± {decimal(cell.sd, digits)}")
    return f"{text} ({cell.n})" if count and cell.measure != "parameters" else text


def spent(runs: Iterable[Run]) -> str:
    """12 runs, 3.4 hours; 1 run, 22 minutes; nothing without runs."""
    each = [run.hours for run in runs]
    time = f"{sum(each):,.1f} hours" if sum(each) >= 1 else plural(round(60 * sum(each)), "minute")
    return f"{plural(len(each), 'run')}, {time}" if each else ""


def one_line(text: str) -> str:
    """A text without line breaks, and with escapes for what a terminal takes as commands."""
    return printable(" ".join(text.split()))


def summary(claims: Sequence[MeasuredClaim]) -> list[str]:
    """Trained in full: 3 claims hold, 2 don't. | Trained shorter: 1 doesn't. | Open: 4, not tried: 33."""
    number = counts(claims)
    kinds = [kind for kind, decided in number.decided.items() if sum(decided)]
    lines = [f"{EVIDENCE[kind]}: {_decided(*number.decided[kind], named=kind is kinds[0])}" for kind in kinds]
    others = {"open": number.open, "not tried": number.untested}
    rest = ", ".join(f"{name}: {count}" for name, count in others.items() if count)
    return [f"{line}." for line in [*lines, f"{rest[:1].upper()}{rest[1:]}"] if line]


def _decided(yes: int, no: int, named: bool) -> str:
    """3 claims hold, 1 doesn't; unnamed: 3 hold."""
    verbs = [(yes, "hold", "holds"), (no, "don't", "doesn't")]
    texts = [f"{count} {singular if count == 1 else many}" for count, many, singular in verbs if count]
    texts[-1] += " hold" * (not yes)
    if named:
        texts[0] = texts[0].replace(" ", " claim " if (yes or no) == 1 else " claims ", 1)
    return ", ".join(texts)


def verdict(one: MeasuredClaim) -> str:
    """✓ supported so far, ✗ contradicted, ✗ no gain above +0.50 points, ○ open."""
    mark = "✓" if one.decided in HOLDS else "✗" if one.decided in DECIDED else "○"
    said = none_above(one) if one.decided == "none above" else one.decided
    how = {"so far": " so far", "counted": ", counted" if MEASURES[one.claim.measure].counted else ", timed"}
    return f"{mark} {said}" + (how.get(one.evidence, "") if one.decided in DECIDED else "")


def none_above(one: MeasuredClaim) -> str:
    """No gain above +0.50 points; of a claimed decrease: no decrease beyond −29.3 %."""
    least = one.least or 0.0
    size = _size(one.claim, least) + _unit(one.claim)
    upwards = one.claim.size.value > 0 if one.claim.size else one.claim.claimed == "increase"
    return f"no gain above {size}" if upwards else f"no decrease beyond {size}"


def claimed(claim: Claim) -> str:
    """+2.52, −50 %, an increase, no increase (margin 1 %)."""
    unit = _unit(claim)
    if claim.size is None:
        margin = f" (margin {claim.margin:g}{unit.removesuffix('s' * (claim.margin == 1))})" if claim.margin else ""
        return f"{DIRECTIONS.get(claim.claimed, claim.claimed)}{margin}"
    return claim.claimed.replace("-", "−") + ("" if unit == " points" else unit)


def said(one: MeasuredClaim) -> str:
    """What is claimed and, of a source's claim without a size, what its printed numbers give: a decrease, −60.0 %."""
    printed = effect(one.claim, one.printed) if one.claim.counted and not one.claim.size else ""
    return ", ".join(filter(None, [claimed(one.claim), printed]))


def effect(claim: Claim, one: Effect | None, interval: bool = True) -> str:
    """+1.00 points, and its interval: (−0.82 to +2.82)."""
    if one is None:
        return ""
    text, ends = _size(claim, one.value) + _unit(claim), one.interval if interval else None
    return f"{text} ({_size(claim, ends[0])} to {_size(claim, ends[1])})" if ends else text


def between(claim: Claim, low: float, high: float) -> str:
    """+0.15 to +3.46: sizes of several claims like this one."""
    return f"{_size(claim, low)} to {_size(claim, high)}"


def share(one: MeasuredClaim) -> str:
    """How much of the claimed size was measured, in words: half as much.

    Nothing of what isn't decided, of factors, of contraries, and of what holds so far.
    """
    size, measured = one.claim.size, one.effect
    if one.decided not in DECIDED or one.so_far or not (size and measured) or one.claim.estimate == "factor":
        return ""
    part = measured.value / size.value
    near = "half as much" if 0.45 <= part <= 0.6 else "as much" if 0.9 <= part <= 1.1 else f"{100 * part:.0f} % of it"
    return near if part > 0 else ""


def _size_answer(one: MeasuredClaim) -> str:
    """What is known of the size: size open, compatible; of a factor also larger; of an open claim, not −50 %."""
    if one.decided not in DECIDED:
        return f"not {claimed(one.claim)}" if one.decided_size == "smaller" else ""
    if one.claim.estimate == "factor" and one.decided_size != "open":
        return one.decided_size or ""
    return {"open": "size open", "compatible": "compatible"}.get(one.decided_size or "", "") if share(one) else ""


def claim_texts(one: MeasuredClaim) -> ClaimTexts:
    """A measured claim as tables show it."""
    claim = one.claim
    shown = one.decided in DECIDED
    last = _size(claim, one.last.value) if one.last and shown else ""
    differs = last and one.effect and last != _size(claim, one.effect.value)
    before, told = one.decided != one.verdict, "didn't learn" in one.reason
    parts = [
        one_line(one.reason),
        share(one),
        _size_answer(one),
        f"{none_above(one) if one.verdict == 'none above' else one.verdict} before correction" if before else "",
        f"p {_probability(one.adjusted)}" if one.adjusted is not None and (shown or before) else "",
        f"{one.unlearned} of {plural(one.runs, 'run')} didn't learn" * (one.unlearned > 0 and not told),
        f"{one.failed} failed" if one.failed else "",
        f"last epoch {last}" if differs else "",
        f"needs {one.seeds} seeds" if one.seeds else "too few test images" if one.seeds == 0 else "",
        "" if claim.counted else "not in totals",
    ]
    text = one_line(claim.text)
    return ClaimTexts(verdict(one), text, said(one), effect(claim, one.effect), ", ".join(filter(None, parts)))


def reply(one: MeasuredClaim) -> str:
    """The answer to a claim: holds, half as much; doesn't hold, so far; open: 2 seeds, needs 6."""
    if one.effect is None and one.verdict != "open":
        return "not tried"
    later = ", so far" if one.so_far else ""
    if one.decided in DECIDED:
        words = ["holds", share(one)] if one.decided in HOLDS else ["doesn't hold"]
        return ", ".join(filter(None, words)) + later
    if one.decided == "ceiling":
        return "open: no room below 100 %"
    if one.decided_size == "smaller":
        return f"not {claimed(one.claim)}{later}, less is open"
    if one.seeds:
        return f"open: {plural(min(len(term.values) for term in one.terms), 'seed')}, needs {one.seeds}"
    if not one.terms and one.reason:
        return f"open: {one_line(one.reason)}"
    return "open: too few test images" if one.seeds == 0 else f"open{later}"


def _size(claim: Claim, value: float) -> str:
    if claim.estimate == "factor":
        return decimal(value, 2)
    points = MEASURES[claim.measure].unit == "points" and not claim.in_percent
    return decimal(value, 2 if points else 1, signed=True)


def _unit(claim: Claim) -> str:
    if claim.estimate == "factor":
        return " times"
    unit = "%" if claim.in_percent else MEASURES[claim.measure].unit
    return f" {unit}" + (" per iteration" if claim.estimate == "slope" else "")


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.{3 if value < 0.1 else 2}f}"

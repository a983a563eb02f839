"""Numbers, verdicts and claims as texts without markup."""

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from capsexp.errors import plural, printable
from capsexp.results.answer import counts
from capsexp.results.cells import Cell
from capsexp.results.claims import SHOWN, MeasuredClaim
from capsexp.results.contrast import Effect
from capsexp.results.measures import MEASURES
from capsexp.results.runs import Run
from capsexp.study.selection import LAPTOP
from capsexp.study.studies import Claim, Published

#: What is claimed where no size is.
DIRECTIONS = {"increase": "an increase", "decrease": "a decrease", "same": "no difference"}

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
    """99.71, or ≥ 40: the mean alone."""
    return number(cell.mean or 0.0, None, cell.values, MEASURES[cell.measure].digits, cell.bounds)


def number(mean: float, sd: float | None, values: Sequence[float], digits: int, bounds: Sequence[bool] = ()) -> str:
    """99.71 ± 0.03; the values themselves where some of them are lower bounds."""
    if any(bounds):
        texts = [f"{'≥ ' if bound else ''}{decimal(value, 0)}" for value, bound in zip(values, bounds, strict=True)]
        return texts[0] if len(set(texts)) == 1 else ", ".join(texts)
    return decimal(mean, digits) + ("" if sd is None else f" ± {decimal(sd, digits)}")


def measured(cell: Cell, count: bool = True) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), ≥ 40 (3), or nothing; `count`: with the number of seeds."""
    if cell.mean is None:
        return ""
    if cell.measure == "parameters":
        return decimal(cell.mean, 0)
    single = cell.n == 1 and MEASURES[cell.measure].scale == "epochs"
    text = number(cell.mean, cell.sd, cell.values, 0 if single else MEASURES[cell.measure].digits, cell.bounds)
    return f"{text} ({cell.n})" if count else text


def part_of(what: str, number: int, whole: int) -> str:
    """failed (1 of 5), or nothing for none."""
    return f"{what} ({number} of {whole})" if number else ""


def spent(runs: Iterable[Run]) -> str:
    """12 runs, 3.4 hours; 1 run, 22 minutes; nothing without runs."""
    each = [run.hours for run in runs]
    time = f"{sum(each):,.1f} hours" if sum(each) >= 1 else plural(round(60 * sum(each)), "minute")
    return f"{plural(len(each), 'run')}, {time}" if each else ""


def one_line(text: str) -> str:
    """A text without line breaks, and with escapes for what a terminal takes as commands."""
    return printable(" ".join(text.split()))


def by_verdict(claims: Sequence[MeasuredClaim], said: bool = False) -> dict[str, str]:
    """How many claims have which verdict: 27 (17 so far) or, `said`, 27 supported (17 so far)."""
    so_far = {**counts(one for one in claims if one.so_far and one.decided in SHOWN), "claims": 0}
    return {
        name: f"{number:,}{f' {name}' * said}" + f" ({so_far[name]:,} so far)" * bool(so_far[name])
        for name, number in counts(claims).items()
        if number or name == "claims" or not said
    }


def summary(claims: Sequence[MeasuredClaim], note: str = "") -> str:
    """7 claims: 2 supported (1 so far), 1 contradicted, 2 open, 2 not tested; the note follows their number."""
    every, *parts = by_verdict(claims, said=True).values()
    return ": ".join(filter(None, [every + note, ", ".join(parts)]))


def verdict(one: MeasuredClaim) -> str:
    """✓ supported so far, ✗ contradicted, ○ open."""
    mark = {"supported": "✓", "no difference, shown": "✓", "contradicted": "✗"}.get(one.decided, "○")
    return f"{mark} {one.decided}" + (" so far" if one.so_far and one.decided in SHOWN else "")


def claimed(claim: Claim) -> str:
    """+2.52, −50 %, an increase, no increase (margin 1 %)."""
    unit = _unit(claim)
    if claim.size is None:
        margin = f" (margin {claim.margin}{unit})" if claim.margin else ""
        return f"{DIRECTIONS.get(claim.claimed, claim.claimed)}{margin}"
    return claim.claimed.replace("-", "−") + ("" if unit == " points" else unit)


def effect(claim: Claim, one: Effect | None, unit: bool = True, interval: bool = True) -> str:
    """+1.00 points, and its interval: (−0.82 to +2.82)."""
    if one is None:
        return ""
    text, ends = _size(claim, one.value) + (_unit(claim) if unit else ""), one.interval if interval else None
    return f"{text} ({_size(claim, ends[0])} to {_size(claim, ends[1])})" if ends else text


def share(one: MeasuredClaim) -> str:
    """How much of the claimed size was measured, in words: half as much; nothing of factors, contraries, so far."""
    size, found = one.claim.size, one.effect
    if one.so_far:
        return ""
    if one.decided not in SHOWN:
        return one.decided_size if one.decided_size == "no gain of that size" else ""
    part = found.value / size.value if size and found and one.claim.estimate != "factor" else 0.0
    if part <= 0:
        return ""
    text = "half as much" if 0.45 <= part <= 0.6 else "as much" if 0.9 <= part <= 1.1 else f"{100 * part:.0f} % of it"
    return text + {"open": " measured, size open", "compatible": ", compatible"}.get(one.decided_size or "", "")


def unlearned(one: MeasuredClaim) -> str:
    """7 of 15 runs didn't learn; nothing where all did."""
    return f"{one.unlearned} of {plural(one.runs, 'run')} didn't learn" if one.unlearned else ""


def claim_texts(one: MeasuredClaim) -> ClaimTexts:
    """A measured claim as tables show it."""
    claim = one.claim
    shown = one.decided in SHOWN
    last = _size(claim, one.last.value) if one.last and shown else ""
    differs = last and one.effect and last != _size(claim, one.effect.value)
    before = one.decided != one.verdict
    parts = [
        one_line(one.reason),
        share(one),
        f"{one.verdict} before correction" if before else "",
        f"p {_probability(one.adjusted)}" if one.adjusted is not None and (shown or before) else "",
        unlearned(one),
        f"{one.failed} failed" if one.failed else "",
        f"last epoch {last}" if differs else "",
        f"{one.seeds} seeds would probably decide it" if one.seeds else "",
        "" if claim.counted else "not counted",
    ]
    said = claimed(claim) or effect(claim, one.printed)
    text = one_line(claim.text)
    return ClaimTexts(verdict(one), text, said, effect(claim, one.effect), ", ".join(filter(None, parts)))


def answer(one: MeasuredClaim, data: str) -> str:
    """The answer to a claim's question on a data set: yes, half as much; no, worse; open (10 epochs)."""
    so_far = "so far " if one.so_far else ""
    if one.decided in ("supported", "no difference, shown"):
        size = share(one)
        return f"{so_far}yes" + (f", {size}" if size else "")
    if one.decided == "contradicted":
        return f"{so_far}no" + (", worse" if one.claim.claimed == "increase" else "")
    if one.decided == "ceiling":
        return "no room below 100 %"
    shorter = one.block.setting.brief(data) if one.so_far and one.block and one.block.name == LAPTOP else ""
    undecided = {"not run": "not run yet", "untested": "not tested"}.get(one.decided, "open")
    return f"{undecided} ({shorter})" if shorter else undecided


def _size(claim: Claim, value: float) -> str:
    if claim.estimate == "factor":
        return decimal(value, 2)
    points = MEASURES[claim.measure].unit == "points" and not claim.in_percent
    return decimal(value, 2 if points else 1, signed=True)


def _unit(claim: Claim) -> str:
    if claim.estimate == "factor":
        return " times"
    unit = "%" if claim.in_percent else MEASURES[claim.measure].unit
    return f" {unit}" + (" per row" if claim.estimate == "slope" else "")


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.{3 if value < 0.1 else 2}f}"

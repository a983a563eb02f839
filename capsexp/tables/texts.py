"""Numbers, verdicts and claims as texts without markup."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from capsexp.errors import plural, printable
from capsexp.results.cells import Cell
from capsexp.results.claims import Measured, MeasuredClaim
from capsexp.study.studies import Claim, published_number

#: Digits behind the point of means.
DIGITS = {
    "accuracy": 2,
    "last": 2,
    "first_five": 2,
    "first_epoch": 1,
    "within": 1,
    "inference": 2,
    "seconds": 1,
    "memory": 0,
}

UNITS = {"accuracy": "points", "first_five": "points", "memory": "MB", "inference": "ms", "seconds": "s"}

CLAIMED = {
    "increase": "an increase",
    "decrease": "a decrease",
    "same": "no difference",
    "no increase": "no increase",
    "no decrease": "no decrease",
}

#: Verdicts that tell nothing about a number or a claim.
UNDECIDED = ("open", "open (one run)", "unstable", "ceiling", "not comparable", "untested", "not run")

SIZES = {
    "as printed": "compatible with the printed size",
    "smaller": "smaller than printed",
    "larger": "larger than printed",
    "no gain of that size": "no gain of that size",
}

#: How long descriptions of a training are abbreviated.
_SHORTER = [
    (r"([\d,]+) of ([\d,]+) epochs", r"\1/\2 ep"),
    (r"% of the channels", "% wide"),
    (r"([\d,]+),000 training images", r"\1k images"),
    (r", [\d,]+ test images", ""),
    (r"all ([\d,]+) epochs", r"\1 ep"),
]


class Verdict(str):
    """A verdict as tables show it."""

    word: str

    def __new__(cls, text: str, word: str) -> "Verdict":
        """`text`, and the verdict in it: supported, of "supported so far; smaller than printed"."""
        made = super().__new__(cls, text)
        made.word = word
        return made


class ClaimTexts(NamedTuple):
    """What a table of claims says of one, in its columns behind the claim itself."""

    claimed: str
    printed: str  # what the printed numbers give
    measured: str
    verdict: str
    p_value: str  # of the effect, in brackets after Holm's correction
    origin: str  # from which runs, or why there are none


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """−1,234.5, with a real minus; nothing is negative zero."""
    rounded = round(value, digits) or 0.0
    sign = "+" if signed and rounded else ""
    return f"{rounded:{sign},.{digits}f}".replace("-", "−")


def digits(cell: Cell) -> int:
    """Digits behind the point of a mean; a single epoch is a whole number."""
    return 0 if cell.n == 1 and cell.measure in ("first_epoch", "within") else DIGITS[cell.measure]


def mean_and_spread(cell: Cell) -> str:
    """99.71 ± 0.03 (5), 99.71 (1), ≥ 40 (3), median 96.21 of 17.95, 96.21, 97.01, or nothing."""
    if cell.mean is None:
        return ""
    if cell.unstable:
        values = ", ".join(decimal(value, digits(cell)) for value in cell.values)
        return f"median {decimal(cell.mean, digits(cell))} of {values}"
    return number(cell.mean, cell.sd, cell.values, digits(cell), cell.bounds)


def number(mean: float, sd: float | None, values: Sequence[float], digits: int, bounds: Sequence[bool] = ()) -> str:
    """99.71 ± 0.03 (5), or 99.71 (1); the values themselves where some of them are lower bounds."""
    if any(bounds):
        texts = [f"{'≥ ' if bound else ''}{decimal(value, 0)}" for value, bound in zip(values, bounds, strict=True)]
        return f"{texts[0]} ({len(values)})" if len(set(texts)) == 1 else ", ".join(texts)
    spread = "" if sd is None else f" ± {decimal(sd, digits)}"
    return f"{decimal(mean, digits)}{spread} ({len(values)})"


def unlearned(cell: Cell) -> str:
    """didn't learn (1 of 5), or nothing."""
    return part_of("didn't learn", cell.unlearned, cell.runs)


def part_of(what: str, number: int, whole: int) -> str:
    """failed (1 of 5), or nothing for none."""
    return f"{what} ({number} of {whole})" if number else ""


def hours(number: float) -> str:
    """3.4 hours, 22 minutes."""
    return f"{number:,.1f} hours" if number >= 1 else plural(round(60 * number), "minute")


def one_line(text: str) -> str:
    """A text without line breaks, and with escapes for what a terminal takes as commands."""
    return printable(" ".join(text.split()))


def verdict(one: Cell | MeasuredClaim) -> Verdict:
    """The verdict on a number, or after Holm's correction on a claimed effect; so far where the training is another
    than the paper's. Or nothing.
    """
    word = one.decided if isinstance(one, MeasuredClaim) else one.verdict or ""
    return Verdict(f"{word} so far" if one.so_far and word not in ("", *UNDECIDED) else word, word)


def answers(one: MeasuredClaim) -> Verdict:
    """Both answers: supported so far; smaller than printed. Or: open (supported before correction)."""
    before = f" ({one.verdict} before correction)" if one.decided != one.verdict else ""
    return Verdict("; ".join(filter(None, [verdict(one) + before, SIZES.get(one.decided_size or "")])), one.decided)


def claim_texts(one: MeasuredClaim) -> ClaimTexts:
    """A measured claim as tables show it."""
    claim = one.claim
    if claim.untested is not None:
        return ClaimTexts("", "", "", one.verdict, "", one_line(one.reason))
    number = published_number(claim.claimed)
    claimed = f"{claim.claimed.replace('-', '−')}{_unit(claim)}" if number else CLAIMED[claim.claimed]
    printed = effect(claim, one.printed) if one.printed else ""
    measured = effect(claim, one.measured) if one.measured else ""
    pairs = one.measured.pairs if one.measured and claim.measure == "parameters" else ()
    if len(pairs) > 1:
        measured += f" ({', '.join(_size(claim, value) for value in pairs)})"
    last = _size(claim, one.last.value) if one.last else ""
    if one.measured and last not in ("", _size(claim, one.measured.value)):
        measured += f"; in the last epoch {last}"
    corrected = f" ({_probability(one.adjusted)})" if one.adjusted is not None else ""
    p_value = f"{_probability(one.p_value)}{corrected}" if one.p_value is not None else ""
    runs = plural(one.runs, "run") if one.runs else ""
    unlearned = f"{one.unlearned} didn't learn" if one.unlearned else ""
    failed = f"{one.failed} failed" if one.failed else ""
    counted = "a count, no run" if one.measured and not one.runs else ""
    precision = one.setting.precision if one.setting else ""
    reason = f"no runs of {one.reason}" if one.verdict == "not run" and one.reason else one.reason
    needed = f"{one.seeds} seeds per network would decide it" if one.seeds else ""
    parts = [runs, unlearned, failed, counted, training(one) if one.runs else one.so_far, precision, reason, needed]
    return ClaimTexts(claimed, printed, measured, answers(one), p_value, ", ".join(filter(None, parts)))


def training(one: MeasuredClaim) -> str:
    """How the runs of a claim were trained."""
    if one.so_far or one.setting is None:
        return one.so_far
    part = one.setting.reduced()
    return f"{part}, all that the claim needs" if part else one.setting.training(one.unsaid)


def effect(claim: Claim, measured: Measured) -> str:
    """+1.00 points, and its interval: −0.82 to +2.82."""
    text = _size(claim, measured.value) + _unit(claim)
    if measured.interval is None:
        return text
    low, high = measured.interval
    return f"{text} ({_size(claim, low)} to {_size(claim, high)})"


def _size(claim: Claim, value: float) -> str:
    if claim.estimate == "factor":
        return decimal(value, 2)
    return decimal(value, 2 if UNITS.get(claim.measure) == "points" else 1, signed=True)


def _unit(claim: Claim) -> str:
    if claim.estimate == "factor":
        return " times"
    unit = "%" if claim.estimate == "relative" else UNITS.get(claim.measure, "")
    return f" {unit}" + ("/row" if claim.estimate == "slope" else "")


def _probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.{3 if value < 0.1 else 2}f}"


def shorter(text: str) -> str:
    """How something was trained, in short: 40 of 100 epochs, first 1,000 of 5,000 … → 40/100 ep, 20 % of images."""
    text = re.sub(r"first ([\d,]+) of ([\d,]+) training( and [\d,]+ of [\d,]+ test)? \w+", _fraction, text)
    for pattern, short in _SHORTER:
        text = re.sub(pattern, short, text)
    return text


def _fraction(part: re.Match[str]) -> str:
    images, whole = (int(part[number].replace(",", "")) for number in (1, 2))
    return f"{100 * images / whole:.0f} % of images"


def conjoined(names: Sequence[str]) -> str:
    """A, B and C."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last

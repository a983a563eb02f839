"""Claims in the page: a small picture of each effect beside its row, and a bar of their verdicts.

Effects in points have a linear axis, ratios of epochs, parameters and times a logarithmic one.
"""

import math
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from capsexp.results.claims import MeasuredClaim
from capsexp.study.studies import Claim, published_number
from capsexp.tables import summary, texts
from capsexp.tables.texts import UNITS, Verdict

#: What a verdict means for the published number or claim: it holds, it differs from ours, it is open.
HOLDS, DIFFERS, OPEN = "holds", "differs", "open"
MEANINGS = {
    **dict.fromkeys(("reproduced", "supported", "no difference, shown", "equal"), HOLDS),
    **dict.fromkeys(("ours is higher", "ours is lower", "different"), DIFFERS),
    "contradicted": DIFFERS,
}
MARKS = {HOLDS: "✓", DIFFERS: "✗", OPEN: "○", "none": "–"}  # beside the colours

LIMIT, FACTOR = 8, 20  # of the axes, in points and as a ratio; what lies beyond is a triangle at the edge
HALF = 76  # px from the middle to the edge


def meaning(verdict: str) -> str:
    """What a verdict means, so far or not."""
    return MEANINGS.get(verdict.word if isinstance(verdict, Verdict) else verdict, OPEN)


def verdict_of(one: MeasuredClaim) -> str:
    """A claim's verdict, so far where the training is another than the paper's."""
    return "no comparable runs" if one.verdict == "open" and not one.measured else texts.verdict(one)


def effect(one: MeasuredClaim) -> Markup:
    """The claimed size or direction, and the measured effect with its interval; nothing for what wasn't measured."""
    claim, measured = one.claim, one.measured
    if measured is None or (center := _place(claim, measured.value)) is None:
        return Markup()
    parts = [Markup('<path class="zero" d="M0 -9v18"/>'), *_claimed(claim)]
    low, high = (_place(claim, end) for end in measured.interval or (measured.value,) * 2)
    if low is not None and high is not None and low < high:
        parts.append(Markup('<path d="M{:.1f} 0H{:.1f}"/>').format(_x(low), _x(high)))
    hollow = "hollow" if one.so_far else ""
    if abs(center) > 1:
        side = math.copysign(1, center)
        arrow = Markup('<path class="mark {}" d="M{:.1f} -5v10l{:.0f} -5z"/>')
        parts.append(arrow.format(hollow, _x(center) - 4 * side, 8 * side))
    else:
        parts.append(Markup('<circle class="mark {}" cx="{:.1f}" r="4"/>').format(hollow, _x(center)))
    svg = Markup('<svg class="effect {}" viewBox="-84 -10 168 20" aria-hidden="true">{}</svg>')
    return svg.format(meaning(one.decided), Markup().join(parts))


def bar(claims: Sequence[MeasuredClaim]) -> list[tuple[str, str, int]]:
    """A segment per verdict: its name, what it means, how many claims have it."""
    counts = Counter(map(verdict_of, claims))
    names = sorted(counts, key=lambda name: (summary.rank(name), name))
    kinds = {name: "none" if name in ("no comparable runs", "not run", "untested") else meaning(name) for name in names}
    return [(name, kind, counts[name]) for name, kind in kinds.items()]


def _claimed(claim: Claim) -> list[Markup]:
    """Ticks at the claimed size, or at the margins of no difference; an arrow in the claimed direction."""
    tick, margin = Markup('<path class="claimed" d="M{:.1f} -7v14"/>'), float(claim.margin or 0)
    if size := published_number(claim.claimed):
        return [tick.format(_x(_place(claim, size.value) or 0))]
    if claim.claimed == "same":
        return [tick.format(_x(_place(claim, sign * margin) or 0)) for sign in (-1, 1)]
    side = -1 if claim.claimed in ("decrease", "no increase") else 1
    return [
        Markup('<path class="direction" d="M0 -6h{}m{} -3l{} 3l{} 3"/>').format(
            *(16 * side, *(-4 * side, 4 * side, -4 * side))
        )
    ]


def _place(claim: Claim, value: float) -> float | None:
    """On the axis from −1 to 1; None where an effect has no place on one."""
    if UNITS.get(claim.measure) == "points" and claim.estimate not in ("relative", "factor"):
        return value / LIMIT
    if claim.estimate not in ("relative", "factor"):
        return None
    ratio = value if claim.estimate == "factor" else 1 + value / 100
    return math.log(max(ratio, 1e-9)) / math.log(FACTOR)


def _x(place: float) -> float:
    return HALF * min(1.0, max(-1.0, place))

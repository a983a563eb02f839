"""Holm's correction of a source's claims, and the seeds that would decide an open one.

It is over the distinct claims of the source that are judged "so far", or over the others: running more short
experiments doesn't weaken what is known of long ones.
"""

from collections.abc import Sequence
from dataclasses import replace

from capsexp.results import statistics
from capsexp.results.claims import MeasuredClaim
from capsexp.results.contrast import Contrast


def corrected(claims: Sequence[MeasuredClaim], of_source: Sequence[MeasuredClaim]) -> list[MeasuredClaim]:
    """The claims, corrected for all claims of their source; those that are no claims of the source stay as they are."""
    distinct = {one.key: one for one in [*reversed(of_source), *claims] if one.claim.counted}
    families = [[one for one in distinct.values() if one.so_far == so_far] for so_far in (False, True)]
    effects, sizes = dict[object, float](), dict[object, float]()
    undecided: list[int] = []
    for family in families:
        by_holm = statistics.holm({one.key: one.p_value for one in family if one.p_value is not None})
        undecided.append(max(1, sum(p_value >= statistics.ALPHA for p_value in by_holm.values())))
        effects |= by_holm
        sizes |= statistics.holm({one.key: one.size_p for one in family if one.size_p is not None})
    known = [
        replace(one, adjusted=effects.get(one.key), size_adjusted=sizes.get(one.key)) if one.claim.counted else one
        for one in claims
    ]
    return [replace(one, seeds=_seeds(one, statistics.ALPHA / undecided[one.so_far])) for one in known]


def _seeds(one: MeasuredClaim, level: float) -> int | None:
    """How many seeds per network would decide an open claim at the claimed, else printed size; None for over 100."""
    effect = one.claim.size.value if one.claim.size else one.printed.value if one.printed else None
    if one.decided != "open" or one.claim.margin or not one.terms or effect is None:
        return None
    size = Contrast(one.claim, one.claim.compared).on_scale(effect)
    seeds = statistics.seeds_to_decide(size, one.terms, one.sampling, level) if size else None
    return seeds if seeds and seeds > min(len(term.values) for term in one.terms) else None  # more than there are

"""The README's picture: what attention adds to the accuracy of a capsule network, published and measured, by data set.

A row for each claim that the README asks on accuracy with attention and without; its dots are pairs of networks where
the claim has several pairs, else runs with attention minus the mean of those without.
"""

from collections.abc import Sequence

from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.strip import Strip, StripRow
from capsexp.figures.style import Drawing
from capsexp.results.measures import MEASURES
from capsexp.results.questions import Asked, asked

AXIS = "accuracy with attention minus without, percentage points"
WHOLE = "trained as long as the claim needs"
SHORTER = "shorter training or other data: no test of the published number"
LIMITS = (-5.0, 5.0)  # of the axis, in points
LEGEND = {
    "published": "published",
    "decided": "measured with 95 % interval, decided",
    "open": "open",
    "hollow": "trained shorter",
    "dot": "one pair of runs, with minus without",
}
#: The kinds of attention: as they are called here, and in words.
KINDS = {
    "dual": "dual: both of huang's modules, Conv-Attention and Caps-Attention",
    "CBAM": "CBAM: jiao's channel and spatial attention",
}


def drawing(inputs: Inputs) -> Drawing:
    """The picture of all studies; raises UndrawnError where no claim on attention was measured."""
    shown = [one for one in asked([*inputs.measured.values()]) if one.one.effect and one.attention]
    shown = [one for one in shown if MEASURES[one.one.claim.measure].scale == "percent"]
    if not shown:
        raise UndrawnError("no measured claim on attention")
    return picture(shown).drawing()


def picture(shown: Sequence[Asked]) -> Strip:
    """The strip plot of these claims."""
    parts = {WHOLE: [row(one) for one in shown if not one.one.so_far]}
    parts[SHORTER] = [row(one) for one in shown if one.one.so_far]
    remark = "; ".join(KINDS.get(kind, kind) for kind in dict.fromkeys(one.attention for one in shown))
    panels = {name: rows for name, rows in parts.items() if rows}
    return Strip(panels, AXIS, LEGEND, LIMITS, notes="trained here", remark=f"{remark}.")


def row(asked: Asked) -> StripRow:
    """A claim's row; decided is what holds after correction and training as long as the claim needs."""
    one, block = asked.one, asked.one.block
    assert one.effect is not None
    room = "no room below 100 %" if one.verdict == "ceiling" else ""
    notes = [block.setting.brief(asked.data_name) if block else "", room]
    if len(one.claim.pairs) > 1:
        dots = one.effect.pairs
    else:
        terms = {term.weight > 0: term.values for term in one.terms}  # none where no spread is known
        dots = tuple(value - sum(terms[False]) / len(terms[False]) for value in terms.get(True, ()))
    return StripRow(
        f"{asked.data}, {asked.attention}",
        asked.published,
        dots,
        one.effect.interval,
        one.effect.value,
        decided=one.is_decided and not one.so_far,
        hollow=one.so_far,
        note=", ".join(filter(None, notes)),
    )

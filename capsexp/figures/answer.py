"""The README's picture: what attention adds to the accuracy of a capsule network, published and measured, by data set.

A row per claim on accuracy of the same network with all of a source's attention and without; its dots are pairs of runs
where the claim has several pairs, else runs with attention minus the mean of those without.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from capsexp.config.schema import Config
from capsexp.figures.inputs import Inputs, UndrawnError
from capsexp.figures.strip import Strip, StripRow
from capsexp.figures.style import Drawing
from capsexp.results.claims import Measured, MeasuredClaim
from capsexp.results.collect import Results
from capsexp.study import studies
from capsexp.study.setting import title
from capsexp.study.studies import published_number
from capsexp.tables.texts import shorter, training

AXIS = "accuracy with attention minus without, percentage points"
LONG = "trained as long as the claim needs"
SHORT = "shorter training or other data: no test of the published number"
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


@dataclass(frozen=True)
class Gain:
    """What attention adds on one data set."""

    data: str  # its title
    attention: str  # of KINDS
    one: MeasuredClaim
    measured: Measured
    published: float

    @property
    def runs(self) -> list[float]:
        """Of each run with attention, or of each pair of networks where the claim has several, in points."""
        if len(self.one.claim.pairs) > 1:
            return [*self.measured.pairs]
        terms = {term.weight > 0: term.values for term in self.one.terms}  # none where no spread is known
        return [value - sum(terms[False]) / len(terms[False]) for value in terms.get(True, ())]

    @property
    def row(self) -> StripRow:
        """Its row of the picture; decided is what holds after correction and training as long as the claim needs."""
        room = "no room: 100 % without" if self.one.verdict == "ceiling" else ""
        return StripRow(
            f"{self.data}, {self.attention}",
            self.published,
            self.runs,
            self.measured.interval,
            self.measured.value,
            decided=self.one.holds and not self.one.so_far,
            hollow=bool(self.one.so_far),
            note=", ".join(filter(None, [shorter(training(self.one)), room])),
        )


def gains(collected: Sequence[Results]) -> list[Gain]:
    """Of each source and data set the measured claim on most attention; first those trained long enough."""
    best: dict[tuple[str, str], tuple[tuple[int, bool], Gain]] = {}
    for results in collected:
        rows = {row.name: row for row in results.study.rows if row.run}
        for one in results.claims:
            claim, size = one.claim, published_number(one.claim.claimed)
            published = size.value if size else one.printed.value if one.printed else None
            compared = claim.measure in ("accuracy", "first_five") and claim.pairs and set(claim.compared) <= set(rows)
            if one.measured is None or one.reading or claim.ours or not compared or published is None:
                continue
            pairs = [[studies.config_of(rows[name].combinations()[0]) for name in pair] for pair in claim.pairs]
            same = all(without.model.name == having.model.name for without, having in pairs)
            if not same or any(_flags(without) or not _flags(having) for without, having in pairs):
                continue
            with_attention = pairs[0][1]
            data, kind = with_attention.data.name, "CBAM" if with_attention.attention.cbam else "dual"
            key, order = (results.study.publication, data), (_flags(with_attention), size is not None)
            if key not in best or order > best[key][0]:
                best[key] = order, Gain(title(data), kind, one, one.measured, published)
    return sorted((gain for _, gain in best.values()), key=lambda gain: (bool(gain.one.so_far), -gain.published))


def _flags(config: Config) -> int:
    """How many kinds of attention a network has."""
    return sum((config.attention.cbam, config.attention.conv, config.attention.caps))


def answer(inputs: Inputs) -> Drawing:
    """The picture of all studies; raises UndrawnError where no claim on attention was measured."""
    shown = gains(inputs.collected)
    if not shown:
        raise UndrawnError("no measured claim on attention")
    return picture(shown).drawing()


def picture(shown: Sequence[Gain]) -> Strip:
    """The strip plot of these gains."""
    parts = {LONG: [gain.row for gain in shown if not gain.one.so_far]}
    parts[SHORT] = [gain.row for gain in shown if gain.one.so_far]
    kinds = dict.fromkeys(gain.attention for gain in shown)
    remark = "; ".join(KINDS[kind] for kind in kinds)
    panels = {name: rows for name, rows in parts.items() if rows}
    return Strip(panels, AXIS, LEGEND, LIMITS, notes="trained here", remark=f"{remark}.")

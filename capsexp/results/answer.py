"""The answer to the README's questions: of which claims it asks, and what all claims of the sources say together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capsexp.results.claims import SHOWN, MeasuredClaim
from capsexp.results.measures import MEASURES
from capsexp.results.runs import ATTENTION
from capsexp.results.study import StudyResults
from capsexp.study.identity import title


@dataclass(frozen=True)
class Asked:
    """A claim that the README asks."""

    results: StudyResults
    one: MeasuredClaim

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        compared = self.one.claim.compared
        return next((row.data for row in self.results.study.rows if row.name in compared), "")

    @property
    def data(self) -> str:
        """The title of the data set."""
        return title(self.data_name)

    @property
    def attention(self) -> str:
        """What the second row of a pair adds: dual, CBAM, Conv or Caps; nothing where it adds no attention."""
        configs = {name: runs[0].config for name, runs in self.results.blocks[0].block.runs.items() if runs}
        pairs = [(configs[a], configs[b]) for a, b in self.one.claim.pairs if {a, b} <= configs.keys()]
        added = [b.attention.names for a, b in pairs if a.model.name == b.model.name and not a.attention.names]
        kinds = {" + ".join(ATTENTION.get(name, name) for name in names) for names in added}
        kind = kinds.pop() if len(kinds) == 1 else ""
        return "dual" if kind == "Conv + Caps" else kind

    @property
    def published(self) -> float | None:
        """The claimed size, else what the printed numbers give."""
        size, printed = self.one.claim.size, self.one.printed
        return size.value if size else printed.value if printed else None

    @property
    def gain(self) -> float:
        """The claimed gain of accuracy, in points; 0 where none is claimed."""
        claim = self.one.claim
        points = MEASURES[claim.measure].unit == "points" and claim.estimate == "difference" and claim.size
        return max(points.value, 0.0) if points else 0.0


def asked(measured: Sequence[StudyResults]) -> list[Asked]:
    """The claims that have a question, in the order of the studies."""
    return [Asked(results, one) for results in measured for one in results.claims if one.claim.question]


def distinct(measured: Sequence[StudyResults]) -> list[MeasuredClaim]:
    """Every claim of the sources, once."""
    claims = {one.key: one for results in reversed(measured) for one in reversed(results.claims) if one.claim.counted}
    return [*reversed(claims.values())]


def sentence(measured: Sequence[StudyResults]) -> str:
    """Where which attention raises the accuracy, by how much of what is printed; after another training, so far.

    Nothing where no study has a question on attention.
    """
    questions = [one for one in asked(measured) if one.attention]
    yes = [one for one in questions if one.gain and one.one.decided == "supported"]
    whole, so_far = ([one for one in yes if one.one.so_far == value] for value in (False, True))
    if not yes:
        return "No gain of attention is shown." if questions else ""
    kinds = [one.attention for one in yes]
    named, others = (
        conjoined("dual attention" if kind == "dual" else kind for kind in some)
        for some in (kinds, [one.attention for one in questions if one.attention not in kinds])
    )
    where = f"Elsewhere, and with {others}," if others else "Elsewhere"
    elsewhere = f"{where} no gain is shown; the networks are as we read the papers."
    if not whole:
        return f"So far on {conjoined(one.data for one in so_far)} yes ({named}). {elsewhere}"
    more = f"; so far on {conjoined(one.data for one in so_far)}, too" if so_far else ""
    sets = conjoined(one.data for one in whole)
    return f"On {sets} yes ({named}), by {_part(whole)} of what is published{more}. {elsewhere}"


def _part(gains: Sequence[Asked]) -> str:
    """How much of the claimed sizes was measured: about half, 25 %, 25 to 80 %."""
    parts = sorted(one.one.effect.value / one.gain for one in gains if one.one.effect)
    if parts[0] >= 0.45 and parts[-1] <= 0.6:
        return "about half"
    return " to ".join(dict.fromkeys(f"{100 * part:.0f}" for part in (parts[0], parts[-1]))) + " %"


def conjoined(names: Iterable[str]) -> str:
    """A, B and C; each once; nothing of none."""
    *most, last = dict.fromkeys(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def counts(claims: Iterable[MeasuredClaim]) -> dict[str, int]:
    """How many claims there are, and how many supported, contradicted, open and not tested."""
    every = [*claims]
    decided = [one.decided for one in every]
    yes, no = sum(word in SHOWN[:2] for word in decided), decided.count("contradicted")
    tested = sum(one.effect is not None for one in every)
    return {
        "claims": len(every),
        "supported": yes,
        "contradicted": no,
        "open": tested - yes - no,
        "not tested": len(every) - tested,
    }

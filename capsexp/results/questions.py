"""The answer to the README's questions: of which claims it asks, and what all claims of the sources say together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from capsexp.results.cells import Cell
from capsexp.results.claims import HOLDS, Evidence, MeasuredClaim
from capsexp.results.measures import MEASURES
from capsexp.results.runs import ATTENTION
from capsexp.results.study import StudyResults
from capsexp.study.identity import title


@dataclass(frozen=True)
class Asked:
    """A claim that the README asks."""

    results: StudyResults
    one: MeasuredClaim
    readings: Sequence[MeasuredClaim] = ()  # the same question under other readings of the source's text

    @property
    def question(self) -> str:
        return self.one.claim.question

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
    """The claims that have a question, in the order of the studies; with a counted one, the others are readings."""
    every = [Asked(results, one) for results in measured for one in results.claims if one.claim.question]
    counted = [asked for asked in every if asked.one.claim.counted]
    return [
        replace(main, readings=[other.one for other in every if other is not main and other.question == main.question])
        for main in counted or every
    ]


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
    """How much of the claimed sizes was measured, by the ends of the 95 % intervals: 32 to 75 %."""
    ends = [end / gain.gain for gain in gains if gain.one.effect for end in gain.one.effect.interval or ()]
    return f"{100 * min(ends):.0f} to {100 * max(ends):.0f} %"


def conjoined(names: Iterable[str]) -> str:
    """A, B and C; each once; nothing of none."""
    *most, last = dict.fromkeys(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last


@dataclass(frozen=True)
class Counts:
    """How many claims hold and how many don't, by evidence, which is never added up; and how many aren't decided."""

    claims: int
    decided: Mapping[Evidence, tuple[int, int]]
    open: int
    untested: int


def counts(claims: Iterable[MeasuredClaim]) -> Counts:
    """The counts of these claims."""
    every = [*claims]
    decided = {
        evidence: (
            sum(claim.decided in HOLDS for claim in of_kind),
            sum(claim.decided not in HOLDS for claim in of_kind),
        )
        for evidence in get_args(Evidence)
        for of_kind in [[claim for claim in every if claim.is_decided and claim.evidence == evidence]]
    }
    tested = sum(claim.effect is not None for claim in every)
    return Counts(len(every), decided, tested - sum(map(sum, decided.values())), len(every) - tested)


def printed_accuracies(measured: Sequence[StudyResults]) -> list[Cell]:
    """The accuracies in the paper's training whose printed number has a verdict; each printed number once."""
    cells = [cell for results in measured for cell in results.cells if cell.verdict and cell.measure == "accuracy"]
    return [*{(cell.published, *cell.keys): cell for cell in cells}.values()]

"""Of which claims the README and the pages ask, and what all claims of the sources come to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from capsexp.results.cells import Cell
from capsexp.results.claims import HOLDS, Evidence, MeasuredClaim
from capsexp.results.study import StudyResults


@dataclass(frozen=True)
class Asked:
    """A claim that has a question."""

    results: StudyResults
    one: MeasuredClaim
    readings: Sequence[MeasuredClaim] = ()  # the same question under other readings of the source's text

    @property
    def parts(self) -> tuple[str, str]:
        """The question's statement, and on which data it is asked: attention raises accuracy, SVHN."""
        statement, on, data = self.one.claim.question.rpartition(" on ")
        return (statement, data) if on else (data, "")

    def reads(self, other: "Asked") -> bool:
        """Whether it is the same question of other networks or trainings."""
        return self.one.claim.question == other.one.claim.question and self.one.key != other.one.key


def asked(measured: Sequence[StudyResults]) -> list[Asked]:
    """The claims that have a question, each question once; with a counted claim, other ones are readings."""
    every = [Asked(results, one) for results in measured for one in results.claims if one.claim.question]
    mains: dict[str, Asked] = {}
    for claim in sorted(every, key=lambda asked: not asked.one.claim.counted):
        mains.setdefault(claim.one.claim.question, claim)
    return [
        replace(main, readings=[*{other.one.key: other.one for other in every if other.reads(main)}.values()])
        for main in mains.values()
    ]


def distinct(measured: Sequence[StudyResults]) -> list[MeasuredClaim]:
    """Every claim of the sources, once; what two sources say of the same networks is one fact."""
    every = [one for results in measured for one in results.claims if one.claim.counted]
    return [*{_fact(one): one for one in every[::-1]}.values()][::-1]


def _fact(one: MeasuredClaim) -> tuple[object, ...]:
    """What is claimed of which trainings, whoever says it, and with or without a size."""
    _, text, measure, estimate, claimed, compared = one.key
    size = one.claim.size
    if size and estimate == "difference":
        claimed = "increase" if size.value > 0 else "decrease"
    return (text, measure, estimate, claimed, compared) if one.claim.compared else one.key


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
    tested = sum(claim.effect is not None or claim.verdict == "open" for claim in every)
    return Counts(len(every), decided, tested - sum(map(sum, decided.values())), len(every) - tested)


def printed_accuracies(measured: Sequence[StudyResults]) -> list[Cell]:
    """The accuracies in the paper's training whose printed number has a verdict; each printed number once."""
    cells = [cell for results in measured for cell in results.cells if cell.verdict and cell.measure == "accuracy"]
    return [*{(cell.published, *cell.keys): cell for cell in cells}.values()]

"""Of which claims the README and the pages ask, and what all claims of the sources come to."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

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


def asked(measured: Sequence[StudyResults]) -> list[Asked]:
    """The claims that have a question, each question once; with a counted claim, other ones are readings."""
    every = [Asked(results, one) for results in measured for one in results.claims if one.claim.question]
    groups: dict[str, dict[object, Asked]] = {}
    for claim in sorted(every, key=lambda asked: not asked.one.claim.counted):
        groups.setdefault(claim.one.claim.question, {}).setdefault(claim.one.key, claim)
    return [
        replace(main, readings=[other.one for other in others])
        for main, *others in (group.values() for group in groups.values())
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

    decided: Mapping[Evidence, tuple[int, int]]
    open: int
    untested: int


def counts(claims: Sequence[MeasuredClaim]) -> Counts:
    """The counts of these claims."""
    found = Counter((one.evidence, one.decided in HOLDS) for one in claims if one.is_decided)
    decided = {evidence: (found[evidence, True], found[evidence, False]) for evidence in get_args(Evidence)}
    tested = sum(claim.effect is not None or claim.verdict == "open" for claim in claims)
    return Counts(decided, tested - found.total(), len(claims) - tested)

"""All studies together: the answer in two sentences, claims and published numbers by verdict, a line per source."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from capsexp.results.cells import JUDGED, Cell, NumberVerdict
from capsexp.results.claims import Key, MeasuredClaim
from capsexp.results.collect import Results
from capsexp.results.statistics import Answer
from capsexp.study.setting import title
from capsexp.tables.texts import Verdict, conjoined, one_line, verdict

#: Verdicts that are one, in the order in which they are listed.
ORDER = [*get_args(Answer), *get_args(NumberVerdict), "equal", "different"]
RANKS = {name: rank for rank, name in enumerate(ORDER)}  # `open`, of claims and numbers, comes behind both

#: How claims are tested, as `tested` names it.
TESTED = {
    "counted": "By counting parameters",
    "whole": "After training as long as the claims need",
    "shorter": "After shorter training, “so far”",
}


@dataclass
class Stated:
    """A claim in the first study that has it, and its readings: the claim on rows that read the source otherwise."""

    results: Results
    claim: MeasuredClaim
    readings: list[tuple[Results, MeasuredClaim]] = field(default_factory=list)

    @property
    def tested(self) -> bool:
        """Whether it or a reading of it was measured."""
        return any(claim.measured for _, claim in self.shown)

    @property
    def shown(self) -> list[tuple[Results, MeasuredClaim]]:
        """The claim, and its readings as far as they were measured, each with its study."""
        return [(self.results, self.claim), *((results, one) for results, one in self.readings if one.measured)]


def stated(studies: Sequence[Results]) -> list[Stated]:
    """Every claim of the sources, once; claims of ours are left out."""
    claims: dict[Key, Stated] = {}
    several = [(results, claim) for results in studies for claim in results.claims if not claim.claim.ours]
    for results, claim in sorted(several, key=lambda one: one[1].reading):  # what is no reading first, else in order
        if not claim.reading:
            claims.setdefault(claim.key, Stated(results, claim))
        elif claim.key in claims:
            claims[claim.key].readings.append((results, claim))
    return list(claims.values())


def tested(studies: Sequence[Results]) -> dict[str, list[MeasuredClaim]]:
    """The claims that were measured: counted without a run, after as long a training as they need, after a shorter."""
    measured = [one.claim for one in stated(studies) if one.claim.measured]
    return {
        "counted": [claim for claim in measured if not claim.runs],
        "whole": [claim for claim in measured if claim.runs and not claim.so_far],
        "shorter": [claim for claim in measured if claim.runs and claim.so_far],
    }


def numbers(studies: Sequence[Results]) -> list[Cell]:
    """Every published accuracy or epoch with a verdict, once, in its main setting; readings of it are left out."""
    cells: dict[tuple[object, ...], Cell] = {}
    for results in studies:
        for line in results.lines:
            for cell in line.cells.values():
                judged = cell.verdict and cell.verdict != "not comparable" and cell.measure in JUDGED
                if judged and not line.row.reading_of:
                    trained = results.conditions.get(cell.row)
                    cells.setdefault((results.study.publication, cell.measure, cell.published, trained), cell)
    return list(cells.values())


def answer(studies: Sequence[Results]) -> list[str]:
    """What is known, in a few sentences."""
    kinds = tested(studies)
    if not (number := sum(map(len, kinds.values()))):
        return ["No claim has been tested yet."]
    corrected = "Verdicts are those after correction for all claims of a source with as long a training."
    sentences = [f"Of {len(stated(studies))} claims, {number} {'is' if number == 1 else 'are'} tested. {corrected}"]
    sentences += [
        f"{TESTED[kind]}: {listed(one.decided for one in of_kind)}." for kind, of_kind in kinds.items() if of_kind
    ]
    lines = [line for results in studies if results.study.differs is None for line in results.lines]
    data = dict.fromkeys(title(run.data) for line in lines if line.setting and line.setting.whole for run in line.runs)
    trained = (
        f"Training as long as a paper's, or its study's where it gives no epochs, was run on {conjoined([*data])} only"
        if data
        else "No training was as long as a paper's"
    )
    return [*sentences, f"{trained}; after shorter training accuracies are lower, and even their order can differ."]


def by_source(studies: Sequence[Results]) -> dict[str, list[Results]]:
    """The studies of each source."""
    sources: dict[str, list[Results]] = {}
    for results in studies:
        sources.setdefault(results.study.publication, []).append(results)
    return sources


def conclusion(studies: Sequence[Results]) -> str:
    """The verdicts on the claims and published numbers of some studies, in a line."""
    claims = [one.claim for one in stated(studies)]
    measured = [claim for claim in claims if claim.measured]
    judged = numbers(studies)
    parts = [
        f"{len(measured)} of {len(claims)} claims tested" + (f": {listed(map(verdict, measured))}" if measured else ""),
        f"{len(judged)} published numbers: {listed(map(verdict, judged))}" if judged else "",
    ]
    return "; ".join(filter(None, parts)) if claims or judged else "nothing to test"


def rows_run(studies: Sequence[Results]) -> str:
    """3 of 12: rows with runs, of those that can be run."""
    lines = [line for results in studies for line in results.lines if line.row.run]
    return f"{sum(line.setting is not None for line in lines)} of {len(lines)}"


def trainings(results: Results) -> str:
    """How the rows of a study were trained: all 100 epochs (2); 40 of 100 epochs (3)."""
    counts = Counter(line.setting.training() for line in results.lines if line.setting and line.row.run)
    return "; ".join(f"{name} ({count})" if len(counts) > 1 else name for name, count in counts.items())


def rank(verdict: str) -> int:
    """The place of a verdict in ORDER, so far or not; what is none comes last."""
    return RANKS.get(verdict.word if isinstance(verdict, Verdict) else verdict, len(ORDER))


def listed(verdicts: Iterable[str]) -> str:
    """2 supported, 1 contradicted: in their order, then anything else."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[name]:,} {name}" for name in sorted(counts, key=rank)) or "none"


def short(claim: MeasuredClaim) -> str:
    """A claim without its place in the source."""
    return without_place(one_line(claim.claim.text))


def without_place(text: str) -> str:
    """The text of a claim without the brackets at its end."""
    return re.sub(r" \((?:[^()]|\([^()]*\))*\)$", "", text)

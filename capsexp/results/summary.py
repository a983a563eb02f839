"""All studies together: their verdicts, their claims, how much of each was run."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from capsexp.results.cells import JUDGED
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.results.page import Table, one_line
from capsexp.results.pages import claim_texts, source
from capsexp.results.statistics import ClaimVerdict, Verdict

COUNTED = (
    "Verdicts on published accuracies and epochs of rows with runs. Reproduced: the number lies inside the 95 % "
    "prediction interval for one more run, from at least three seeds with the paper's whole training; published higher "
    "(lower): it lies above (below) that interval."
)


def overview(studies: Sequence[Results]) -> Table:
    """A line a study: how much of it was run, and its verdicts."""
    columns = ["source", "what", "rows run", "seeds", "training", "verdicts"]
    return Table("", columns, "llrrll", [_overview_row(results) for results in studies], [COUNTED])


def _overview_row(results: Results) -> list[str]:
    run = [line for line in results.lines if line.setting]
    seeds = sorted({line.cell("accuracy").n or line.cell("accuracy", "heldout").n for line in run})
    whole = sum(line.setting.whole for line in run if line.setting)
    training = [f"whole in {whole}" if whole else "", f"reduced in {len(run) - whole}" if len(run) > whole else ""]
    counted = verdicts([results])
    return [
        source(results),
        results.study.title,
        f"{len(run)} of {sum(row.run is not None for row in results.study.rows)}",
        " to ".join(map(str, sorted({*seeds[:1], *seeds[-1:]}))),
        ", ".join(filter(None, training)),
        listed(counted) if counted else "",
    ]


def verdicts(studies: Sequence[Results]) -> "Counter[str]":
    """How often each verdict is in the main tables of accuracies and epochs.

    A number that two tables of a source print of the same runs counts once.
    """
    found: dict[tuple[object, ...], str] = {}
    for results in studies:
        judged = results.cells[results.cells.main & results.cells.verdict.notna() & results.cells.measure.isin(JUDGED)]
        cell: Any
        for cell in judged.itertuples():
            found.setdefault((publication(results), tuple(cell.keys), cell.measure, cell.published), cell.verdict)
    return Counter(found.values())


def distinct_claims(studies: Sequence[Results]) -> list[tuple[Results, MeasuredClaim]]:
    """All claims, each with its study; one that two studies of a source take from the same runs is there once."""
    found: dict[tuple[object, ...], tuple[Results, MeasuredClaim]] = {}
    for name, of_source in by_source(studies).items():
        for results in of_source:
            for claim in results.claims:
                key = name, short_claim(claim), *claim_texts(claim), claim.setting, claim.verdict
                found.setdefault(key, (results, claim))
    return list(found.values())


def short_claim(measured: MeasuredClaim) -> str:
    """A claim without its place in the source."""
    return re.sub(r" \((?:[^()]|\([^()]*\))*\)$", "", one_line(measured.claim.text))


def by_source(studies: Sequence[Results]) -> dict[str, list[Results]]:
    """The studies of each source."""
    found: dict[str, list[Results]] = {}
    for results in studies:
        found.setdefault(publication(results), []).append(results)
    return found


def publication(results: Results) -> str:
    """The source, without which of its tables."""
    return source(results).partition(",")[0]


def listed(counts: "Counter[str]") -> str:
    """2 reproduced, 1 published lower: verdicts in their order, then anything else."""
    order = [*get_args(Verdict)[:-1], *get_args(ClaimVerdict)]  # both end with undecided
    names = sorted(counts, key=lambda name: order.index(name) if name in order else len(order))
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name]) or "none"

"""Processor time of the steps of a claim's networks, which `make bench-claims` measures alternately in one process.

Alternating, and in processor time, other work on the machine changes all of them alike, so that no quiet one is needed.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from capsexp import Positive
from capsexp.config.checks import check_dataclass
from capsexp.errors import InputError
from capsexp.study.selection import Block
from capsexp.study.studies import Claim

#: The measures of which steps tell: of training with the optimiser's update, of inference without a gradient.
MEASURES_OF_STEPS = ("seconds", "inference")


@dataclass(frozen=True)
class Steps:
    """What was measured on one device."""

    device: str = ""
    claims: dict[str, dict[str, list[Positive]]] = field(default_factory=dict)  # by `name_of`, by row: the rounds

    def of(self, claim: Claim, block: Block) -> dict[str, list[float]] | None:
        """The seconds of each row in each round; None where the claim's networks were not measured, or were others."""
        return self.claims.get(name_of(claim, block)) if claim.measure in MEASURES_OF_STEPS else None


def read(results: Path) -> Steps:
    """What is in `results`/benchmarks/claims.json; raises InputError for a file that isn't of it."""
    path = results / "benchmarks" / "claims.json"
    if not path.is_file():
        return Steps()
    try:
        return check_dataclass(Steps, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path}: can't be read ({error}); make bench-claims writes it") from None


def name_of(claim: Claim, block: Block) -> str:
    """The measure and what the networks are: another configuration of a row is another name."""
    rows = {row: block.runs[row][0].trained.condition for row in claim.compared if block.runs[row]}
    return f"{claim.measure}: {' '.join(f'{row}={condition}' for row, condition in rows.items())}"

"""The answer to the README's questions: of which claims it asks, and what all claims of the sources say together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capsexp.results.claims import SHOWN, MeasuredClaim
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
        runs = {line.row.name: line.runs for block in self.results.blocks for line in block.lines if line.runs}
        pairs = [[runs.get(name) for name in pair] for pair in self.one.claim.pairs]
        added = [(a[0], b[0]) for a, b in pairs if a and b and a[0].network == b[0].network]
        kinds = {b.attention for a, b in added if a.attention == "none"}
        kind = kinds.pop() if len(kinds) == 1 else "none"
        return {"Conv + Caps": "dual", "none": ""}.get(kind, kind)

    @property
    def published(self) -> float | None:
        """The claimed size, else what the printed numbers give."""
        size, printed = self.one.claim.size, self.one.printed
        return size.value if size else printed.value if printed else None


def asked(measured: Sequence[StudyResults]) -> list[Asked]:
    """The claims that have a question, in the order of the studies."""
    return [Asked(results, one) for results in measured for one in results.claims if one.claim.question]


def distinct(measured: Sequence[StudyResults]) -> list[MeasuredClaim]:
    """Every claim of the sources, once."""
    claims = {one.key: one for results in reversed(measured) for one in reversed(results.claims) if one.claim.counted}
    return [*reversed(claims.values())]


def sentence(measured: Sequence[StudyResults]) -> str:
    """Where attention raises the accuracy, by how much of what is printed, in one sentence."""
    gains = [one for one in asked(measured) if one.attention and one.one.claim.size and one.one.effect]
    yes = [one for one in gains if one.one.decided == "supported"]
    if not yes:
        return "No gain of attention is shown."
    shares = [one.one.effect.value / one.one.claim.size.value for one in yes if one.one.effect and one.one.claim.size]
    part = (
        "about half"
        if all(0.45 <= share <= 0.6 for share in shares)
        else f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"
    )
    names = [one.data for one in yes]
    where = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"On {where} yes, by {part} of what is published. Elsewhere no gain is shown."


def counts(claims: Iterable[MeasuredClaim]) -> dict[str, int]:
    """How many claims there are, and how many supported, contradicted, open and untested."""
    every = [*claims]
    decided = [one.decided for one in every]
    yes, no = sum(word in SHOWN[:2] for word in decided), decided.count("contradicted")
    tested = sum(one.effect is not None for one in every)
    return {
        "claims": len(every),
        "supported": yes,
        "contradicted": no,
        "open": tested - yes - no,
        "untested": len(every) - tested,
    }

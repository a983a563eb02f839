"""The README's numbers, which it refers to by claim, and results/README.md, the index of all studies."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from urllib.parse import quote

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.tables import markdown, summary
from capsexp.tables.markdown import Marked
from capsexp.tables.pages import MARK_NOTE, SHORT_NOTE, Note, Table, short_table, source, spent
from capsexp.tables.summary import Stated
from capsexp.tables.texts import answers, claim_texts, decimal, effect, verdict

#: [number](results/tables/STUDY.md "CLAIM: FIELD; VERDICT"), or [number](results/README.md "NAME")
_REFERENCE = re.compile(r'\[([^\]]*)\]\(results/(?:tables/(\w+)|README)\.md "([^"]+)"\)')

#: After which parts of a whole training the table of what shorter training would have said looks.
PARTS = (0.1, 0.2, 0.4, 1.0)
CAPTION = f"{SHORT_NOTE.text} {MARK_NOTE.text} How verdicts are reached: [docs/verdicts.md](../docs/verdicts.md)."


def has_references(text: str) -> bool:
    """Whether numbers of a README are filled from records."""
    return _REFERENCE.search(text) is not None


def filled(readme: Path, studies: Sequence[Results]) -> tuple[str, list[str]]:
    """A README with its numbers, and a line for each sentence to be written again.

    A number is a link with a title: the claim, which of its numbers (`measured` or `claimed`, or `verdict` where the
    text stays), and the verdict that the sentence states, if any. Or it counts claims, by the names of `_counts`.
    """
    claims = {(one.study.name, summary.short(claim)): claim for one in studies for claim in one.claims}
    counts, problems = _counts(studies), list[str]()

    def fill(reference: re.Match[str]) -> str:
        text, study, title = reference.groups()
        about, _, rest = title.rpartition(": ")
        field, _, stated = rest.partition("; ")
        claim = claims.get((study, about))
        number = _number(claim, field, text) if claim else None if study else counts.get(title)
        if claim and stated and answers(claim) != stated:
            change = f"{about}: it is called {stated}, and is {answers(claim)}"
            problems.append(f"{readme}: {change}; write the sentence and its reference again")
        if number is None:
            problems.append(f"{readme}: {title}: no such claim or number")
        return reference[0] if number is None else reference[0].replace(f"[{text}]", f"[{number}]", 1)

    return _REFERENCE.sub(fill, readme.read_text(encoding="utf-8")), problems


def _number(claim: MeasuredClaim, field: str, text: str) -> str | None:
    """A number of a claim; None for one that it doesn't have."""
    measured = effect(claim.claim, claim.measured) if claim.measured else None
    return {"measured": measured, "claimed": claim.claim.claimed.replace("-", "−"), "verdict": text}.get(field)


def _counts(studies: Sequence[Results]) -> dict[str, str]:
    """How many claims there are, and how many were tested in which way."""
    kinds = {kind: len(claims) for kind, claims in summary.tested(studies).items()}
    numbers = {"claims": len(summary.stated(studies)), "tested": sum(kinds.values()), **kinds}
    return {name: f"{count:,}" for name, count in numbers.items()}


def index(studies: Sequence[Results], unassigned: int) -> str:
    """results/README.md: source by source its short tables and, folded, its claims by verdict; how much was run.

    Args:
        unassigned: records that belong to no study.
    """
    answer = markdown.escaped(" ".join(summary.answer(studies)))
    parts = [markdown.GENERATED, "# Results", answer, _spent(studies, unassigned)]
    for name, of_source in summary.by_source(studies).items():
        conclusion = summary.conclusion(of_source)
        parts += [f"## {markdown.escaped(name)}", markdown.escaped(f"{conclusion[:1].upper()}{conclusion[1:]}.")]
        for results in of_source:
            described = f"{source(results)}: {results.study.title}. {spent(results.runs)}"
            parts.append(f"**{_link(results)}** {markdown.escaped(described)}")
            if short := short_table(results):
                parts.append(markdown.table(short))
        if (claims := _claims(summary.stated(of_source))).rows:
            summed = f"<details><summary>Claims of {markdown.escaped(name)} that were tested</summary>"
            parts += [summed, markdown.table(claims), "</details>"]
    parts.append(CAPTION)
    if (table := foretold(summary.stated(studies))).rows:
        parts += ["## What shorter training would have said", markdown.table(table), *markdown.below(table)]
    return "\n\n".join([*parts, "## What was run", markdown.table(_overview(studies))]) + "\n"


def foretold(claims: Iterable[Stated]) -> Table:
    """The effects on the maximum accuracy of claims that were trained for all epochs, and what they were until earlier
    ones of the same runs.
    """
    lines: dict[tuple[str, int], list[str]] = {}
    for one in claims:
        claim, setting = one.claim.claim, one.claim.setting
        if (claim.measure, claim.estimate) != ("accuracy", "difference") or one.claim.verdict == "ceiling":
            continue
        if setting is None or setting.epochs or not setting.paper_epochs or one.claim.measured is None:
            continue
        groups = [group for group in one.results.groups if (group.setting, group.protocol) == (setting, "paper")]
        curves = {group.row.name: [best.run.curve for best in group.best] for group in groups if group.best}
        pairs = [pair for pair in claim.pairs if {*pair} <= curves.keys()]
        shown = []
        for part in PARTS:
            maxima = {
                row: mean(max(curve[: max(1, round(part * len(curve)))]) for curve in of_row)
                for row, of_row in curves.items()
            }
            shown.append(decimal(mean(maxima[b] - maxima[a] for a, b in pairs), 2, signed=True))
        reduced = setting.reduced()
        lines[summary.short(one.claim) + f" ({reduced})" * bool(reduced), setting.paper_epochs] = shown
    rows = [[name, f"{epochs:,}", *shown] for (name, epochs), shown in lines.items()]
    columns = ["claim", "epochs", *(f"after {100 * part:g} %" for part in PARTS)]
    note = Note("In points, of the means over seeds; by the maximum until then, of the same runs.")
    return Table("", columns, "lr" + "r" * len(PARTS), rows, [note])


def _claims(claims: Sequence[Stated]) -> Table:
    """Claims with runs or counts, by verdict, each followed by its readings."""
    rows = [
        [_link(results), "reading: " * claim.reading + summary.short(claim), *claim_texts(claim)]
        for one in sorted((one for one in claims if one.tested), key=lambda one: summary.rank(one.claim.decided))
        for results, claim in one.shown
    ]
    columns = ["study", "claim", "claimed", "printed", "measured", "verdict", "p", "from"]
    return Table("", columns, "l" * len(columns), rows)


def _overview(studies: Sequence[Results]) -> Table:
    """A line per study: how much of it was run, and its verdicts."""
    rows = []
    for results in studies:
        run = summary.rows_run([results]), summary.trainings(results)
        rows.append([_link(results), source(results), results.study.title, *run, summary.conclusion([results])])
    return Table("", ["study", "source", "what", "rows run", "training (rows)", "verdicts"], "lllrll", rows)


def _spent(studies: Sequence[Results], unassigned: int) -> str:
    """How many runs there are, and what they took."""
    runs = {run.key: run for results in studies for run in results.runs}.values()
    if not runs:
        return "No runs."
    whole = sum(run.setting.whole for run in runs)
    judged = summary.numbers(studies)
    sentences = [
        markdown.escaped(spent(runs)),
        f"{whole} of them were trained as long as the paper's, or its study's where it gives no epochs.",
        "Their records are in [runs](runs).",
        f"Published accuracies and epochs with runs: {summary.listed(map(verdict, judged))}." if judged else "",
        f"Records of no study: {unassigned}." if unassigned else "",
    ]
    return " ".join(filter(None, sentences))


def _link(results: Results) -> str:
    name = results.study.name
    return Marked(f"[{markdown.escaped(name)}](tables/{quote(name)}.md)")

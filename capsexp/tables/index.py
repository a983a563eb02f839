"""results/README.md, the index of all studies, and the README's block: claim, answer, printed, measured."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from capsexp.errors import InputError, plural
from capsexp.results import questions
from capsexp.results.claims import HOLDS
from capsexp.results.questions import Asked
from capsexp.results.study import StudyResults
from capsexp.tables import markdown, pages, texts
from capsexp.tables.markdown import Marked
from capsexp.tables.table import Table

#: What stands between these lines of the README is made from the records.
BEGIN, END = "<!-- made by make tables -->", "<!-- until here -->"


def has_block(readme: Path) -> bool:
    """Whether there is a README with a block that is made from the records."""
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    return END in text.partition(BEGIN)[2]


def filled(readme: Path, measured: Sequence[StudyResults]) -> str:
    """A README with its block made anew; raises InputError for one that isn't UTF-8."""
    try:
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    except UnicodeDecodeError as error:
        raise InputError(f"{readme}: {error}") from None
    return f"{before}{BEGIN}\n\n{_block(measured)}\n\n{END}{rest.partition(END)[2]}"


def _block(measured: Sequence[StudyResults]) -> str:
    """How many claims there are by evidence, the table of answers, and the other readings of their questions."""
    claims = questions.asked([one for of_source in _ranked(measured).values() for one in of_source])
    groups: dict[str, dict[str, list[Asked]]] = {}
    for one in claims:  # those without an answer on the same statement are a line
        alone = one.one.is_decided or one.one.effect is None
        groups.setdefault(one.parts[0], {}).setdefault(one.one.claim.question * alone, []).append(one)
    ordered = [sorted(lines.values(), key=lambda some: some[0].one.decided not in HOLDS) for lines in groups.values()]
    rows = [_line(some, at > 0) for lines in ordered for at, some in enumerate(lines)]
    table = Table("", ["claim", "answer", "printed", "measured (95 %)"], "llrr", rows)
    readings = [
        f"{one.parts[1]}, by another reading of the text, in another training: "
        f"{_plain(texts.effect(reading.claim, reading.effect))}."
        for one in claims
        for reading in one.readings
    ]
    about = ["Points of test accuracy where no % stands, with 95 % intervals; bold: decided.", *readings]
    links = "[All claims](results/README.md); [what a verdict means](docs/verdicts.md)."
    shown = [markdown.table(table), markdown.escaped(" ".join(about))] if rows else []
    return "\n\n".join([_evidence(measured), *shown[:1], " ".join([*shown[1:], links])])


def _line(group: Sequence[Asked], again: bool) -> list[str]:
    """A line of the README's table: of one claim, or the ranges of several without an answer.

    Args:
        again: whether a line above has the same statement.
    """
    one, (statement, data) = group[0].one, group[0].parts
    if len(group) > 1:
        data = ", ".join(other.parts[1].partition(", ")[0] for other in group)
    link = f"results/tables/{quote(group[0].results.study.name)}.md"
    text = f"{'…' if again else statement} on {data}" if data else statement
    if len(group) > 1:
        several = (
            [size.value for other in group if (size := other.one.claim.size or other.one.printed)],
            [other.one.effect.value for other in group if other.one.effect],
        )
        ranges = [texts.between(one.claim, min(some), max(some)) if some else "" for some in several]
        return [markdown.link(text, link), "open" if several[1] else texts.reply(one), *ranges]
    value, measured = (_plain(texts.effect(one.claim, one.effect, interval=whole)) for whole in (False, True))
    if one.is_decided:
        measured = Marked(f"**{value}**{measured.removeprefix(value)}")
    answer, comma, rest = texts.reply(one).partition(", ")
    bold = Marked(f"**{answer}**{comma}{rest}") if one.is_decided else f"{answer}{comma}{rest}"
    printed = re.sub(r" \(margin.*?\)", "", texts.said(one)) if one.claim.counted else "nothing"
    return [markdown.link(text, link), bold, _plain(printed), measured]


def _plain(text: str) -> str:
    """An effect without the unit that most have."""
    return text.replace(" points", "", 1)


def _ranked(measured: Sequence[StudyResults]) -> dict[str, list[StudyResults]]:
    """The studies by source, first those of which most is known, by evidence."""
    sources: dict[str, list[StudyResults]] = {}
    for one in measured:
        sources.setdefault(one.study.source, []).append(one)

    def known(some: Sequence[StudyResults]) -> list[int]:
        return [-sum(decided) for decided in questions.counts(questions.distinct(some)).decided.values()]

    ranked = sorted(sources, key=lambda name: (known(sources[name]), name))
    return {name: sorted(sources[name], key=lambda one: known([one])) for name in ranked}


def index(measured: Sequence[StudyResults], unassigned: int) -> str:
    """results/README.md: a line a source, then a line a study.

    Args:
        unassigned: records that are in no table.
    """
    sources = _ranked(measured)
    literal = f"{_literal(measured)} [How verdicts are reached](../docs/verdicts.md).".lstrip()
    parts = [markdown.GENERATED, "# Do the published numbers hold?", _evidence(measured), literal]
    for name, of_source in sources.items():
        studies = [[_link(one), one.study.table, *pages.answer(one, 20)[:1]] for one in of_source]
        parts += [f"## {markdown.escaped(texts.CITED.get(name, name))}", _evidence(of_source)]
        parts.append(markdown.table(Table("", ["study", "table", "answer"], "lll", studies)))
    runs = list({run.key: run for one in measured for run in one.runs}.values())
    outside = f"; {plural(unassigned, 'record')} of other trainings, which capsexp compare reads" if unassigned else ""
    parts.append(f"In these tables: {texts.spent(runs) or 'no runs'}{outside}. All are in [runs](runs).")
    return "\n\n".join(filter(None, parts)) + "\n"


def _evidence(measured: Sequence[StudyResults]) -> str:
    """How many claims hold, a sentence a kind of evidence, the first in bold."""
    first, *more = texts.summary(questions.distinct(measured)) or ["No claims."]
    return " ".join([f"**{first}**", *more])


def _literal(measured: Sequence[StudyResults]) -> str:
    """How many printed accuracies that were trained in full agree with ours; nothing without one."""
    known = [cell for one in measured for cell in one.cells if cell.verdict and cell.measure == "accuracy"]
    cells = [*{(cell.published, *cell.keys): cell for cell in known}.values()]  # each printed number once
    if not cells:
        return ""
    apart = [cell for cell in cells if cell.verdict != "compatible"]
    number = f"Of the {len(cells)} printed accuracies trained as in the paper, {len(cells) - len(apart)} are compatible"
    if not apart:
        return f"{number}."
    sides = questions.conjoined(str(cell.verdict) for cell in apart)
    best = sum(cell.if_better_of_two == "compatible" for cell in apart)
    also = f"; if each is the better of two, {'all' if best == len(apart) else best} of these are compatible too"
    ours = f"ours are {sides} in {len(apart)}, if a printed number is one run"
    return f"{number}; {ours}{also * bool(best)}."


def _link(results: StudyResults) -> str:
    return markdown.link(results.study.title, f"tables/{quote(results.study.name)}.md")

"""results/README.md, the index of all studies, and the README's block: question, published, measured, answer."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from capsexp.errors import InputError, plural
from capsexp.results import questions
from capsexp.results.claims import MeasuredClaim
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
    """The table of questions and how many claims there are."""
    rows = []
    for one in questions.asked(measured):
        claim = one.one.claim
        link = markdown.link(claim.question, f"results/tables/{quote(one.results.study.name)}.md")
        printed = one.one.printed
        of_rows = texts.effect(claim, printed, unit=False, interval=False)
        said = texts.claimed(claim) if claim.size or not printed else of_rows
        if claim.of_method and printed:
            said = f"{said} (its table {of_rows} %)"
        found = texts.effect(claim, one.one.effect)
        shown = Marked(f"**{found}**") if one.one.is_decided else found
        others = [f"another reading of the text: {texts.effect(other.claim, other.effect)}" for other in one.readings]
        rows.append([link, said, shown, "; ".join([texts.reply(one.one, one.data_name), *others])])
    table = Table("", ["question", "published", "measured (95 % interval)", "answer"], "lrrl", rows)
    every = f"[All {texts.summary(questions.distinct(measured))}](results/README.md)"
    more = f"{every}; [what a verdict means](docs/verdicts.md)."
    about = f"Points of best test accuracy if nothing else is named, with minus without; bold: decided. {more}"
    return "\n\n".join(filter(None, [_attention(measured), markdown.table(table), about])) if rows else more


def _attention(measured: Sequence[StudyResults]) -> str:
    """The sentence of the README's questions; nothing without one."""
    said = questions.sentence(measured)
    return f"**Does attention help?** {markdown.escaped(said)}" if said else ""


def index(measured: Sequence[StudyResults], unassigned: int) -> str:
    """results/README.md: a line a source, then a line a study.

    Args:
        unassigned: records that are in no table.
    """
    sources: dict[str, list[StudyResults]] = {}
    for one in measured:
        sources.setdefault(one.study.source, []).append(one)
    claims = {name: questions.distinct(of_source) for name, of_source in sources.items()}
    ranked = sorted(sources, key=lambda name: (-sum(claim.is_decided for claim in claims[name]), name))
    rows = [[markdown.link(name, f"#{quote(markdown.slug(name))}"), *_counts(claims[name])] for name in ranked]
    rows.append(["all", *_counts(questions.distinct(measured))])
    heads = ["source", "claims", *texts.EVIDENCE.values(), "open", "not tested"]
    parts = [markdown.GENERATED, "# Do the published numbers hold?", _literal(measured), _attention(measured)]
    parts.append(markdown.table(Table("", heads, "lrrrrrr", rows, ["✓ holds, ✗ doesn't."])))
    for name in ranked:
        studies = [[_link(one), one.study.table, " ".join(pages.page_answer(one)[:1])] for one in sources[name]]
        parts += [f"## {markdown.escaped(name)}", markdown.escaped(f"{texts.CITED.get(name, name)}.")]
        parts.append(markdown.table(Table("", ["study", "table", "answer"], "lll", studies)))
    runs = list({run.key: run for one in measured for run in one.runs}.values())
    outside = f"; {plural(unassigned, 'record')} of other trainings, which capsexp compare reads" if unassigned else ""
    parts.append(f"In these tables: {texts.spent(runs) or 'no runs'}{outside}. All are in [runs](runs).")
    return "\n\n".join(filter(None, parts)) + "\n"


def _counts(claims: Sequence[MeasuredClaim]) -> list[str]:
    """The cells of a line of the index: 44, 3 ✓ 1 ✗, …"""
    number = questions.counts(claims)
    decided = [" ".join([f"{yes} ✓"] * bool(yes) + [f"{no} ✗"] * bool(no)) for yes, no in number.decided.values()]
    return [str(number.claims), *decided, str(number.open), str(number.untested)]


def _literal(measured: Sequence[StudyResults]) -> str:
    """How many printed accuracies that were trained in full agree with ours; nothing without one."""
    cells = questions.printed_accuracies(measured)
    if not cells:
        return ""
    apart = [cell for cell in cells if cell.beyond]
    number = f"Of the {len(cells)} printed accuracies trained as in the paper, {len(cells) - len(apart)} are compatible"
    if not apart:
        return f"{number}."
    gaps = questions.conjoined(texts.decimal(cell.beyond or 0.0, 2) for cell in apart)
    sides = questions.conjoined(f"{cell.verdict}" for cell in apart)
    best = sum(cell.if_better_of_two == "compatible" for cell in apart)
    also = f"; if each is the better of two, {'all' if best == len(apart) else best} of these are compatible too"
    ours = f"ours are {sides} in {len(apart)}, by {gaps} points, if a printed number is one run"
    return f"{number}; {ours}{also * bool(best)}."


def _link(results: StudyResults) -> str:
    return markdown.link(results.study.title, f"tables/{quote(results.study.name)}.md")

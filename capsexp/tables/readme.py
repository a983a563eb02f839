"""The README's block, what was found in short, and results/README.md, the index of all studies."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from capsexp.errors import InputError
from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Line, Results
from capsexp.study.setting import title
from capsexp.study.studies import Row, Study, published_number
from capsexp.tables import markdown, summary
from capsexp.tables.markdown import Marked
from capsexp.tables.pages import Table, source, spent
from capsexp.tables.summary import Stated
from capsexp.tables.texts import (
    DIGITS,
    UNDECIDED,
    answers,
    claim_texts,
    decimal,
    effect,
    mean_and_spread,
    training,
    unlearned,
    verdict,
)

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

#: What `make figures` draws of the claims on attention; the numbers stand in the tables.
PICTURE = """<picture>
<source media="(max-width: 640px) and (prefers-color-scheme: dark)" srcset="results/figures/answer_narrow_dark.svg">
<source media="(max-width: 640px)" srcset="results/figures/answer_narrow_light.svg">
<source media="(prefers-color-scheme: dark)" srcset="results/figures/answer_dark.svg">
<img src="results/figures/answer_light.svg" width="100%" alt="Accuracy with attention minus without, published and \
measured with its 95 % interval, by data set">
</picture>"""

LEGEND = (
    "The two claims of which most is known, and a published accuracy, of each source; [all](results/README.md). "
    "Measured: the effect and its 95 % interval, unless a network has one run, or the mean ± standard deviation "
    "(number of seeds). Open: the runs cannot decide. So far: after shorter training than the paper's, or with other "
    "data. [What each verdict means](docs/verdicts.md)."
)

#: The measures of the short tables.
NAMES = {"accuracy": "maximum %", "first_epoch": "first epoch"}
CAPTION = (
    "Published → measured, mean ± standard deviation over seeds (number of seeds). Maximum: the highest test accuracy "
    "over the epochs, as in the papers; first epoch: the first that reaches it. How verdicts are reached: "
    "[docs/verdicts.md](../docs/verdicts.md)."
)


def with_block(readme: Path, block: str) -> str:
    """The README with this block between its marks; raises InputError where they are missing."""
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{readme}: must have a line {BEGIN} and, below it, a line {END}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def block(studies: Sequence[Results]) -> str:
    """The answer, its picture, and what is most known of each source: two claims and a published number."""
    rows: list[list[str]] = []
    for name, of_source in summary.by_source(studies).items():
        known = [*map(_claim_row, summary.foremost(of_source)), *_number_row(of_source)]
        link = f"[{markdown.escaped(name)}](results/README.md#{quote(name)})"
        first = Marked(f"{link}: {summary.extent(of_source)} tested")
        rows += [[first if place == 0 else "", *row] for place, row in enumerate(known)]
    columns = ["source", "claim, or published accuracy", "measured here", "verdict", "training here"]
    answer = markdown.escaped(" ".join(summary.answer(studies)))
    return "\n\n".join([answer, PICTURE, LEGEND, markdown.table(Table("", columns, "lllll", rows))])


def index(studies: Sequence[Results], unassigned: int) -> str:
    """results/README.md: the claims by verdict, the short tables source by source, and how much was run.

    Args:
        unassigned: records that belong to no study.
    """
    answer = markdown.escaped(" ".join(summary.answer(studies)))
    parts = [markdown.GENERATED, "# Results", answer, _spent(studies, unassigned)]
    parts += ["## Claims that were tested", markdown.table(_claims(summary.stated(studies)))]
    for name, of_source in summary.by_source(studies).items():
        conclusion = summary.conclusion(of_source)
        parts += [f"## {markdown.escaped(name)}", markdown.escaped(f"{conclusion[:1].upper()}{conclusion[1:]}.")]
        for results in of_source:
            described = f"{source(results)}: {results.study.title}. {spent(results.runs)}"
            parts.append(f"**{_link(results)}** {markdown.escaped(described)}")
            if (found := short_table(results)) is not None:
                parts.append(markdown.table(found))
    return "\n\n".join([*parts, CAPTION, "## What was run", markdown.table(_overview(studies))]) + "\n"


def short_table(results: Results) -> Table | None:
    """A study's accuracies and first epochs, one row of the source's a cell, and its training.

    The labels of `Study.across` head the columns, and the rest of the rows' names the lines; without it all rows stand
    on one line; what is empty is left out. None for a study without runs, and for one whose source prints no such
    number, even if it is missing in our copy.
    """
    study = results.study
    shown = [measure for measure in NAMES if measure in study.measures and _is_printed(study, measure)]
    if results.best.empty or not shown:
        return None
    cells: dict[str, dict[str, str]] = {}
    trained: dict[str, dict[str, None]] = {}
    for measure in shown:
        for line in results.lines:
            down, across = position(study, line.row)
            name = ", ".join(filter(None, [down, NAMES[measure] if len(shown) > 1 or not down else ""]))
            if text := _cell(line, measure):
                cells.setdefault(name, {})[across] = ", ".join(filter(None, [text, unlearned(line.cell(measure))]))
                if line.setting:
                    trained.setdefault(name, {})[line.training] = None
    filled = {across for of_line in cells.values() for across in of_line}
    columns = [
        across for across in dict.fromkeys(position(study, line.row)[1] for line in results.lines) if across in filled
    ]
    rows = [
        [name, *(of_line.get(across, "") for across in columns), "; ".join(trained.get(name, {}))]
        for name, of_line in cells.items()
    ]
    return Table(study.title, ["", *columns, "training"], "l" + "r" * len(columns) + "l", rows)


def position(study: Study, row: Row) -> tuple[str, str]:
    """The line and the column of a row in its study's short table."""
    if study.across is None:
        return "", row.name
    label = row.labels[study.columns.index(study.across)]
    return " ".join(row.name.replace(label, "", 1).split()), label


def _claim_row(claim: MeasuredClaim) -> list[str]:
    """DA-CapsNet is better by 2.52 points, +1.89 points (+0.07 to +3.71), supported so far, 10 of 100 epochs."""
    judged = Marked(f"**{markdown.escaped(answers(claim))}**") if claim.holds else answers(claim)
    return [
        summary.short(claim),
        effect(claim.claim, claim.measured) if claim.measured else "",
        judged,
        training(claim),
    ]


def _number_row(studies: Sequence[Results]) -> list[list[str]]:
    """The published number of which most is known, and ours: 91.36 % of CapsNet SVHN, 79.64 ± 0.77 (3) %, 40 epochs."""
    found: list[tuple[tuple[float, ...], list[str]]] = []
    for line in (line for results in studies for line in results.lines):
        cell, setting = line.cell("accuracy"), line.setting
        if (
            setting
            and line.runs
            and cell.verdict not in (None, "not comparable")
            and not (line.row.reading_of or cell.unstable)
        ):
            trained = ", ".join(filter(None, [cell.so_far or line.training, unlearned(cell)]))
            published, _, measured = _cell(line, "accuracy").partition(" → ")
            data = title(line.runs[0].data)
            name = line.row.name if data in line.row.name else f"{line.row.name} on {data}"
            row = [
                f"Accuracy of {name}: {published} %",
                f"{measured} %",
                Marked(f"**{verdict(cell)}**"),
                trained,
            ]
            decided = cell.verdict not in (*UNDECIDED, "compatible, imprecise")
            found.append(((setting.whole, setting.fraction, decided, cell.n), row))
    return [max(found, key=lambda one: one[0])[1]] if found else []


def _claims(claims: Sequence[Stated]) -> Table:
    """Claims with runs or counts, by verdict, each followed by its readings."""
    rows = []
    for one in sorted((one for one in claims if one.tested), key=lambda one: summary.rank(one.claim.decided)):
        rows.append([_link(one.results), summary.short(one.claim), *claim_texts(one.claim)])
        for results, reading in one.readings:
            if reading.measured:
                rows.append([_link(results), f"reading: {summary.short(reading)}", *claim_texts(reading)])
    columns = ["study", "claim", "claimed", "printed", "measured", "verdict", "p", "from"]
    return Table("", columns, "l" * len(columns), rows)


def _overview(studies: Sequence[Results]) -> Table:
    """A line a study: how much of it was run, and its verdicts."""
    rows = [
        [
            *(_link(results), source(results), results.study.title, summary.rows_run([results])),
            *(summary.trainings(results), summary.conclusion([results])),
        ]
        for results in studies
    ]
    return Table("", ["study", "source", "what", "rows run", "training (rows)", "verdicts"], "lllrll", rows)


def _cell(line: Line, measure: str) -> str:
    cell = line.cell(measure)
    number = published_number(cell.published)
    published = number.text if number else ""
    if number and len(published.partition(".")[2]) > DIGITS[measure]:  # 99.70999908, after single precision
        published = decimal(number.value, DIGITS[measure])
    measured = mean_and_spread(cell)
    return " ".join(filter(None, [published, measured and f"→ {measured}"]))


def _is_printed(study: Study, measure: str) -> bool:
    return bool({row.published.get(measure) for row in study.rows} - {None, "not reported", "not specified"})


def _spent(studies: Sequence[Results], unassigned: int) -> str:
    """How many runs there are, and what they took."""
    runs = pd.concat([results.runs for results in studies]).drop_duplicates("key")
    if runs.empty:
        return "No runs."
    whole = sum(setting.whole for setting in runs.setting)
    judged = summary.numbers(studies)
    sentences = [
        markdown.escaped(spent(runs)),
        f"{whole} of them were trained as long as the paper's. Their records are in [runs](runs).",
        f"Published accuracies and epochs with runs: {summary.listed(map(verdict, judged))}." if judged else "",
        f"Records of no study: {unassigned}." if unassigned else "",
    ]
    return " ".join(filter(None, sentences))


def _link(results: Results) -> str:
    name = results.study.name
    return Marked(f"[{markdown.escaped(name)}](tables/{quote(name)}.md)")

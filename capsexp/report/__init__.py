"""One page about everything that was run, complete in one file: `results/report.html`.

It shows the sheets and claims of capsexp.results.contents, as the Markdown pages do, and beside them the figures, what
was run where, how to repeat it, and every run. The same records and figures give the same bytes.
"""

import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsexp.errors import InputError
from capsexp.files import write_atomically
from capsexp.report import pictures, runs, where
from capsexp.report.pictures import Picture
from capsexp.results import contents, sheets, tables
from capsexp.results.aggregate import Outcome, read_runs
from capsexp.results.commands import commands
from capsexp.results.contents import ClaimText, Contents
from capsexp.results.sheets import LEFT, Sheet
from capsexp.results.tables import Table
from capsexp.study import studies

HERE = Path(__file__).parent

#: What a verdict means for the published number or claim: it holds, it differs from ours, it is open.
HOLDS, DIFFERS, OPEN = "holds", "differs", "open"
MEANINGS = {
    **dict.fromkeys(("reproduced", "confirmed", "equal"), HOLDS),
    **dict.fromkeys(("published higher", "published lower", "different"), DIFFERS),
    **dict.fromkeys(("smaller than claimed", "larger than claimed", "not reproduced", "contradicted"), DIFFERS),
}


@dataclass(frozen=True)
class Chapter:
    """A study on the page."""

    name: str
    source: str
    whole: Contents
    claims: Sheet | None
    pictures: list[Picture]
    elsewhere: list[Picture]  # that another study has already shown
    commands: list[tuple[str, str]]  # rows, and what repeats them
    spent: str


def regenerate(*, results: Path, output: Path, check: bool = False) -> Outcome:
    """Makes the page out of the records in `results` and the figures in `results/figures`.

    Args:
        check: writes nothing; `changed` says whether something would be.

    Raises InputError where there is no such folder.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder; the records are in results/runs")
    outcome = Outcome()
    found = read_runs(results, outcome)
    made = [tables.make(studies.load(name), found) for name in studies.names()]
    folder = quote(Path(os.path.relpath(results / "runs", output.parent)).as_posix())
    content = page(made, outcome, found, pictures.load(results / "figures"), folder).encode()
    if not output.exists() or output.read_bytes() != content:
        outcome.changed.append(output)
        if not check:
            write_atomically(output, lambda stream: stream.write(content))
    return outcome


def page(made: Sequence[Table], outcome: Outcome, found: pd.DataFrame, drawn: Sequence[Picture], folder: str) -> str:
    """The page.

    Args:
        found: the runs of the records in `outcome`, in their order.
        drawn: all figures.
        folder: of the records, as seen from the page.
    """
    chapters: list[Chapter] = []
    for table in made:
        chapters.append(_chapter(table, drawn, {picture.name for other in chapters for picture in other.pictures}))
    overview, style, script = contents.overview(made), _own("page.css"), _own("page.js")
    return _template().render(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        facts=_facts(made, found),
        overview=overview,
        overview_rows=[(table.study.name, row) for table, row in zip(made, overview.rows, strict=True)],
        where=where.sheets_of(outcome.records, found),
        problems=outcome.problems,
        chapters=chapters,
        others=[picture for picture in drawn if not any(picture in chapter.pictures for chapter in chapters)],
        run_columns=runs.COLUMNS,
        runs=runs.lines(outcome.records, found, made, folder),
    )


def _chapter(table: Table, drawn: Sequence[Picture], shown: Set[str]) -> Chapter:
    whole, study = contents.contents(table), table.study
    own = [picture for picture in drawn if picture.name in (study.name, *study.figures)]
    return Chapter(
        study.name,
        contents.source(table),
        whole,
        _claims(whole),
        [picture for picture in own if picture.name not in shown],
        [picture for picture in own if picture.name in shown],
        [(", ".join(rows), command) for command, rows in commands(table).items()],
        sheets.spent(table),
    )


def _claims(whole: Contents) -> Sheet | None:
    """A line a claim."""
    if not whole.claims:
        return None
    rows = [[claim.says, claim.claimed, claim.measured, _verdict(claim)] for claim in whole.claims]
    columns = ["claim", "claimed", "measured", "verdict"]
    return Sheet("Claims", columns, LEFT * len(columns), rows, [contents.CLAIMS], whole.claim_marks)


def _verdict(claim: ClaimText) -> str:
    return claim.verdict + (f" ({claim.why})" if claim.why else "") + claim.where


def _facts(made: Sequence[Table], found: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Numbers to begin with, each with its name and what it is made of."""
    lines: list[Any] = found.to_dict("records")
    states = Counter(runs.state(line) for line in lines)
    numbers = contents.verdicts(*made)
    claims = Counter(claim.verdict for _, claim in contents.distinct_claims(made))
    begun = sum(not table.found.empty for table in made)
    return [
        ("runs", f"{len(found):,}", contents.listed(states)),
        ("studies", f"{begun} of {len(made)}", "have runs"),
        ("training", sheets.hours(found.hours.sum()), "training and evaluation, all runs"),
        ("published numbers", f"{numbers.total():,}", contents.listed(numbers)),
        ("claims", f"{claims.total():,}", contents.listed(claims)),
    ]


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"meaning": meaning, "marked": marked, "judged": judged}
    return environment.get_template("page.html")


def meaning(verdict: str) -> str:
    """What a verdict means, whatever is said behind it."""
    return next((found for name, found in MEANINGS.items() if verdict.startswith(name)), OPEN)


def judged(text: str) -> Markup:
    """A verdict as one sees it, and as text what is said behind it: undecided (reduced training) [a]."""
    found = re.fullmatch(r"(.*?)((?: [(\[].*)?)", text, re.DOTALL)
    assert found is not None
    return Markup('<span class="verdict {}">{}</span>{}').format(meaning(text), found[1], marked(found[2]))


def marked(text: str) -> Markup:
    """A text of a sheet, with its marks apart: 99.71 (1) [a, b]."""
    found = re.fullmatch(r"(.*) (\[[a-z]+(?:, [a-z]+)*\])", text, re.DOTALL)
    return Markup('{} <span class="mark">{}</span>').format(*found.groups()) if found else Markup.escape(text)


def _own(name: str) -> Markup:
    """A file beside this one, to be put into the page as it is."""
    return Markup((HERE / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    """What lets this text, and no other, be a style or a script of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

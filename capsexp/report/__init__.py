"""One page about everything that was run, complete in one file: `results/report.html`.

It prints the pages of capsexp.results, as the Markdown files do, and beside them the figures, what was run where, and
every run. The same records and figures give the same bytes.
"""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsexp.files import write_atomically
from capsexp.report import all_runs, pictures
from capsexp.report.pictures import Picture
from capsexp.results import pages, runs, summary
from capsexp.results.collect import Results, collect
from capsexp.results.pages import hours
from capsexp.results.tables import Generated
from capsexp.study import studies

HERE = Path(__file__).parent

#: What a verdict means for the published number or claim: it holds, it differs from ours, it is open.
HOLDS, DIFFERS, OPEN = "holds", "differs", "open"
MEANINGS = {
    **dict.fromkeys(("reproduced", "supported", "no difference, shown", "equal"), HOLDS),
    **dict.fromkeys(("ours is higher", "ours is lower", "different"), DIFFERS),
    **dict.fromkeys(("smaller than claimed", "refuted", "contradicted"), DIFFERS),
}


def regenerate(*, results: Path, output: Path, check: bool = False) -> Generated:
    """Makes the page out of the records in `results` and the figures in `results/figures`.

    Args:
        check: writes nothing; `changed` has the page if it would be written.

    Raises InputError where there is no such folder.
    """
    found, problems = runs.read(results)
    collected = collect([studies.load(name) for name in studies.names()], found)
    folder = quote(Path(os.path.relpath(results / "runs", output.parent)).as_posix())
    content = document(collected, found, pictures.load(results / "figures"), folder, problems).encode()
    made = Generated(problems=problems)
    if not output.exists() or output.read_bytes() != content:
        made.changed.append(output)
        if not check:
            write_atomically(output, lambda stream: stream.write(content))
    return made


def document(
    collected: Sequence[Results], found: pd.DataFrame, drawn: Sequence[Picture], folder: str, problems: Sequence[str]
) -> str:
    """The page.

    Args:
        found: all runs.
        drawn: all figures.
        folder: of the records, relative to the page.
        problems: a line for each record that can't be used.
    """
    shown: set[str] = set()
    chapters = []
    for results in collected:
        own = [picture for picture in drawn if picture.name in (results.study.name, *results.study.figures)]
        chapters.append(
            {
                "page": pages.page(results),
                "source": pages.source(results),
                "pictures": [picture for picture in own if picture.name not in shown],
                "elsewhere": [picture for picture in own if picture.name in shown],  # that another study has shown
            }
        )
        shown |= {picture.name for picture in own}
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return _template().render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        facts=_facts(collected, found),
        overview=summary.overview(collected),
        environments=all_runs.environments(found),
        problems=problems,
        chapters=chapters,
        others=[picture for picture in drawn if picture.name not in shown],
        columns=all_runs.COLUMNS,
        runs=all_runs.entries(found, collected, folder),
    )


def _facts(collected: Sequence[Results], found: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Numbers to begin with, each with its name and its parts."""
    numbers = [cell for _, cell in summary.numbers(collected)]
    claims = [one.claim for one in summary.stated(collected)]
    begun = sum(not results.runs.empty for results in collected)
    return [
        ("runs", f"{len(found):,}", summary.listed(found.state)),
        ("studies", f"{begun} of {len(collected)}", "have runs"),
        ("training", hours(found.hours.sum()), "training and evaluation, all runs"),
        ("published numbers", f"{len(numbers):,}", summary.listed(str(cell.verdict) for cell in numbers)),
        ("claims", f"{len(claims):,}", summary.listed(claim.verdict for claim in claims)),
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
    """What a verdict means, whatever reason stands behind it."""
    return next((found for name, found in MEANINGS.items() if verdict.startswith(name)), OPEN)


def judged(text: str) -> Markup:
    """A verdict in its colour, and its p-value."""
    verdict, comma, rest = text.partition(", p ")
    return Markup('<span class="verdict {}">{}</span>{}').format(meaning(verdict), verdict, f"{comma}{rest}")


def marked(text: str) -> Markup:
    """A text with its footnotes set apart: 99.71 (1) [a, b]."""
    found = re.fullmatch(r"(.*) (\[[a-z]+(?:, [a-z]+)*\])", text, re.DOTALL)
    return Markup('{} <span class="mark">{}</span>').format(*found.groups()) if found else Markup.escape(text)


def _hash(text: str) -> str:
    """The digest that the page's policy allows as its only style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

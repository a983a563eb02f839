"""One page about everything that was run, complete in one file: `results/report.html`.

It begins with the answer and the claims by verdict; then a card a source, and the pages of capsexp.tables, as the
Markdown files have them, with the figures, the curves of all runs, and every run. The same records and figures give the
same bytes.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsexp.figures.forest import STYLE, Theme, anchor, forest, meaning, shorter
from capsexp.report import all_runs, curves, pictures, strips
from capsexp.report.curves import Epochs
from capsexp.report.pictures import Picture
from capsexp.results import runs
from capsexp.results.collect import Results, collect_by_source
from capsexp.study import studies
from capsexp.study.studies import published_number
from capsexp.tables import pages, summary
from capsexp.tables.generate import Generated, update
from capsexp.tables.pages import Table

HERE = Path(__file__).parent

#: The picture for screens, tablets and phones: its width, and whether it has rows for open claims.
FORESTS = {"desk": (960, True), "tablet": (720, False), "phone": (360, False)}

#: What each verdict says, in the order of summary.ORDER, and why there is none.
VERDICTS = {
    "supported": "the 95 % interval of the effect lies on the claimed side of 0, after Holm’s correction, too; of no "
    "increase or decrease: the 90 % interval ends within the margin",
    "no difference, shown": "the 90 % interval lies within the margin around 0",
    "contradicted": "the interval lies on the other side of 0, after Holm’s correction, too; of no difference, "
    "increase, decrease: beyond the margin",
    "ceiling": "the claimed gain is more than what our baseline lacks to 100 %",
    "open (one run)": "a network has one run, and the effect is not far beyond the spread of others",
    "open": "the interval decides nothing",
    "reproduced": "the published number lies in the 95 % interval for one more run of ours, which is narrow enough",
    "compatible, imprecise": "it lies in that interval, which is wide",
    "ours is higher": "it lies below that interval",
    "ours is lower": "it lies above that interval",
    "unstable": "the seeds differ far more than those of other rows",
    "not comparable": "our training is less than half of the paper's",
    "equal": "the number of parameters is the published one, as far as it is printed",
    "different": "it is another one",
    "no comparable runs": "the runs that there are can’t be compared, mostly as they end before the maximum",
    "not run": "no runs yet",
    "untested": "nothing here could test it",
}

#: The claims as the README shows them.
PICTURES: dict[str, Theme] = {"claims_light.svg": "light", "claims_dark.svg": "dark"}


def regenerate(names: Sequence[str] = (), *, results: Path, output: Path, check: bool = False) -> Generated:
    """Makes the page out of the records in `results` and the figures there; of all studies PICTURES, too.

    Args:
        names: of the studies; all of them if none is named.
        check: writes nothing; `changed` has what would be written. A page that isn't there is not compared.

    Raises InputError where there is no such folder.
    """
    chosen = [studies.load(name) for name in names or studies.names()]
    found, problems = runs.read(results)
    collected = collect_by_source(chosen, found)
    found = found[~found.part.astype(bool)]
    folder = quote(Path(os.path.relpath(results / "runs", output.parent)).as_posix())
    drawn, epochs = pictures.load(results / "figures"), curves.read(results, found)
    claims = {} if names else PICTURES
    files = {results / "figures" / name: forest(collected, theme, undecided=False) for name, theme in claims.items()}
    if not check or output.exists():
        files[output] = document(collected, found, drawn, folder, problems, epochs)
    return Generated(problems=problems, changed=update(files, check))


def document(
    collected: Sequence[Results],
    found: pd.DataFrame,
    drawn: Sequence[Picture],
    folder: str,
    problems: Sequence[str],
    epochs: Epochs,
) -> str:
    """The page.

    Args:
        found: all runs.
        drawn: all figures.
        folder: of the records, relative to the page.
        problems: a line for each record that can't be used.
        epochs: of finished runs.
    """
    shown: set[str] = set()
    sources = []
    for name, of_source in summary.by_source(collected).items():
        chapters = []
        for results in of_source:
            own = [picture for picture in drawn if picture.name in (results.study.name, *results.study.figures)]
            chapters.append(_chapter(results, own, shown))
            shown |= {picture.name for picture in own}
        sources.append({**_card(of_source), "name": name, "chapters": chapters})
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    style += STYLE
    return _template().render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        answer=summary.answer(collected),
        forests={name: forest(collected, width=width, undecided=wide) for name, (width, wide) in FORESTS.items()},
        verdicts=VERDICTS,
        notes=pages.NOTES,
        rule=pages.RULE,
        sources=sources,
        spent=pages.spent(found),
        states=summary.listed(found.state),
        curves=curves.data(collected, epochs),
        environments=all_runs.environments(found),
        problems=problems,
        others=[picture for picture in drawn if picture.name not in shown],
        columns=all_runs.COLUMNS,
        runs=all_runs.entries(found, collected, folder),
    )


def _card(of_source: Sequence[Results]) -> dict[str, Any]:
    """What is known of a source's numbers, and how much of it was run."""
    return {
        "conclusion": summary.conclusion(of_source),
        "strip": strips.published(summary.numbers(of_source)),
        "run": f"{summary.rows_run(of_source)} rows run",
        "spent": pages.spent(pd.concat([results.runs for results in of_source])),
    }


def _chapter(results: Results, own: Sequence[Picture], shown: set[str]) -> dict[str, Any]:
    page = pages.page(results)
    trainings = shorter(summary.trainings(results))
    tables: list[dict[str, Any]] = []
    for table in page.tables:
        if table.title == "Claims":
            tables += _claims(results, table)
        else:
            dots = strips.seeds(results, table)
            tables.append({"table": _without_repetition(results, table), "seeds": dots, "anchors": None})
    opened = [one for one in tables if _opened(results, one["table"])]
    return {
        "page": page,
        "source": pages.source(results),
        "run": f"{summary.rows_run([results])} rows run" + (f": {trainings}" if trainings else ""),
        "opened": opened,
        "folded": [one for one in tables if one not in opened],
        "pictures": [picture for picture in own if picture.name not in shown],
        "elsewhere": [picture for picture in own if picture.name in shown],  # that another study has shown
    }


def _opened(results: Results, table: Table) -> bool:
    """Whether a table needn't be unfolded: tested claims, and accuracies of which any is printed in the source."""
    if table.title == "Accuracy":
        return any(published_number(row.published.get("accuracy")) for row in results.study.rows)
    return table.title == "Claims"


def _claims(results: Results, table: Table) -> list[dict[str, Any]]:
    """The claims that were tested, and the others in a table of their own."""
    parts = []
    for title, tested in (("Claims", True), ("Claims not tested", False)):
        places = [place for place, one in enumerate(results.claims) if (one.measured is not None) == tested]
        part = replace(table, title=title, rows=[table.rows[place] for place in places])
        anchors = [anchor(results, results.claims[place]) for place in places]
        if places:
            parts.append({"table": part, "seeds": None, "anchors": anchors})
    return parts


def _without_repetition(results: Results, table: Table) -> Table:
    """A table of a study's rows whose first column leaves out what the other labels say."""
    labels = len(results.study.columns)
    if table.columns[:labels] != results.study.columns:
        return table
    rows = []
    for name, *others in table.rows:
        left = " ".join(word for word in name.split() if word not in " ".join(others[: labels - 1]).split())
        rows.append([left or name, *others])
    return replace(table, rows=rows)


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"meaning": meaning, "judged": judged, "shorter": shorter, "quoted": quoted}
    return environment.get_template("page.html")


def judged(text: str) -> Markup:
    """A verdict in its colour."""
    return Markup('<span class="verdict {}">{}</span>').format(meaning(text), text)


def quoted(text: str) -> Markup:
    """A claim, and its place in the source in small letters."""
    claim = summary.without_place(text)
    return Markup("{}<small>{}</small>").format(claim, text.removeprefix(claim))


def _hash(text: str) -> str:
    """The digest that the page's policy allows as its only style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

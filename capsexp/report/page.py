"""One page about everything that was run, complete in one file: `results/report.html`.

It begins with the answer, its picture and the verdicts on all claims. Then a section per source: its tables as printed,
with ours in them, its claims, its figures, and folded all numbers of the pages of capsexp.tables. Then the curves of
all runs, and every run. The same records and figures give the same bytes.
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsexp.figures.answer import Answer, gains
from capsexp.report import all_runs, curves, forest, pictures, strips
from capsexp.report.forest import MARKS, meaning
from capsexp.report.pictures import Picture
from capsexp.results import runs
from capsexp.results.collect import Results, collect_by_source
from capsexp.results.runs import Run
from capsexp.study import studies
from capsexp.tables import pages, summary
from capsexp.tables.generate import Generated, update
from capsexp.tables.pages import Table
from capsexp.tables.texts import claim_texts, shorter

HERE = Path(__file__).parent

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


def regenerate(names: Sequence[str] = (), *, results: Path, output: Path, check: bool = False) -> Generated:
    """Makes the page out of the records in `results` and the figures there.

    Args:
        names: of the studies; all of them if none is named.
        check: writes nothing; `changed` has what would be written. A page that isn't there is not compared.

    Raises InputError where there is no such folder.
    """
    chosen = [studies.load(name) for name in names or studies.names()]
    recorded, problems = runs.read(results)
    collected = collect_by_source(chosen, recorded)
    recorded = [run for run in recorded if not run.part]
    folder = quote(Path(os.path.relpath(results / "runs", output.parent)).as_posix())
    drawn = pictures.load(results / "figures", answer=not names)
    if check and not output.exists():
        return Generated(problems=problems)
    page = document(collected, recorded, drawn, folder, problems)
    return Generated(problems=problems, changed=update({output: page}, check))


def document(
    collected: Sequence[Results],
    recorded: Sequence[Run],
    drawn: Mapping[str, Picture],
    folder: str,
    problems: Sequence[str],
) -> str:
    """The page.

    Args:
        recorded: all runs.
        drawn: the figures, by name.
        folder: of the records, relative to the page.
        problems: a line for each record that can't be used.
    """
    answer = Answer(gains(collected))
    by_source = summary.by_source(collected)
    sources = [_source(name, of_source, drawn) for name, of_source in by_source.items()]
    bar = forest.bar([one.claim for one in summary.stated(collected)])
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    style += "\n".join(f".bar li:nth-child({place}) {{ flex-grow: {one[2]}; }}" for place, one in enumerate(bar, 1))
    right = (place for place, column in enumerate(all_runs.COLUMNS.values(), 1) if column.kind == "number")
    style += "".join(f"\n.runs td:nth-child({place}) {{ text-align: right; }}" for place in right)
    return _template().render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        answer=answer,
        pictures={when: drawn[name] for when, name in pictures.ANSWERS.items() if name in drawn},
        counts=summary.answer(collected),
        bar=bar,
        marks=MARKS,
        verdicts=VERDICTS,
        notes=pages.NOTES,
        rule=pages.RULE,
        sources=sources,
        spent=pages.spent(recorded),
        states=summary.listed(run.state for run in recorded),
        curves=curves.data(collected, answer.gains[0].one if answer.gains else None),
        environments=all_runs.environments(recorded),
        problems=problems,
        columns=all_runs.COLUMNS,
        runs=all_runs.entries(recorded, collected, folder),
    )


def _source(name: str, of_source: Sequence[Results], drawn: Mapping[str, Picture]) -> dict[str, Any]:
    """A source's section."""
    named = dict.fromkeys(name for one in of_source for name in (one.study.name, *one.study.figures) if name in drawn)
    return {
        "name": name,
        "conclusion": summary.conclusion(of_source),
        "run": f"{summary.rows_run(of_source)} rows run",
        "spent": pages.spent(run for results in of_source for run in results.runs),
        "chapters": [_chapter(results) for results in of_source],
        "claims": _claims(of_source),
        "pictures": [drawn[name] for name in named],
    }


def _chapter(results: Results) -> dict[str, Any]:
    """A study: its table as printed, and all its numbers."""
    page, trainings = pages.page(results), shorter(summary.trainings(results))
    return {
        "page": page,
        "source": pages.source(results),
        "run": f"{summary.rows_run([results])} rows run" + (f": {trainings}" if trainings else ""),
        "tables": [{"table": _without_repetition(table), "seeds": strips.seeds(table)} for table in page.tables],
    }


def _claims(of_source: Sequence[Results]) -> dict[str, list[dict[str, Any]]]:
    """A source's claims, each once and followed by its readings: those that were tested, by verdict, and the others."""
    rows: dict[str, list[dict[str, Any]]] = {"tested": [], "untested": []}
    for one in sorted(summary.stated(of_source), key=lambda one: summary.rank(one.claim.decided)):
        for _, claim in one.shown:
            row = {"claim": claim, "texts": claim_texts(claim), "effect": forest.effect(claim)}
            rows["tested" if one.tested else "untested"].append(row)
    return rows


def _without_repetition(table: Table) -> Table:
    """The table, its rows' names without what their other labels say."""
    labels, rows = max(1, table.kinds.count("n")), []
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
    """A verdict with the mark and the colour of what it means."""
    kind = meaning(text)
    return Markup('<span class="verdict {}">{}&nbsp;{}</span>').format(kind, MARKS[kind], text)


def quoted(text: str) -> Markup:
    """A claim, and its place in the source in small letters."""
    claim = summary.without_place(text)
    return Markup("{}<small>{}</small>").format(claim, text.removeprefix(claim))


def _hash(text: str) -> str:
    """The digest that the page's policy allows as its only style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

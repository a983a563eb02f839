"""The generated files of all studies: results/tables and the README's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from capsexp.config.searchpath import ROOT
from capsexp.files import write_file
from capsexp.results import runs
from capsexp.results.cells import Cell
from capsexp.results.collect import Results, collect_by_source
from capsexp.results.runs import Run
from capsexp.study import studies
from capsexp.study.setting import Setting
from capsexp.study.studies import published_number
from capsexp.tables import latex, markdown, pages
from capsexp.tables.pages import Page
from capsexp.tables.readme import filled, index
from capsexp.tables.texts import one_line

CELL = [field.name for field in fields(Cell)]

#: What a spreadsheet's formula begins with.
_FORMULA = ("=", "+", "-", "@")

SUFFIXES = (".md", ".csv", ".tex")


@dataclass
class Generated:
    """What was made of the records."""

    pages: list[Page] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)  # written or, of a check, to be written
    removed: list[Path] = field(default_factory=list)  # of studies that no longer exist
    problems: list[str] = field(default_factory=list)  # a line for each record that can't be used
    runs: list[Run] = field(default_factory=list)  # of all records
    unassigned: int = 0  # of them, those that belong to no study
    shown: int = 0  # runs on the pages

    @property
    def trials(self) -> int:
        """How many of the runs are of a few steps, which are left out."""
        return sum(run.state == "trial" for run in self.runs)


def regenerate(
    names: Sequence[str] = (),
    typed: Sequence[str] = (),
    *,
    results: Path = ROOT / "results",
    output: Path | None = None,
    readme: Path | None = None,
    check: bool = False,
) -> Generated:
    """Makes the tables of studies out of the records in `results`/runs.

    Args:
        names: of the studies; all of them if none is named.
        typed: what replaces the rows' own choices, as on the command line; see capsexp.study.selection.
        output: the folder that gets NAME.md, NAME.csv and NAME.tex; None writes none. With `results`/tables, and all
            studies, `results`/README.md is their index, unless there is another file of that name.
        readme: the README whose numbers are filled again, for all studies; None leaves it alone.
        check: writes nothing; `changed` and `removed` are what would be.

    Raises InputError for a study or a folder that doesn't exist, and for typed words that make no sense.
    """
    chosen = [studies.load(name) for name in names or studies.names()]
    recorded, problems = runs.read(results)
    collected = collect_by_source(chosen, recorded, typed)
    own = [run for run in recorded if not run.part]
    made = Generated([pages.page(one) for one in collected], problems=problems, runs=own)
    made.shown = sum(len(one.runs) for one in collected)
    files: dict[Path, str] = {}
    if output is not None:
        for page, one in zip(made.pages, collected, strict=True):
            texts = markdown.document(page), csv(one), latex.document(page)
            files |= {output / f"{page.name}{suffix}": text for suffix, text in zip(SUFFIXES, texts, strict=True)}
    if not (names or typed):
        keys = {run.key for run in own if run.state != "trial"}
        made.unassigned = len(keys - {run.key for one in collected for run in one.runs})
        if readme is not None:
            files[readme], stale = filled(readme, collected)
            made.problems += stale
        if output == results / "tables" and markdown.may_replace(results / "README.md"):
            files[results / "README.md"] = index(collected, made.unassigned)
        if output is not None:
            made.removed = _stale(output, {page.name for page in made.pages})
    made.changed = update(files, check)
    for path in made.removed if not check else []:
        path.unlink()
    return made


def update(files: Mapping[Path, str], check: bool) -> list[Path]:
    """The files whose texts are others, or that are missing; they are written, but for a check."""
    contents = {path: text.encode() for path, text in files.items()}
    changed = [path for path, content in contents.items() if not path.exists() or path.read_bytes() != content]
    for path in changed if not check else []:
        write_file(path, contents[path])
    return changed


def csv(results: Results) -> str:
    """A line per row, setting, protocol and measure, with unrounded numbers; lists are separated by blanks.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    import pandas as pd  # takes 35 MB: not for the report

    study, labels = results.study, results.study.columns[1:]
    own = [f"{name} (label)" if name in CELL else name for name in labels]
    rows = {row.name: dict(zip(own, row.labels[1:], strict=True)) for row in study.rows}
    lines = []
    for cell in results.cells:
        if cell.runs or cell.published is not None:
            values = {name: getattr(cell, name) for name in CELL}
            texts = {name: " ".join(map(str, values[name])) for name in ("seeds", "values", "bounds", "keys")}
            lines.append({"study": study.name, "row": cell.row, **rows[cell.row], **values, **texts})
    columns = ["study", "row", *own, *CELL[2:]]
    return pd.DataFrame(lines, columns=columns, dtype=object).map(_no_formula).to_csv(index=False, lineterminator="\n")


def _no_formula(value: Any) -> Any:
    """A cell's value; texts on one line, and none but numbers begins like a formula."""
    if not isinstance(value, str | Setting):
        return value
    text = one_line(str(value))
    return f"'{text}" if text.startswith(_FORMULA) and published_number(text) is None else text


def _stale(output: Path, names: set[str]) -> list[Path]:
    """The files of studies that no longer exist: those beside a page that was generated."""
    pages = [path for path in sorted(output.glob("*.md")) if path.stem not in names]
    generated = [path for path in pages if markdown.may_replace(path)]
    files = [path.with_suffix(suffix) for path in generated for suffix in SUFFIXES]
    return [path for path in files if path.exists()]

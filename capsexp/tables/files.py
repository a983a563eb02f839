"""The generated files of all studies: results/tables, results/README.md and the README's block."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsexp.config.searchpath import ROOT
from capsexp.files import write_file
from capsexp.results import runs, steps
from capsexp.results.cells import Cell
from capsexp.results.runs import Run
from capsexp.results.study import StudyResults, measure
from capsexp.study import studies
from capsexp.study.selection import PAPER
from capsexp.study.studies import published_number
from capsexp.tables import index, markdown, pages
from capsexp.tables.texts import one_line, six_digits

if TYPE_CHECKING:
    from pandas import DataFrame

CELL = [field.name for field in fields(Cell)]

#: What a spreadsheet's formula begins with.
_FORMULA = ("=", "+", "-", "@")

#: A number that isn't whole, as CSV files have it.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e-\d+)?|e-\d+)(?![\w.])")

#: What LaTeX takes as commands, or has in other fonts only.
_TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: f"{{{letter}}}" for letter in "[*"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "−": "$-$", "≥": r"$\ge$"}
)


@dataclass
class Generated:
    """What was made of the records."""

    changed: list[Path] = field(default_factory=list)  # written or, of a check, to be written
    problems: list[str] = field(default_factory=list)  # a line for each record that can't be used
    runs: list[Run] = field(default_factory=list)  # of all records
    unassigned: int = 0  # of them, those in no table
    measured: list[StudyResults] = field(default_factory=list)


def regenerate(
    names: Sequence[str] = (),
    typed: Sequence[str] = (),
    setting: str = PAPER,
    *,
    results: Path = ROOT / "results",
    output: Path | None = None,
    readme: Path | None = None,
    check: bool = False,
) -> Generated:
    """Makes the tables of studies out of the records in `results`/runs.

    Args:
        names: of the studies; all of them if none is named.
        typed: KEY=VALUE; see capsexp.study.selection.
        setting: the one that they change, where they make another.
        output: the folder that gets NAME.md and NAME.csv of whole studies, elsewhere than in the project's results of
            those with runs; None writes none. With `results`/tables, and all studies, `results`/README.md is their
            index, unless there is another file of that name.
        readme: the README whose block, if it has one, is made again, for all studies; None leaves it alone.
        check: writes nothing; `changed` is what would be.

    Raises InputError for a study or a folder that doesn't exist, and for typed words that make no sense.
    """
    chosen = studies.load_all(names or studies.names())
    recorded, problems = runs.read(results)
    measured = measure(chosen, recorded, typed, steps.read(results), setting)
    made = Generated(problems=problems, runs=recorded, measured=measured)
    files: dict[Path, str] = {}
    project = results.resolve() == (ROOT / "results").resolve()
    written = [one for one in measured if project or one.runs]
    if output is not None:
        there = {path.name for path in (results / "figures").glob("*.svg")}
        for one in written:
            drawn = [name for name in one.study.pictures if f"{name}_light.svg" in there]
            text = markdown.document(one, {name: f"{name}_narrow_light.svg" in there for name in drawn})
            files |= {output / f"{one.study.name}.md": text, output / f"{one.study.name}.csv": csv(one)}
    if not (names or typed):
        made.unassigned = len({run.key for run in recorded} - {run.key for one in measured for run in one.runs})
        if readme is not None and index.has_block(readme):
            files[readme] = index.filled(readme, measured)
        if output == results / "tables" and markdown.may_replace(results / "README.md"):
            files[results / "README.md"] = index.index(written, made.unassigned)
    made.changed = update(files, check)
    return made


def update(files: Mapping[Path, str], check: bool) -> list[Path]:
    """The files whose texts are others, or that are missing; they are written, but for a check."""
    changed = [path for path, text in files.items() if not (path.is_file() and _is_same(path, text))]
    for path in changed if not check else []:
        write_file(path, files[path])
    return changed


def _is_same(path: Path, text: str) -> bool:
    """Whether a file has this text; in a CSV file, numbers may differ by one in the sixth digit."""
    old = path.read_bytes().decode(errors="replace")
    if path.suffix != ".csv" or _NUMBER.sub("0", old) != _NUMBER.sub("0", text):
        return old == text
    pairs = zip(map(float, _NUMBER.findall(old)), map(float, _NUMBER.findall(text)), strict=True)
    return all(abs(a - b) < 1e-9 + 1.5 * min(0.1, 10 ** (math.floor(math.log10(abs(a) + 1e-9)) - 5)) for a, b in pairs)


def csv(results: StudyResults) -> str:
    """A line per row, setting, protocol and measure with a number, ours or a published one, and per accuracy with runs;
    numbers have six significant digits, lists are separated by blanks.
    """
    import pandas as pd

    study, labels = results.study, results.study.columns[1:]
    own = [f"{name} (label)" if name in CELL else name for name in labels]
    rows = {row.name: dict(zip(own, row.labels[1:], strict=True)) for row in study.rows}
    lines = []
    for cell in results.cells:
        if cell.n or cell.published is not None or (cell.runs and cell.measure == "accuracy"):
            values = {name: getattr(cell, name) for name in CELL} | {"values": [*map(six_digits, cell.values)]}
            values |= {name: six_digits(one) for name, one in values.items() if isinstance(one, float)}
            texts = {name: " ".join(map(str, values[name])) for name in ("seeds", "values", "bounds", "keys")}
            lines.append({"study": study.name, "row": cell.row, **rows[cell.row], **values, **texts})
    columns = ["study", "row", *own, *CELL[2:]]
    return csv_text(pd.DataFrame(lines, columns=columns, dtype=object))


def csv_text(frame: "DataFrame") -> str:
    """A table as CSV; each text is on one line, and none is what a spreadsheet would take for a formula."""
    return frame.map(_no_formula).to_csv(index=False, lineterminator="\n")


def latex(results: StudyResults) -> str:
    """The table of the first setting in LaTeX, for a document that uses booktabs."""
    import pandas as pd

    table = pages.block_tables(results)[0]
    frame = pd.DataFrame(table.rows, columns=[*map(_tex, table.columns)], dtype=str).map(_tex)
    trained = f"Trained: {table.title}." * (not pages.is_of_costs(results.study))
    caption = _tex(" ".join(filter(None, [pages.title(results), pages.about(results), trained, *table.notes])))
    label = f"tab:{results.study.name}"
    return frame.to_latex(index=False, escape=False, column_format=table.alignment, caption=caption, label=label)


def _tex(text: str) -> str:
    """A text on one line and without commands; after a row's end, [ and * would belong to it."""
    return one_line(text).translate(_TEX)


def _no_formula(value: Any) -> Any:
    """A cell's value; texts on one line, and with an apostrophe where one that is no number begins like a formula."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) and published_number(text) is None else text

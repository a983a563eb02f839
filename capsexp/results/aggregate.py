"""Every record, every study, every generated file: results/tables and the README's block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from capsexp.config.compose import ROOT
from capsexp.errors import CapsexpError, InputError, one_line
from capsexp.files import write_atomically
from capsexp.results import findings, render, tables
from capsexp.results.render import Page
from capsexp.run import records
from capsexp.run.records import Record
from capsexp.study import studies

SUFFIXES = {"markdown": ".md", "csv": ".csv", "tex": ".tex"}


@dataclass
class Outcome:
    """What came out."""

    pages: dict[str, Page] = field(default_factory=dict)  # of the studies that were asked for
    changed: list[Path] = field(default_factory=list)  # written, or, of a check, to be written
    removed: list[Path] = field(default_factory=list)  # of studies that are no more
    records: list[Record] = field(default_factory=list)  # that can be used
    problems: list[str] = field(default_factory=list)  # a line each of the others
    strangers: int = 0  # records that belong to no study
    trials: int = 0  # records of a few steps, which are left out


def regenerate(
    names: Sequence[str] = (),
    typed: Sequence[str] = (),
    *,
    results: Path = ROOT / "results",
    output: Path | None = None,
    readme: Path | None = None,
    check: bool = False,
) -> Outcome:
    """Makes the tables of studies out of the records in `results`.

    Args:
        names: of the studies; all of them if none is named.
        typed: what replaces the rows' own choices, as on the command line; see capsexp.study.selection.
        output: the folder that gets NAME.md, NAME.csv and NAME.tex; None writes none.
        readme: the file whose block is made again, for all studies; None leaves it alone.
        check: writes nothing; `changed` and `removed` say what would be.

    Raises InputError for a study that isn't there, and for what can't be typed.
    """
    if not results.is_dir():
        raise InputError(f"{results}: no such folder; the records are in results/runs")
    outcome = Outcome()
    chosen = [studies.load(name) for name in names or studies.names()]
    runs = read_runs(results, outcome)
    made = [tables.make(study, runs, typed) for study in chosen]
    outcome.pages = {table.study.name: render.page(table) for table in made}
    files = {} if output is None else _files(outcome.pages, output)
    if not (names or typed):
        known = set().union(*(table.found.key for table in made))
        outcome.strangers = len(set(runs.key[~runs.trial.astype(bool)]) - known)
        if readme is not None:
            files[readme] = _with_block(readme, findings.block(made, outcome.strangers))
        if output is not None:
            outcome.removed = _stale(output, set(outcome.pages))
    outcome.changed = [path for path, text in files.items() if _read(path) != text]
    if not check:
        for path in outcome.changed:
            content = files[path].encode()
            write_atomically(path, lambda stream, content=content: stream.write(content))  # type: ignore[misc]
        for path in outcome.removed:
            path.unlink()
    return outcome


def read_runs(results: Path, outcome: Outcome) -> pd.DataFrame:
    """The runs of all records that can be used, and those records and what is wrong with the others to `outcome`."""
    lines = []
    for path in sorted((results / "runs").glob("*.json")):
        try:
            record = records.read(path)
            line = tables.measured(record)
            if path.stem != (name := records.run_name(record.identity)):
                raise InputError(f"{path}: is the record of {name}")
            outcome.records.append(record)
            lines.append(line)
        except CapsexpError as error:
            outcome.problems.append(str(error))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            outcome.problems.append(f"{path}: not a record ({type(error).__name__}: {one_line(error)})")
    outcome.trials = sum(line["trial"] for line in lines)
    return pd.DataFrame(lines, columns=tables.COLUMNS)


def _files(pages: dict[str, Page], output: Path) -> dict[Path, str]:
    return {
        output / f"{name}{suffix}": getattr(page, kind)
        for name, page in pages.items()
        for kind, suffix in SUFFIXES.items()
    }


def _with_block(readme: Path, block: str) -> str:
    """The README with the tables of today between its marks."""
    text = _read(readme)
    before, begin, rest = (text or "").partition(findings.BEGIN)
    _, end, after = rest.partition(findings.END)
    if not begin or not end:
        raise InputError(f"{readme}: must have a line {findings.BEGIN} and, below it, a line {findings.END}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def _stale(output: Path, names: set[str]) -> list[Path]:
    """The files of studies that are no more: those beside a page that was made here."""
    pages = [path for path in sorted(output.glob("*.md")) if path.stem not in names]
    made = [path for path in pages if (_read(path) or "").startswith(render.GENERATED)]
    files = [path.with_suffix(suffix) for path in made for suffix in SUFFIXES.values()]
    return [path for path in files if path.exists()]


def _read(path: Path) -> str | None:
    """A file's text; None if there is none."""
    return path.read_bytes().decode(errors="replace") if path.exists() else None

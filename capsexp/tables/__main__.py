"""Makes the tables of studies, measured beside published, from the records: `capsexp tables [STUDY …] [KEY=VALUE …]`.

Without a study: all of them, results/tables/, and the numbers of a README that refers to claims; a single one is
printed, too. A KEY=VALUE replaces the rows' own choice, as in `jiao_table2 data=mnist_sample`; that table is printed,
and written only to a folder given with --output. --take-in DIR first copies the records that another machine made,
those of finished runs that aren't here.
"""

import argparse
import sys
from pathlib import Path

from capsexp.cli import Parser, end_with, folder
from capsexp.errors import DONE, FAILED, InputError, plural, printable

RESULTS, README = Path("results"), Path("README.md")


def main(arguments: list[str] | None = None) -> int:
    """Makes and prints the tables; the exit code."""
    options = _parsed(arguments)
    from capsexp.tables.generate import regenerate  # pandas and torch take seconds to import: --help needs neither
    from capsexp.tables.terminal import print_page

    refused = _take_in(options) if options.take_in else []
    generated = regenerate(
        options.names,
        options.overrides,
        results=options.results,
        output=options.output,
        readme=options.readme,
        check=options.check,
    )
    for page in generated.pages if len(options.names) == 1 and not options.check else []:
        print_page(page)
    for path in generated.changed if not options.check else []:
        print(f"wrote {path}")
    for path in generated.removed if not options.check else []:
        print(f"removed {path}")
    if not options.names:
        counts = (
            f"{plural(generated.unassigned, 'record')} of no study, {plural(generated.trials, 'trial')} of a few steps"
        )
        print(f"{options.results / 'runs'}: {counts}")
    if not generated.shown:
        print(_no_runs(options.results), file=sys.stderr)
    sys.stdout.flush()
    different = [*generated.changed, *generated.removed] if options.check else []
    wrong = [f"{path}: not what the records give; make tables" for path in different]
    for line in [*refused, *generated.problems, *wrong]:
        print(f"error: {line}", file=sys.stderr)
    return FAILED if refused or generated.problems or wrong else DONE


def _take_in(options: argparse.Namespace) -> list[str]:
    """A line for each file that is refused."""
    from capsexp.results import runs

    taken, kept, refused = runs.take_in(options.take_in, options.results)
    for path in taken:
        print(f"took {path}")
    print(
        f"{plural(len(taken), 'record')} taken in from {options.take_in}, {len(kept)} were here, {len(refused)} refused"
    )
    return refused


def _no_runs(results: Path) -> str:
    """Why a table may be empty: which data sets the records are of."""
    from capsexp.results import runs

    found = [run for run in runs.read(results)[0] if not run.part]
    trials = sum(run.state == "trial" for run in found)
    sets = " or ".join(f"data={printable(name)}" for name in sorted({r.data for r in found if r.state != "trial"}))
    hint = f"; none belongs to these tables (with {sets} they may)" if sets else ""
    counts = f"{plural(len(found) - trials, 'record')}, without {plural(trials, 'trial')} of a few steps"
    return f"{results / 'runs'}: {counts}{hint}"


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__, "capsexp tables")
    parser.add_argument("words", nargs="*", metavar="STUDY | KEY=VALUE", help="default: all studies")
    parser.add_argument("--results", type=folder, default=RESULTS, metavar="DIR", help="with the records, in DIR/runs")
    parser.add_argument("--output", type=folder, metavar="DIR", help="for the tables (default: RESULTS/tables)")
    parser.add_argument("--readme", metavar="FILE", help="or none (default: README.md, for all studies)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    parser.add_argument("--take-in", type=folder, metavar="DIR", help="with records, in DIR or in DIR/runs")
    options = parser.parse_words(arguments)
    if options.take_in and options.check:
        raise InputError("--check writes nothing: leave --take-in out")
    if options.output is None and not options.overrides:
        options.output = options.results / "tables"
    if options.readme is not None:
        options.readme = None if options.readme == "none" else Path(options.readme)
    elif options.results == RESULTS and not options.words and README.is_file():
        from capsexp.tables.readme import has_references  # imports pandas: not before --help

        options.readme = README if has_references(README.read_text(encoding="utf-8", errors="replace")) else None
    return options


if __name__ == "__main__":
    end_with(main)

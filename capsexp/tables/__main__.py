"""Makes the tables of studies, measured beside published, from the records: `capsexp tables [STUDY …] [KEY=VALUE …]`.

Without a study: all of them, results/tables/, and the numbers of a README.md that refers to claims; a single one is
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
    if not options.check:
        sys.stdout.writelines(f"wrote {path}\n" for path in generated.changed)
        sys.stdout.writelines(f"removed {path}\n" for path in generated.removed)
    trials = f"{plural(generated.trials, 'trial')} of a few steps"
    if not options.names:
        print(f"{options.results / 'runs'}: {plural(generated.unassigned, 'record')} of no study, {trials}")
    if not generated.shown:  # which data sets are the records of?
        sets = {f"data={printable(run.data)}" for run in generated.runs if run.state != "trial"}
        hint = f"; none belongs to these tables (with {' or '.join(sorted(sets))} they may)" if sets else ""
        counts = f"{plural(len(generated.runs) - generated.trials, 'record')}, without {trials}"
        print(f"{options.results / 'runs'}: {counts}{hint}", file=sys.stderr)
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
    sys.stdout.writelines(f"took {path}\n" for path in taken)
    others = f"{len(kept)} were here, {len(refused)} refused"
    print(f"{plural(len(taken), 'record')} taken in from {options.take_in}, {others}")
    return refused


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__, "capsexp tables")
    parser.add_argument("words", nargs="*", metavar="STUDY | KEY=VALUE", help="default: all studies")
    parser.add_argument("--results", type=folder, default=RESULTS, metavar="DIR", help="with the records, in DIR/runs")
    parser.add_argument("--output", type=folder, metavar="DIR", help="for the tables (default: RESULTS/tables)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    parser.add_argument("--take-in", type=folder, metavar="DIR", help="with records, in DIR or in DIR/runs")
    options = parser.parse_words(arguments)
    if options.take_in and options.check:
        raise InputError("--check writes nothing: leave --take-in out")
    if options.output is None and not options.overrides:
        options.output = options.results / "tables"
    options.readme = None
    if options.results == RESULTS and not options.words and README.is_file():
        from capsexp.tables.readme import has_references  # imports pandas: not before --help

        options.readme = README if has_references(README.read_text(encoding="utf-8", errors="replace")) else None
    return options


if __name__ == "__main__":
    end_with(main)

"""Makes the tables of studies, measured beside published, from the records: `capsexp tables [STUDY …] [KEY=VALUE …]`.

Without a study: all of them, results/tables/, and the block of a README.md between its two comments; a single one is
printed, too. A KEY=VALUE selects rows or replaces their own choice, as in `jiao_table2 data=mnist_sample`; that table
is printed, and written only to a folder given with --output. --latex prints a study's table for LaTeX. Records of
another machine are copied into results/runs; each is checked when it is read.
"""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from capsexp import __version__
from capsexp.cli import Parser, folder
from capsexp.errors import DONE, FAILED, InputError, plural, printable
from capsexp.results.packed import own_or_packed

RESULTS, README = Path("results"), Path("README.md")


def main(arguments: list[str]) -> int:
    """Makes and prints the tables; the exit code."""
    options = _parsed(arguments)
    from capsexp.tables.files import latex, regenerate  # pandas and torch take seconds to import: --help needs neither
    from capsexp.tables.screen import print_page

    with own_or_packed(options.results) if options.results == RESULTS else nullcontext(options.results) as results:
        packed = results != options.results
        generated = regenerate(
            options.names,
            options.overrides,
            results=results,
            output=None if packed and options.output == RESULTS / "tables" else options.output,
            readme=options.readme,
            check=options.check,
        )
    for results_of_study in generated.measured if len(options.names) == 1 and not options.check else []:
        print(latex(results_of_study), end="") if options.latex else print_page(results_of_study)
    if not options.check:
        sys.stdout.writelines(f"wrote {path}\n" for path in generated.changed)
    if packed:
        whose = f"the numbers are of the {len(generated.runs)} runs that version {__version__} comes with"
        print(f"{RESULTS / 'runs'}: no records; {whose}", file=sys.stderr)
        return DONE
    if not options.names:
        print(f"{options.results / 'runs'}: {plural(generated.unassigned, 'record')} in no table")
    if not any(one.runs for one in generated.measured):  # which data sets are the records of?
        sets = {f"data={printable(run.data)}" for run in generated.runs}
        hint = f"; none belongs to these tables (with {' or '.join(sorted(sets))} they may)" if sets else ""
        print(f"{options.results / 'runs'}: {plural(len(generated.runs), 'record')}{hint}", file=sys.stderr)
    sys.stdout.flush()
    different = generated.changed if options.check else []
    wrong = [f"{path}: not what the records give; make tables" for path in different]
    for line in [*generated.problems, *wrong]:
        print(f"error: {line}", file=sys.stderr)
    return FAILED if generated.problems or wrong else DONE


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__, "capsexp tables")
    parser.add_argument("words", nargs="*", metavar="STUDY | KEY=VALUE", help="default: all studies")
    parser.add_argument("--results", type=folder, default=RESULTS, metavar="DIR", help="with the records, in DIR/runs")
    parser.add_argument("--output", type=folder, metavar="DIR", help="for the tables (default: RESULTS/tables)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    parser.add_argument("--latex", action="store_true", help="print the table of one study for LaTeX; write nothing")
    options = parser.parse_words(arguments)
    if options.latex and len(options.names) != 1:
        raise InputError("--latex: for one study")
    if options.latex and (options.output or options.check):
        raise InputError("--latex: writes nothing; leave --output and --check out")
    whole = not options.overrides and ":" not in "".join(options.names)
    if options.output is None and whole and not options.latex:
        options.output = options.results / "tables"
    if options.output is None and options.check:
        raise InputError("--check: compares pages of whole studies; leave rows and KEY=VALUE out")
    options.readme = README if options.results == RESULTS else None
    return options

"""Prints the papers' tables again, out of the records: `python scripts/aggregate.py [STUDY …] [KEY=VALUE …]`.

Without a study: all of them, results/tables/ and the README's block. A KEY=VALUE replaces the rows' own choice, as in
`jiao_table2 data=mnist_sample`; that table is printed, and written only where --output says so.
"""

import argparse
import sys
from pathlib import Path

from capsexp.errors import DONE, FAILED, CapsexpError

RESULTS, README = Path("results"), Path("README.md")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    options = _parsed(arguments)
    from capsexp.results.tables import regenerate  # pandas and torch take seconds to import: --help needs neither
    from capsexp.results.terminal import print_page

    outcome = regenerate(
        options.studies,
        options.typed,
        results=options.results,
        output=options.output,
        readme=options.readme,
        check=options.check,
    )
    shown = outcome.pages if len(options.studies) == 1 and not options.check else []
    for page in shown:
        print_page(page)
    for path in outcome.changed if not options.check else []:
        print(f"wrote {path}")
    for path in outcome.removed if not options.check else []:
        print(f"removed {path}")
    if not options.studies:
        print(f"{outcome.unassigned} records belong to no study, {outcome.trials} are trials of a few steps")
    sys.stdout.flush()
    different = [*outcome.changed, *outcome.removed] if options.check else []
    for line in [*outcome.problems, *(f"{path}: not what the records give; make tables" for path in different)]:
        print(f"error: {line}", file=sys.stderr)
    return FAILED if outcome.problems or different else DONE


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="STUDY | KEY=VALUE", help="all studies, if none is named")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="with the records, in DIR/runs")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for the tables (default: RESULTS/tables)")
    parser.add_argument("--readme", metavar="FILE", help="or none (default: README.md, for all studies of results)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would be changed")
    options = parser.parse_intermixed_args(arguments)
    options.studies = [word for word in options.what if "=" not in word]
    options.typed = [word for word in options.what if "=" in word]
    if options.output is None and not options.typed:
        options.output = options.results / "tables"
    by_default = README if options.results == RESULTS and not options.what else None
    named = options.readme and (None if options.readme == "none" else Path(options.readme))
    options.readme = by_default if options.readme is None else named
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CapsexpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

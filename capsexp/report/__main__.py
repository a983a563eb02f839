"""Makes the report, one page about all runs, of all studies or those named: `capsexp report [STUDY …]`."""

import sys
from pathlib import Path

from capsexp.cli import Parser, end_with, folder
from capsexp.errors import DONE, FAILED


def main(arguments: list[str] | None = None) -> int:
    """Makes the report; the exit code."""
    parser = Parser(__doc__, "capsexp report")
    parser.add_argument("names", nargs="*", metavar="STUDY", help="default: all studies")
    parser.add_argument(
        "--results", type=folder, default=Path("results"), metavar="DIR", help="with runs/ and figures/"
    )
    parser.add_argument("--output", type=folder, metavar="FILE", help="the page (default: RESULTS/report.html)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    options = parser.parse_args(arguments)
    output = options.output or options.results / "report.html"
    from capsexp.report import page  # pandas and torch take seconds to import: --help needs neither

    generated = page.regenerate(options.names, results=options.results, output=output, check=options.check)
    for path in generated.changed if not options.check else []:
        print(f"wrote {path}, {path.stat().st_size / 1e6:.2f} MB", flush=True)
    different = generated.changed if options.check else []
    for line in [*generated.problems, *(f"{path}: not what the records give; make report" for path in different)]:
        print(f"error: {line}", file=sys.stderr)
    return FAILED if generated.problems or different else DONE


if __name__ == "__main__":
    end_with(main)

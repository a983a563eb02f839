"""Makes the report, one page about everything that was run: `python scripts/report.py`."""

import sys
from pathlib import Path

from capsexp.cli import Parser, end_with
from capsexp.errors import DONE, FAILED


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="with runs/ and figures/")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page (default: RESULTS/report.html)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would be changed")
    options = parser.parse_args(arguments)
    output = options.output or options.results / "report.html"
    from capsexp import report  # pandas and torch take seconds to import: --help needs neither

    outcome = report.regenerate(results=options.results, output=output, check=options.check)
    for path in outcome.changed if not options.check else []:
        print(f"wrote {path}, {path.stat().st_size / 1e6:.2f} MB", flush=True)
    different = outcome.changed if options.check else []
    for line in [*outcome.problems, *(f"{path}: not what the records give; make report" for path in different)]:
        print(f"error: {line}", file=sys.stderr)
    return FAILED if outcome.problems or different else DONE


if __name__ == "__main__":
    end_with(main)

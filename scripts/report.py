"""Makes the report, one page about everything that was run: `python scripts/report.py`."""

import argparse
import os
import sys
from pathlib import Path

from capsexp.errors import DONE, FAILED, CapsexpError


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
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
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that nothing is written there when the program ends
        print("error: nobody reads the output any more", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    except CapsexpError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(FAILED)

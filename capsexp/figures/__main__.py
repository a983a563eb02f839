"""Draws the papers' figures.

Without a name: all that can be drawn of what is there. Records are in paths.results/runs, checkpoints and TensorBoard's
files in paths.logs; figures go to paths.results/figures, as PNG and SVG. The runs that a figure lacks are listed, with
the command that makes them.
"""

import sys
from pathlib import Path

from capsexp.cli import Parser, end_with
from capsexp.config.compose import composed
from capsexp.config.schema import check
from capsexp.errors import InputError, RunError, plural


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input, RunError for a named figure that can't be drawn."""
    parser = Parser(__doc__, "capsexp figures")
    parser.add_argument("words", nargs="*", metavar="NAME | KEY=VALUE", help="all figures, if none is named")
    parser.add_argument("--list", action="store_true", help="print the names of all figures")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a figure would be changed")
    options = parser.parse_words(arguments)
    results, logs = _paths(options.overrides)
    from capsexp.figures import catalogue  # matplotlib, pandas and torch take seconds to import
    from capsexp.figures.sources import Sources

    if options.list:
        for name, what in catalogue.FIGURES.items():
            print(f"{name:<{max(map(len, catalogue.FIGURES))}}  {what}")
        return
    chosen = {name: catalogue.find(name) for name in options.names or catalogue.FIGURES}
    sources, folder = Sources(results, logs, options.overrides), results / "figures"
    if options.check:
        different = [name for name in chosen if not catalogue.matches(name, sources, folder)]
        if different:
            raise RunError(f"not what the records give: {', '.join(different)}; make figures")
        return
    failed = []
    for name in chosen:
        drawn, lines = catalogue.draw(name, sources, folder)
        failed += [] if drawn else [name]
        for line in lines:
            print(f"{name}: {line}", flush=True)
    for line in sources.problems:
        print(f"error: {line}", file=sys.stderr)
    if options.names and failed:
        raise RunError(f"not drawn: {', '.join(failed)}")
    if sources.problems:
        raise RunError(f"{plural(len(sources.problems), 'record')} can't be used")


def _paths(overrides: list[str]) -> tuple[Path, Path]:
    """The folders of results and logs; raises InputError for any other key."""
    for word in overrides:
        if not word.startswith("paths."):
            raise InputError(f"{word.partition('=')[0]}: not used here; paths.results and paths.logs are")
    paths = check(composed(overrides)).paths
    return Path(paths.results), Path(paths.logs)


if __name__ == "__main__":
    end_with(main)

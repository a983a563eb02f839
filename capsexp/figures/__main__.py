"""Draws the papers' figures: `python -m capsexp.figures [NAME …] [paths.results=DIR] [paths.logs=DIR]`.

Without a name: all that can be drawn of what is there. Records are in paths.results/runs, checkpoints and TensorBoard's
files in paths.logs; figures go to paths.results/figures, as PNG and SVG. The runs that a figure lacks are listed, with
the command that makes them.
"""

import sys
from pathlib import Path

from capsexp.cli import Parser, end_with
from capsexp.config.compose import composed
from capsexp.errors import InputError, RunError


def main(arguments: list[str]) -> None:
    """Draws; raises InputError for an unknown word, RunError when a named figure can't be drawn."""
    parser = Parser(__doc__, "python -m capsexp.figures")
    parser.add_argument("words", nargs="*", metavar="NAME | KEY=VALUE", help="all figures, if none is named")
    parser.add_argument("--list", action="store_true", help="print the names of all figures")
    options = parser.parse_words(arguments)
    names, typed = options.names, options.overrides
    results, logs = _paths(typed)
    from capsexp.figures import catalogue  # matplotlib, pandas and torch take seconds to import
    from capsexp.figures.sources import Sources

    if options.list:
        for name, (what, _) in catalogue.FIGURES.items():
            print(f"{name:<{max(map(len, catalogue.FIGURES))}}  {what}")
        return
    chosen = {name: catalogue.find(name) for name in names or catalogue.FIGURES}
    sources = Sources(results, logs, typed)
    failed = []
    for name in chosen:
        drawn, lines = catalogue.draw(name, sources, results / "figures")
        failed += [] if drawn else [name]
        for line in lines:
            print(f"{name}: {line}", flush=True)
    for line in sources.problems:
        print(f"error: {line}", file=sys.stderr)
    if names and failed:
        raise RunError(f"not drawn: {', '.join(failed)}")
    if sources.problems:
        raise RunError(f"{len(sources.problems)} records can't be used")


def _paths(typed: list[str]) -> tuple[Path, Path]:
    """The folders of results and logs; raises InputError for what is no path."""
    for word in typed:
        if not word.startswith("paths."):
            raise InputError(f"{word.partition('=')[0]}: not used here; paths.results and paths.logs are")
    paths = composed(typed)["paths"]
    return Path(paths["results"]), Path(paths["logs"])


if __name__ == "__main__":
    end_with(main)

"""Draws the papers' figures: `python -m capsexp.figures [NAME …] [paths.results=DIR] [paths.logs=DIR]`.

Without a name: all that can be drawn of what is there. Records are in paths.results/runs, checkpoints and TensorBoard's
files in paths.logs; figures go to paths.results/figures, as PNG and SVG. A figure that lacks runs says which, and what
makes them. `--list` prints what there is.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from capsexp.cli import end_with
from capsexp.errors import InputError, RunError


def main(words: Sequence[str]) -> None:
    """Draws; raises InputError for a word that means nothing here, RunError when a named figure can't be drawn."""
    typed = [word for word in words if "=" in word]
    names = [word for word in words if "=" not in word]
    results, logs = _paths(typed)
    from capsexp.figures import catalogue  # matplotlib, pandas and torch take seconds to import
    from capsexp.figures.sources import Sources

    if names == ["--list"]:
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


def _paths(typed: Sequence[str]) -> tuple[Path, Path]:
    """The folders of results and logs; raises InputError for what is no path."""
    from capsexp.config import compose

    for word in typed:
        if not word.startswith("paths."):
            raise InputError(f"{word.partition('=')[0]}: means nothing here; paths.results and paths.logs do")
    paths = compose.composed(list(typed))["paths"]
    return Path(paths["results"]), Path(paths["logs"])


if __name__ == "__main__":
    end_with(main, __doc__)

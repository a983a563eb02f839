"""Draws the papers' figures.

Without a name: all that can be drawn of what is there. Records are in paths.results/runs, checkpoints and TensorBoard's
files in paths.logs; figures go to paths.results/figures, as SVG files for light and for dark pages. The runs that a
figure lacks are listed, with the command that makes them.
"""

import sys
from pathlib import Path

from capsexp.cli import Parser
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
    for word in options.overrides:
        if not word.startswith("paths."):
            raise InputError(f"{word.partition('=')[0]}: not used here; paths.results and paths.logs are")
    from capsexp.figures import catalogue  # with matplotlib, pandas and torch: seconds
    from capsexp.figures.inputs import Inputs
    from capsexp.results import runs, steps

    if options.list:
        figures = catalogue.every()
        for name, title in figures.items():
            print(f"{name:<{max(map(len, figures))}}  {title}")
        return
    names = catalogue.named(options.names)
    paths = check(composed(options.overrides)).paths
    folder = Path(paths.results) / "figures"
    every, problems = runs.read(folder.parent)
    inputs = Inputs(every, Path(paths.logs), options.overrides, steps.read(Path(paths.results)))
    if options.check:
        equal = {name: catalogue.matches(name, inputs, folder) for name in names}
        if unchecked := [name for name in names if equal[name] is None]:
            print(f"not checked: {', '.join(unchecked)}: no runs, logs or data of them here")
        if different := [name for name in names if equal[name] is False]:
            raise RunError(f"not what the records give: {', '.join(different)}; make figures")
    failed = []
    for name in names if not options.check else []:
        drawn, lines = catalogue.draw(name, inputs, folder)
        failed += [] if drawn else [name]
        for line in lines:
            print(f"{name}: {line}", flush=True)
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    if options.names and failed:
        raise RunError(f"not drawn: {', '.join(failed)}")
    if problems:
        raise RunError(f"{plural(len(problems), 'record')} can't be used")

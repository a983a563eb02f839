"""Compares runs: A, B, B − A with its 95 % interval, and a verdict, by the rule of the tables.

A and B are each one of
  'KEY=VALUE …'   the finished runs of a command line, with any seed and budget: 'model=capsnet data=mnist'
  STUDY:ROW       those of a study's row: jiao_table2:CapsNet1
  RUN             a single run: its key, the beginning of its name, or the path of its record
  FOLDER          of results, with the records in FOLDER/runs: all that both folders have trained
"""

import sys
from pathlib import Path

from capsexp.cli import Parser, end_with, folder
from capsexp.errors import InputError, RunError, plural


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input, RunError for records that can't be used."""
    parser = Parser(__doc__, "capsexp compare")
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--results", type=folder, default=Path("results"), metavar="DIR", help="with the records")
    parser.add_argument("--claimed", metavar="SIZE", help="of B − A in points: +2.5, or increase, decrease, same")
    parser.add_argument("--margin", metavar="POINTS", help="the smallest difference that would matter, with same")
    parser.add_argument("--plot", type=folder, metavar="FILE", help="draw the accuracy by epoch: .svg")
    options = parser.parse_args(arguments)
    if options.plot and options.plot.suffix != ".svg":
        raise InputError(f"--plot={options.plot}: must end in .svg")
    from capsexp.compare import compare, differences  # pandas takes seconds to import
    from capsexp.tables.terminal import print_table

    comparison, problems = compare((options.a, options.b), options.results, options.claimed, options.margin)
    print_table(differences(comparison))
    if options.plot:
        from capsexp.compare.curves import draw
        from capsexp.files import write_file

        write_file(options.plot, draw(comparison))
        print(f"wrote {options.plot}")
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    if problems:
        raise RunError(f"{plural(len(problems), 'record')} can't be used")


if __name__ == "__main__":
    end_with(main)

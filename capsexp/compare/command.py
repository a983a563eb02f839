"""Compares runs: A, B, B − A with its 95 % interval, and a verdict, by the rule of the tables.

A and B are each one of
  'KEY=VALUE …'  the finished runs of a command line, of all seeds, budgets and
                 protocols if none is typed
  STUDY:ROW      the runs of a row of a study
  RUN            a run: its key or name, or their beginning, or the path of its
                 record or folder
"""

import sys
from pathlib import Path

from capsexp.cli import Parser, folder
from capsexp.errors import RunError, plural


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input, RunError for records that can't be used."""
    parser = Parser(__doc__, "capsexp compare")
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--results", type=folder, default=Path("results"), metavar="DIR", help="with the records")
    options = parser.parse_args(arguments)
    from capsexp.compare.comparison import compare  # pandas takes seconds to import
    from capsexp.tables.terminal import print_table

    table, problems = compare((options.a, options.b), options.results)
    print_table(table)
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    if problems:
        raise RunError(f"{plural(len(problems), 'record')} can't be used")

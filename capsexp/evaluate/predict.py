"""Classifies images in files by a trained network: `capsexp predict logs/RUN new/*.png --output=classes.csv`.

Prints a line per file: the class with the highest score, the next best, and their scores. Of a folder, all images in it
are classified, and other files left out; of a CSV file, the images that its rows name, in their order. Images of any
size, grey or in colour, are brought to the network's size and channels as data=folder brings those that it is trained
on.
"""

import sys

from capsexp.cli import RUN, Parser, check_new, folder
from capsexp.errors import printable
from capsexp.files import write_output


def main(arguments: list[str]) -> None:
    """Runs the command; raises InputError for wrong input."""
    parser = Parser(f"{__doc__}{RUN}", "capsexp predict")
    parser.add_argument("run", type=folder, metavar="RUN", help="a run's folder or a checkpoint in it")
    parser.add_argument(
        "files", type=folder, nargs="+", metavar="FILE", help="images, folders of images, tables of their names"
    )
    parser.add_argument("--invert", action="store_true", help="take the images' negatives: ink on paper, for MNIST")
    parser.add_argument("--output", type=folder, metavar="FILE", help="write the table, with all digits, as CSV")
    options = parser.parse_args(arguments)
    check_new(options.output)
    from capsexp.evaluate.evaluation import predictions  # torch takes seconds to import
    from capsexp.results import networks
    from capsexp.run.plan import forbid_tf32
    from capsexp.run.restore import restore
    from capsexp.tables.files import csv_text

    forbid_tf32()
    restored = restore(networks.find(options.run), None)
    table = predictions(restored, options.files, lambda line: print(line, file=sys.stderr), options.invert)
    table["file"] = [printable(str(file)) for file in table["file"]]
    kinds = {"score": restored.score_kind, "next_score": f"next_{restored.score_kind}"}
    print(table.rename(columns=kinds).to_string(index=False, float_format="{:.4f}".format))
    if options.output:
        write_output(options.output, csv_text(table))
        print(f"wrote {options.output}")

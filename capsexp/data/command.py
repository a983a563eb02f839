"""Checks, downloads and decodes data sets: `capsexp data [NAME …] [--root DIR] [--no-download]`.

Prints for each set its size, how many training and test images each class has, and which have only equal images. Exit
code 2 if one of them can't be used.
"""

import sys

from capsexp.cli import Parser, print_error
from capsexp.config.checks import unknown_name
from capsexp.config.compose import composed
from capsexp.config.schema import Data, check
from capsexp.config.searchpath import choices
from capsexp.data.source import ImageSet, load, summary
from capsexp.errors import DONE, WRONG_INPUT, InputError

OWN = ("folder", "idx")  # are nothing without data.path


def main(arguments: list[str]) -> int:
    """Checks the data sets; the exit code."""
    parser = Parser(__doc__, "capsexp data")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_names())}; default: all of them")
    parser.add_argument("--root", metavar="DIR", help="the data folder (default: CAPSEXP_DATA, or data)")
    parser.add_argument("--no-download", dest="download", action="store_false", help="check only the files that exist")
    options = parser.parse_args(arguments)
    code = DONE
    for name in options.names or _names():
        try:
            data = configuration(name, options.root, options.download)
            images = load(data, lambda line: print(line, file=sys.stderr))
            print(_described(name, images), *summary(data, images), sep="\n", flush=True)
        except InputError as error:
            print_error(error, [])
            code = WRONG_INPUT
    return code


def configuration(name: str, root: str | None = None, download: bool = True) -> Data:
    """The checked configuration conf/data/`name`.yaml, on request with another root or without download."""
    if name in OWN:
        raise InputError(f"{name}: is checked when a run reads it: capsexp data={name} data.path=DIR")
    if name not in _names():
        raise unknown_name(name, "data set", _names())
    node = composed([f"data={name}"])
    node["data"]["root"] = node["data"]["root"] if root is None else root
    node["data"]["download"] &= download
    return check(node).data


def _described(name: str, images: ImageSet) -> str:
    shape = "×".join(str(side) for side in images.train_images.shape[1:])
    counts = f"{len(images.train_images):,} training and {len(images.test_images):,} test images"
    return f"{name}: {counts}, {shape}, {images.note or 'as published'}"


def _names() -> list[str]:
    return [name for name in choices("data") if name not in OWN]

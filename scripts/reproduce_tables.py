"""The same as `capsexp reproduce`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # of a clone whose environment isn't made: capsexp says so

from capsexp.cli import exit_with
from capsexp.reproduce.command import RESUME, main

if __name__ == "__main__":
    exit_with(main, RESUME)

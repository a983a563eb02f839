"""The same as `capsexp reproduce`."""

from capsexp.cli import end_with
from capsexp.reproduce.command import RESUME, main

if __name__ == "__main__":
    end_with(main, RESUME)

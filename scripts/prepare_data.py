"""The same as `capsexp data`."""

from capsexp.cli import end_with
from capsexp.data.command import main

if __name__ == "__main__":
    end_with(main)

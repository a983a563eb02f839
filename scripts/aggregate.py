"""The same as `capsexp tables`."""

from capsexp.cli import end_with
from capsexp.tables.command import main

if __name__ == "__main__":
    end_with(main)

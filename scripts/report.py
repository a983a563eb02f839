"""The same as `capsexp report`."""

from capsexp.cli import end_with
from capsexp.tables.html import main

if __name__ == "__main__":
    end_with(main)

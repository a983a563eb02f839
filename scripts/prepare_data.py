"""The same as `capsexp data`."""

from capsexp.cli import end_with
from capsexp.data.__main__ import main

if __name__ == "__main__":
    end_with(main)

"""The same as `capsexp tables`."""

from capsexp.tables.__main__ import run

if __name__ == "__main__":
    run()

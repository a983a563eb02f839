"""The same as `capsexp tables`."""

from capsexp.results.__main__ import run

if __name__ == "__main__":
    run()

"""The same as `capsexp report`."""

from capsexp.report.__main__ import run

if __name__ == "__main__":
    run()

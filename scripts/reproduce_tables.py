"""The same as `capsexp reproduce`."""

from capsexp.study.__main__ import run

if __name__ == "__main__":
    run()

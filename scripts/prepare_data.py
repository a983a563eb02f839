"""The same as `capsexp data`."""

from capsexp.data.__main__ import run

if __name__ == "__main__":
    run()

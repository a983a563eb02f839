"""The configuration: its schema, its checks, and its composition from the files in conf/."""

from importlib.util import find_spec

from capsexp import NOT_INSTALLED

if find_spec("hydra") is None:
    raise SystemExit(NOT_INSTALLED)

"""Sweeps over several grids: a study's rows are rarely one product of choices.

A grid maps keys to values as on the command line (`routing.iterations: 1,2,3`). `hydra.sweeper.grids` is a list of
them, each swept on its own. What is typed goes to every grid; a key that grids sweep is replaced in those grids only.
Without grids it is Hydra's own sweep of what is typed and of `hydra.sweeper.params`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

Grid = Mapping[str, Any]


def expand(grids: Sequence[Grid], typed: Sequence[Override] = ()) -> list[list[str]]:
    """Every job of the grids, in their order and each once, as overrides with single values."""
    swept = {key for grid in grids for key in grid}
    jobs: dict[tuple[str, ...], None] = {}
    for grid in grids or [{}]:
        own = [override for override in typed if override.get_key_element() in grid]
        common = [override for override in typed if override.get_key_element() not in swept]
        (batch,) = BasicSweeper.split_arguments([*common, *_parsed(grid), *own], None)
        jobs |= dict.fromkeys(map(tuple, batch))
    return [list(job) for job in jobs]


def parse(overrides: Sequence[str]) -> list[Override]:
    """Overrides as Hydra understands them; raises its OverrideParseException."""
    parsed: list[Override] = OverridesParser.create().parse_overrides(list(overrides))
    return parsed


def _parsed(grid: Grid) -> list[Override]:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in grid.items()}
    return parse([f"{key}={text}" for key, text in texts.items()])

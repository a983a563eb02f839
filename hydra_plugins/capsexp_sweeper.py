"""`hydra/sweeper=grids`: Hydra finds sweepers in packages of this name only; see capsexp.study.sweeper."""

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override

from capsexp.study.sweeper import Grid, expand


class GridSweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's own sweeper, over each of several grids."""

    def __init__(
        self, max_batch_size: int | None, params: dict[str, str] | None = None, grids: Sequence[Grid] = ()
    ) -> None:
        super().__init__(max_batch_size, params)
        self.grids = grids

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """All jobs of all grids, in batches."""
        return list(self.split_overrides_to_chunks(expand(self.grids, overrides), max_batch_size))

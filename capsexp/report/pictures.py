"""The figures as they stand in the page: as data, so that nothing has to be loaded."""

import base64
from dataclasses import dataclass
from pathlib import Path

from capsexp.figures.catalogue import FIGURES

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """A figure of `python -m capsexp.figures`."""

    name: str
    what: str  # it shows
    address: str | None  # data:…; None: it isn't drawn yet

    @property
    def command(self) -> str:
        """What draws it."""
        return f"python -m capsexp.figures {self.name}"


def load(folder: Path) -> list[Picture]:
    """All figures; of the two files of one, the smaller."""
    return [Picture(name, what, _address(folder, name)) for name, what in FIGURES.items()]


def _address(folder: Path, name: str) -> str | None:
    files = [path for suffix in TYPES if (path := folder / f"{name}{suffix}").is_file()]
    if not files:
        return None
    smallest = min(files, key=lambda path: path.stat().st_size)
    return f"data:{TYPES[smallest.suffix]};base64,{base64.b64encode(smallest.read_bytes()).decode()}"

"""Lets torchvision be imported beside a torch that its wheel was not built for.

A torchvision wheel of the package index needs CUDA's libraries. Beside a CPU-only torch its C extension doesn't
load, the operators that it would have brought are missing, and `import torchvision` ends in "operator
torchvision::nms does not exist", which takes torchmetrics and pytorch_lightning with it. Their schemas alone are
enough for the import. Nothing here is used for pictures: box operators stay without an implementation, and say so
when they are called.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

#: What torchvision registers a fake implementation for as it is imported, whether its extension loaded or not.
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def heal_torchvision() -> None:
    """Defines torchvision's missing operators; does nothing where none is missing, or torchvision isn't installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    import torch

    if not _missing(torch) or _load_extension(torch, Path(spec.submodule_search_locations[0])):
        return
    for name in _missing(torch):
        torch.library.define(f"torchvision::{name}", _SCHEMAS[name])


def install() -> None:
    """Makes the first import of torchvision heal it; costs nothing until then."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _Healer) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Healer())


class _Healer:
    """Finds nothing; when torchvision is looked for it heals it, once, and leaves the search to the others."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "torchvision":
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            heal_torchvision()


def _missing(torch: ModuleType) -> list[str]:
    return [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]


def _load_extension(torch: ModuleType, folder: Path) -> bool:
    """Whether torchvision's `_C` library loads, found as torchvision finds it."""
    spec = importlib.machinery.PathFinder.find_spec("_C", [str(folder)])
    if spec is None or spec.origin is None:
        return False
    try:
        torch.ops.load_library(spec.origin)
    except (ImportError, OSError):
        return False
    return True

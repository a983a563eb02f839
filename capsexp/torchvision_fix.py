"""Makes `import torchvision` work beside a torch that its wheel was not built for.

The torchvision wheels of PyPI need CUDA's libraries. Beside a CPU-only torch their C extension doesn't load, its
operators are missing, and `import torchvision`, and so torchmetrics and pytorch_lightning, ends in "operator
torchvision::nms does not exist" (https://github.com/pytorch/vision/issues/9085). The operators' schemas are enough for
the import. capsexp calls none of them; without an implementation they raise an error when called.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

#: The operators for which torchvision registers a fake implementation when it is imported, loaded or not.
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def define_missing_operators() -> None:
    """Defines torchvision's operators that are missing, if torchvision is installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    import torch

    if not _missing(torch) or _load_extension(torch, Path(spec.submodule_search_locations[0])):
        return
    for name in _missing(torch):
        torch.library.define(f"torchvision::{name}", _SCHEMAS[name])


def install() -> None:
    """Installs a hook that defines the missing operators before torchvision is first imported."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _ImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportHook())


class _ImportHook:
    """A finder that finds nothing, but defines the operators when torchvision is searched for, and removes itself."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "torchvision":
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            define_missing_operators()


def _missing(torch: ModuleType) -> list[str]:
    return [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]


def _load_extension(torch: ModuleType, folder: Path) -> bool:
    """Whether torchvision's C extension could be loaded, as torchvision loads it."""
    spec = importlib.machinery.PathFinder.find_spec("_C", [str(folder)])
    if spec is None or spec.origin is None:
        return False
    try:
        torch.ops.load_library(spec.origin)
    except (ImportError, OSError):
        return False
    return True

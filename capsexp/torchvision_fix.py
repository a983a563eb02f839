"""Makes `import torchvision` work beside a torch that its wheel was not built for.

The torchvision wheels of PyPI need CUDA's libraries. Beside a CPU-only torch their C extension doesn't load, its
operators are missing, and `import torchvision`, and so torchmetrics and pytorch_lightning, ends in "operator
torchvision::nms does not exist" (https://github.com/pytorch/vision/issues/9085). The operators' schemas are enough for
the import. capsexp calls none of them; without an implementation they raise an error when called.
"""

import sys
from collections.abc import Sequence
from types import ModuleType

#: The operators for which torchvision registers a fake implementation whenever it is imported, and their one schema.
_OPERATORS = "nms", "qnms"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def install() -> None:
    """Installs a hook that defines the missing operators when torchvision is first imported."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _ImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportHook())


class _ImportHook:
    """A finder that finds nothing, but defines the missing operators before the module is imported that registers fake
    implementations, and removes itself. By then torchvision has tried to load its extension, whatever its file's name.
    """

    def find_spec(self, module: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if module != "torchvision._meta_registrations":
            return
        import torch

        sys.meta_path.remove(self)
        for name in _OPERATORS:
            if not hasattr(torch.ops.torchvision, name):
                torch.library.define(f"torchvision::{name}", _SCHEMA)

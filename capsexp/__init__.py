"""capsexp: do the published numbers of capsule networks hold?

As a library: `capsexp.models` has the networks, `capsexp.nn` their layers and losses, `capsexp.routing` the routing
procedures. They import torch and nothing else of a run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

NOT_INSTALLED = "error: this Python lacks the libraries of capsexp; `make setup` installs them, for .venv/bin/python"

try:
    from annotated_types import Ge, Gt, Le
except ModuleNotFoundError:  # a checkout, and a Python without its libraries
    raise SystemExit(NOT_INSTALLED) from None

if TYPE_CHECKING:
    from capsexp.evaluate.classifier import Classifier

__version__ = "0.2.0"

# Types of configuration fields and of constructors' arguments, checked by capsexp.config.checks.
Count = Annotated[int, Ge(1)]
Iterations = Annotated[int, Ge(1), Le(100)]  # of a routing; each costs time, and memory for its gradient
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
UnitInterval = Annotated[float, Ge(0), Le(1)]
WidthFraction = Annotated[float, Gt(0), Le(1)]  # of a network's channels, never none of them

#: Prints a line for the user.
Log = Callable[[str], None]


def load(
    path: Path | str, device: str = "cpu", config_dir: Path | str | None = None, invert: bool = False
) -> "Classifier":
    """A trained network in evaluation mode: pixels between 0 and 1, [B, channels, H, W] -> scores and class capsules.

    It knows its `classes`, the `size` of its images, and makes them of any picture: `preprocess`.

    Args:
        path: a run's folder below paths.logs (its best.ckpt, else its last.ckpt), a checkpoint, or a name: "sample" and
            others in the package (`capsexp/weights/README.md`), of a table's row "huang_table4:DA-CapsNet COIL-20".
        device: of the network.
        config_dir: the folder of configuration files of one's own with which it was trained (--config-dir).
        invert: `preprocess` makes negatives, of ink on paper for a network that was trained on white digits on black.

    Raises InputError for a file that isn't a checkpoint of this capsexp, or a damaged one, and for a name of none, of a
    row with the command that trains it. Warns of a row's network that is of a shorter training than the source's.
    """
    import warnings

    from capsexp.config import searchpath
    from capsexp.evaluate.classifier import Classifier
    from capsexp.results import networks  # imports Hydra and Lightning, which nothing else of a library needs
    from capsexp.run.restore import restore

    if config_dir is not None:
        searchpath.use(str(config_dir))
    return Classifier(restore(networks.find(path, warnings.warn), device), invert)

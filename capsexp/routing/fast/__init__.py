"""The same numbers sooner: fast paths for capsule networks, switched on by one call.

| routing  | fast path                                             | where                                           |
|----------|-------------------------------------------------------|-------------------------------------------------|
| dynamic  | C loops on a CPU, see `dynamic`                       | poses with rows of at most 16 numbers           |
| EM       | C loops on a CPU, Triton on a GPU, see `em`           | children with activations                       |
| inverted | C loops on a CPU, Triton on a GPU, see `inverted`     | everywhere; on a GPU without `activations`      |

The loops need a compiler, `cc`, and a batch with many votes. On a CPU, convolutions, linear layers and votes of
bfloat16 are computed in float32 where that takes less time, see `bfloat16`.

Layers with attention on their votes, and routings of other classes, run as they are. A fast path is checked before
it is used, see `selfcheck`.
"""

from torch import nn

from capsexp.routing.fast.bfloat16 import FastConv2d, FastLinear, FastMatrices, InFloat32
from capsexp.routing.fast.dynamic import FastDynamicRouting
from capsexp.routing.fast.em import FastEMRouting
from capsexp.routing.fast.inverted import FastInvertedRouting
from capsexp.routing.fast.layers import FastConvCapsules, FastLayer, FastLinearCapsules

#: Reference class -> the class with its fast path. Derived classes of others aren't in it: they may compute otherwise.
_FAST: dict[type[nn.Module], type[nn.Module]] = {
    fast.__bases__[-1]: fast
    for fast in (
        FastConv2d,
        FastConvCapsules,
        FastDynamicRouting,
        FastEMRouting,
        FastInvertedRouting,
        FastLinear,
        FastLinearCapsules,
        FastMatrices,
    )
}
_REFERENCE = {fast: reference for reference, fast in _FAST.items()}


def enable(network: nn.Module) -> None:
    """Switches the network's layers and routings to their fast paths, in place; parameters and their names stay."""
    for module in network.modules():
        module.__class__ = _FAST.get(type(module), type(module))


def disable(network: nn.Module) -> None:
    """Switches the network back to the reference, in place."""
    for module in network.modules():
        module.__class__ = _REFERENCE.get(type(module), type(module))


def paths(network: nn.Module) -> str:
    """How the network computed its last batches in training mode: C loops, cc 12.2.0; or reference."""
    names = {module.path for module in network.modules() if isinstance(module, FastLayer | InFloat32)}
    return "; ".join(sorted(names - {""})) or "reference"

"""How votes become parent capsules: one module a procedure, each a page that reads like the paper's."""

from capsexp.nn.routing import Routing
from capsexp.routing.dynamic import DynamicRouting, dynamic_routing
from capsexp.routing.em import EMRouting
from capsexp.routing.inverted import InvertedRouting
from capsexp.routing.self_attention import SelfAttentionRouting

#: The procedures by their names in a configuration.
NAMES: dict[str, type[Routing]] = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "inverted": InvertedRouting,
    "self_attention": SelfAttentionRouting,
}

__all__ = ["NAMES", "DynamicRouting", "EMRouting", "InvertedRouting", "SelfAttentionRouting", "dynamic_routing"]

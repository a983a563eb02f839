"""How votes become parent capsules: one module a procedure, each a page that reads like the paper's."""

from capsexp.routing.dynamic import DynamicRouting, dynamic_routing
from capsexp.routing.em import EMRouting
from capsexp.routing.inverted import InvertedRouting
from capsexp.routing.self_attention import SelfAttentionRouting
from capsexp.routing.self_routing import SelfRouting
from capsexp.routing.variational_bayes import VariationalBayesRouting

__all__ = [
    "DynamicRouting",
    "EMRouting",
    "InvertedRouting",
    "SelfAttentionRouting",
    "SelfRouting",
    "VariationalBayesRouting",
    "dynamic_routing",
]

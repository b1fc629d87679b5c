"""Which sets of operators may be fused at all, whatever the chip; and the contract of cost models."""

from lfopt.fusion.cost_model import Adapted, CostModel, Floor
from lfopt.fusion.cover_model import ALONE, CoverModel, CoverPrice
from lfopt.fusion.legality import component, connected, connected_parts, convex_gap, legal
from lfopt.fusion.mapping import FusionOutcome, TypeRules, combined, mapping_of

__all__ = [
    "ALONE",
    "Adapted",
    "CostModel",
    "CoverModel",
    "CoverPrice",
    "Floor",
    "FusionOutcome",
    "TypeRules",
    "combined",
    "component",
    "connected",
    "connected_parts",
    "convex_gap",
    "legal",
    "mapping_of",
]

"""Which sets of operators may be fused at all, whatever the chip."""

from lfopt.fusion.legality import component, connected, connected_parts, convex_gap, legal
from lfopt.fusion.mapping import Outcome, TypeRules, combined, mapping_of

__all__ = ["Outcome", "TypeRules", "combined", "component", "connected", "connected_parts", "convex_gap", "legal", "mapping_of"]

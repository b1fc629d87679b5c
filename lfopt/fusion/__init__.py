"""Which sets of operators may be fused at all, whatever the chip."""

from lfopt.fusion.legality import check, component, connected, connected_parts, convex_gap
from lfopt.fusion.mapping import Outcome, TypeRules, combined, mapping_of

__all__ = ["Outcome", "TypeRules", "check", "combined", "component", "connected", "connected_parts", "convex_gap", "mapping_of"]

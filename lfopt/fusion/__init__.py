"""Which sets of operators may be fused at all, whatever the chip."""

from lfopt.fusion.legality import check, component, connected, connected_parts, convex_gap

__all__ = ["check", "component", "connected", "connected_parts", "convex_gap"]

"""Which sets of operators may be fused at all, whatever the chip."""

from lfopt.fusion.legality import check, connected, convex_gap

__all__ = ["check", "connected", "convex_gap"]

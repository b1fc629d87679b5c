"""From a fusion scheme to a plan: buffer and DRAM bytes of every group, baselines."""

from lfopt.planning.band_rows import Propose, up_to
from lfopt.planning.baselines import epilogue_fused_bytes, epilogue_groups, layer_by_layer_bytes
from lfopt.planning.costs import GroupCosts, Traffic
from lfopt.planning.plan import memory_map, plan_groups, total_dram, totals_of

__all__ = [
    "GroupCosts",
    "Propose",
    "Traffic",
    "epilogue_fused_bytes",
    "epilogue_groups",
    "layer_by_layer_bytes",
    "memory_map",
    "plan_groups",
    "total_dram",
    "totals_of",
    "up_to",
]

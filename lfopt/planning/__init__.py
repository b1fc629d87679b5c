"""From a fusion scheme to a plan: buffer and DRAM bytes of every group, baselines."""

from lfopt.planning.band_rows import Propose, up_to
from lfopt.planning.baselines import epilogue_fused_bytes, epilogue_groups, layer_by_layer_bytes
from lfopt.planning.costs import GroupCosts, Traffic
from lfopt.planning.limit import Limit
from lfopt.planning.modes import MODES, NEVER, SCHEMES
from lfopt.planning.plan import Outline, memory_map, outline, plan_groups, total_dram, totals_of, with_steps

__all__ = [
    "MODES",
    "NEVER",
    "SCHEMES",
    "GroupCosts",
    "Limit",
    "Outline",
    "Propose",
    "Traffic",
    "epilogue_fused_bytes",
    "epilogue_groups",
    "layer_by_layer_bytes",
    "memory_map",
    "outline",
    "plan_groups",
    "total_dram",
    "totals_of",
    "up_to",
    "with_steps",
]

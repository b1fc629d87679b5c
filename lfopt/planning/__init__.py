"""From a fusion scheme to a plan: buffer and DRAM bytes of every group, baselines."""

from lfopt.planning.band_rows import Propose, up_to
from lfopt.planning.baselines import epilogue_fused_bytes, epilogue_groups, layer_by_layer_bytes
from lfopt.planning.chains import link, relink
from lfopt.planning.costs import GroupCosts, Traffic
from lfopt.planning.drafts import GIVEN, MODEL, PlanDraft, draft, executable, plan, recompute_left
from lfopt.planning.limit import Limit
from lfopt.planning.modes import MODES, NEVER, SCHEMES
from lfopt.planning.outlines import (
    NO_OUTLINES,
    MadeSteps,
    Outline,
    dram_at_port,
    loaded_maps,
    masks_of,
    memory_map,
    outline,
    plan_groups,
    stored_maps,
    total_dram,
    totals_of,
    with_steps,
)
from lfopt.planning.second_level import in_levels

__all__ = [
    "GIVEN",
    "MODEL",
    "MODES",
    "NEVER",
    "NO_OUTLINES",
    "SCHEMES",
    "GroupCosts",
    "Limit",
    "MadeSteps",
    "Outline",
    "PlanDraft",
    "Propose",
    "Traffic",
    "draft",
    "dram_at_port",
    "epilogue_fused_bytes",
    "epilogue_groups",
    "executable",
    "in_levels",
    "layer_by_layer_bytes",
    "link",
    "loaded_maps",
    "masks_of",
    "memory_map",
    "outline",
    "plan",
    "plan_groups",
    "recompute_left",
    "relink",
    "stored_maps",
    "total_dram",
    "totals_of",
    "up_to",
    "with_steps",
]

"""From a fusion scheme to a plan: buffer and DRAM bytes of every group, baselines."""

from lfopt.planning.chains.linking import KnownStages, Pace, link, relink
from lfopt.planning.chains.points import KnownOptions, StagePoints
from lfopt.planning.chains.variants import chain_variants
from lfopt.planning.costs.baselines import epilogue_fused_bytes, epilogue_groups, layer_by_layer_bytes
from lfopt.planning.costs.group_costs import GroupCosts, Traffic
from lfopt.planning.modes import MODES, NEVER, SCHEMES
from lfopt.planning.plans.band_rows import Propose, up_to
from lfopt.planning.plans.drafts import GIVEN, MODEL, PlanDraft, draft, executable, plan
from lfopt.planning.plans.outlines import (
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
from lfopt.planning.plans.second_level import in_levels
from lfopt.planning.steps.limit import Limit

__all__ = [
    "GIVEN",
    "MODEL",
    "MODES",
    "NEVER",
    "NO_OUTLINES",
    "SCHEMES",
    "GroupCosts",
    "KnownOptions",
    "KnownStages",
    "Limit",
    "MadeSteps",
    "Outline",
    "Pace",
    "PlanDraft",
    "Propose",
    "StagePoints",
    "Traffic",
    "chain_variants",
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
    "relink",
    "stored_maps",
    "total_dram",
    "totals_of",
    "up_to",
    "with_steps",
]

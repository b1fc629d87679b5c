"""How near a plan is to its lower bound."""

from __future__ import annotations

from lfopt.ir import Plan
from search.methods import METHODS


def gap_of(plan: Plan) -> float | None:
    """How far a plan's bytes are above its lower bound, as a share of that.

    None where there is no bound, or it is of more plans than the method looks among: those of mapping types
    and patterns leave groups out that the bound is of.
    """
    if plan.totals.proof == "none":
        return None
    row = METHODS.get(plan.search.method)
    return plan.totals.gap if plan.totals.proof == "optimal" or row is None or row.whole_space else None

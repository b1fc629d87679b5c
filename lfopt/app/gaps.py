"""How near a plan is to its lower bound."""

from __future__ import annotations

from lfopt.ir import Plan
from search.methods import METHODS

BY_RULES = "by rules"  # of methods whose rules leave out groups that the bound is of


def gap_of(plan: Plan) -> float | None:
    """How far a plan's bytes are above its lower bound, as a share of that.

    None where there is no bound, or it is of more plans than the method looks among.
    """
    optimal = plan.totals.proof == "optimal"
    if plan.totals.proof == "none" or (_by_rules(plan) and not optimal):
        return None
    return plan.totals.gap


def nearness(plan: Plan) -> str:
    """The same in a word or two: a gap, or why there is none."""
    gap = gap_of(plan)
    if gap is not None:
        return gap_text(gap)
    if plan.totals.proof == "none":
        return "nothing proven"
    return BY_RULES


def gap_text(gap: float) -> str:
    """A gap as it is printed.

    >>> gap_text(0.0123)
    'gap 1.23 %'
    """
    return f"gap {100 * gap:.2f} %"


def _by_rules(plan: Plan) -> bool:
    row = METHODS.get(plan.search.method)
    return row is not None and not row.whole_space

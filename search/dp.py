"""Dynamic programming over the groups that mapping types allow: the scheme of least cost among those that a rule-based compiler may choose from."""

from __future__ import annotations

from dataclasses import replace

from lfopt.fusion import TypeRules
from lfopt.ir import Cost, DoesNotFit
from search.exact import Progress, solve
from search.problem import Floor, Problem, Result


def solve_by_types(problem: Problem, *, strict: bool = False, time_limit: float | None = None, progress: Progress | None = None) -> Result:
    """The scheme of fewest DRAM bytes without groups that table 3 of DNNFusion (arXiv 2108.13342) breaks; the best found when the time is over.

    Gao et al. (Computer Science 52(5), 2025; its abstract) put rules of mapping types, a dynamic program over a cost model, and pruning together;
    the program here is that of `search.exact`: states are the operators executed so far, and a group is given up as soon as the table breaks it,
    because whatever it is grown into is broken too. With `strict`, no group has two many-to-many operators; without, pools, reductions,
    softmax and normalisation may join.
    """
    rules = TypeRules.of(problem.dataflow, strict=strict)

    def evaluate(group: int) -> Cost | DoesNotFit | None:
        return problem.evaluate(group) if rules.allow(group) else None

    def may_grow(group: int, floor: Floor) -> bool:
        return rules.allow(group) and problem.may_grow(group, floor)

    def legal_anywhere(group: int) -> bool:
        return rules.allow(group) and problem.legal_anywhere(group)

    mates = tuple(mask & ~(rules.single & ~(1 << i)) if rules.single >> i & 1 else mask for i, mask in enumerate(problem.mates))
    allowed = replace(problem, evaluate=evaluate, may_grow=may_grow, legal_anywhere=legal_anywhere, mates=mates, simpler=None)
    found = solve(allowed, time_limit=time_limit, progress=progress)
    return replace(found, method="dp", lower_bound_bytes=problem.least_bytes, proof="none")

"""The plan that a job has before it searches: operators with their epilogues, and some of these in a row.

Its steps are made first, so that a job whose time is over writes a plan that has steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lfopt.app.deadline import Deadline
from lfopt.app.plans import make_draft
from lfopt.fusion import connected
from lfopt.ir import DoesNotFit, Graph
from lfopt.ops import bits
from lfopt.planning import (
    GroupCosts,
    Limit,
    MadeSteps,
    Outline,
    PlanDraft,
    epilogue_groups,
    executable,
    outline,
    with_steps,
)
from lfopt.planning.steps.limit import never
from search.result import Result

# bytes of constants that are written, digested and brought to the disk in a second
FILE_BYTES_PER_SECOND = 100e6
# seconds for the steps of the plan that a search finds, over those for the first one
STEPS_FACTOR = 2.0
# that the steps of the first plan may take, however late it is, and share of what was before
LEAST_STEPS_SECONDS = 3.0
LEAST_STEPS_SHARE = 0.5
# that groups in a row are put together, and share of the time limit
JOINING_SECONDS = 1.0
JOINING_SHARE = 0.15


@dataclass(frozen=True, eq=False)
class FirstPlan:
    """No worse than the two baselines, as groups of the costs that a search begins with."""

    graph: Graph
    costs: GroupCosts
    groups: tuple[int, ...] = ()  # in an executable order; none where it is not looked for
    dram_bytes: int = 0
    seconds: float = 0.0  # that its prices took
    known_steps: MadeSteps = field(default_factory=MadeSteps)  # of its groups, once they are made
    outlines: dict[int, Outline] = field(default_factory=dict[int, Outline])  # by group, once they are made

    @classmethod
    def of(cls, graph: Graph, costs: GroupCosts, time_limit: float) -> FirstPlan:
        """Operators with their epilogues, or alone where that moves less, and some of these groups in a row.

        It is never worse than a baseline. `time_limit`: of the job, seconds.
        """
        start = time.perf_counter()
        ordered = executable(costs.dataflow, with_epilogues(costs, costs.dataflow.everything))
        seconds = time.perf_counter() - start
        end = time.perf_counter() + min(JOINING_SECONDS, JOINING_SHARE * time_limit)
        joined = joined_in_order(costs, ordered, lambda: time.perf_counter() > end)
        return cls(graph, costs, joined, costs.dram_bytes(joined), seconds)

    def result(self, method: str) -> Result:
        """The result of a search that has no time."""
        count = len(self.groups)
        bound = self.costs.bounds.compulsory_bytes
        return Result(
            method, self.groups, self.dram_bytes, min(bound, self.dram_bytes), 1, count, self.seconds
        )

    def draft(self, searched: Result, bound: int, max_recompute: float | None, objective: str) -> PlanDraft:
        """Its draft, once a search has ended with `searched` and proven `bound` bytes."""
        for group in self.groups:  # in the way of the fewest bytes, of which there are steps
            self.costs.take(group, None)
        result = replace(searched, groups=self.groups, dram_bytes=self.dram_bytes)
        return make_draft(
            self.graph,
            self.costs,
            result,
            min(bound, self.dram_bytes),
            max_recompute=max_recompute,
            objective=objective,
            limit=Limit(lambda: True),
            known=self.outlines,
        )

    def known(self, costs: GroupCosts) -> dict[int, Outline]:
        """Outlines, by group, of those that run in these costs as before the search."""
        same = self.outlines.items() if costs is self.costs else ()
        return {group: outlined for group, outlined in same if costs.taken(group) is None}

    def make_steps(self, deadline: Deadline) -> Deadline:
        """Make its steps; the deadline with time set aside for those of the plan to come, and for files."""
        start = time.perf_counter()
        outlines = outline(self.costs, self.groups, late=lambda: True)
        if not isinstance(outlines, DoesNotFit) and not self.costs.hardware.l2_bytes:
            self.outlines.update((outlined.mask, outlined) for outlined in outlines)
            begun = time.perf_counter()
            least = max(LEAST_STEPS_SECONDS, LEAST_STEPS_SHARE * deadline.passed)

            def late() -> bool:
                return deadline.over() and time.perf_counter() - begun > least

            with_steps(self.costs, outlines, Limit(late), self.known_steps)
        seconds = time.perf_counter() - start
        constants = sum(value.nbytes for value in self.graph.constants.values() if value is not None)
        return deadline.setting_aside(seconds * STEPS_FACTOR, constants / FILE_BYTES_PER_SECOND)


def with_epilogues(costs: GroupCosts, operators: int) -> list[int]:
    """These operators (a mask) with their epilogues, or alone where that moves fewer bytes.

    Operators of which no tensor can move less than the group's are not priced alone.
    """
    groups: list[int] = []
    for group in epilogue_groups(costs):
        alone = [1 << i for i in bits(group & operators)]
        if group & ~operators:
            groups += alone
            continue
        price = costs.price(group)
        least = sum(costs.groups.once(mask).total for mask in alone)
        together = price is not None and (
            price.dram_bytes <= least or price.dram_bytes <= costs.dram_bytes(alone)
        )
        groups += [group] if together else alone
    return groups


def joined_in_order(
    costs: GroupCosts, groups: Sequence[int], late: Callable[[], bool] = never
) -> tuple[int, ...]:
    """Groups of a legal scheme, some in a row put together as one group, where that moves no more bytes.

    `groups`: in an executable order; those in a row are convex together. From each on, ever more are tried,
    by twice as many as the last time, until that is no group, and then by half as many. `late`: whether the
    time for that is over.
    """
    joined: list[int] = []
    first = 0
    while first < len(groups):
        count = 1
        step = 1
        growing = True
        while step and first + count < len(groups) and not late():
            stop = min(first + count + step, len(groups))
            if _is_better_together(costs, groups[first:stop]):
                count = stop - first
            else:
                growing = False
            step = 2 * step if growing else step // 2
        joined.append(sum(groups[first : first + count]))
        first += count
    return tuple(joined)


def _is_better_together(costs: GroupCosts, groups: Sequence[int]) -> bool:
    """Whether groups may run as one, which moves no more bytes."""
    together = sum(groups)
    if together & costs.rules.touched or not connected(costs.dataflow.neighbours, together):
        return False
    price = costs.price(together)
    return price is not None and price.executable and price.dram_bytes <= costs.dram_bytes(groups)

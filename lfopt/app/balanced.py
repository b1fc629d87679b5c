"""The balanced plan: the fewest bytes among plans no slower than today's compilers', then fast.

    cap        cycles of the faster of the two baselines (`lfopt.app.baselines`)
    the plan   has the fewest bytes within the cap; among plans of up to a slack of more bytes the fewest
               cycles, then the least energy

Plans are those of the groups that searches have found, each group in any of its options: of these the choice
is exact, on the grid of `search.plan_front`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from lfopt.app.baselines import Baseline
from lfopt.app.chains import Chains
from lfopt.app.figures import GroupFigures
from lfopt.app.recompute import Recomputed
from lfopt.app.trade import Trade
from lfopt.planning import GroupCosts
from search.objectives import Choice, best_of, lexical
from search.plan_front import PlanFront
from simulator.model.meter import Meter

BALANCED_SLACK = 0.03  # bytes over the fewest within the cap, as a share of them
# bytes that a cycle is worth where maps are to stay between groups, one after the other
PACES = (1.0, 0.25)
# of what bytes and cycles of the best candidate are worth, what others may that are linked
PROMISING = 1.1
BY_GROUPS = 1.15  # cycles of the fastest plan of some groups, over those of their operators; 1.1 to 1.3


class BalancedCandidate(NamedTuple):
    """Groups that a search has found, with their options."""

    plan: Recomputed
    figures: GroupFigures
    front: PlanFront

    @classmethod
    def of(cls, plan: Recomputed, figures: GroupFigures) -> BalancedCandidate:
        """Those of a plan."""
        return cls(plan, figures, PlanFront(figures, plan.result.groups))

    def least_energy(self) -> Choice:
        """The plan of its groups that takes the least energy."""
        return best_of(self.figures, self.plan.result.groups, lexical("energy"))


class BalancedSearch:
    """Candidates, from the plans that searches for bytes have found."""

    def __init__(
        self,
        figures_of: Callable[[GroupCosts], GroupFigures],
        late: Callable[[], bool],
        late_to_link: Callable[[], bool],
        most_cycles: int | None,
    ) -> None:
        """`most_cycles`: the cap. `late`: whether the time is over; the first plan is a candidate then, too.

        `late_to_link`: whether so little time is left that a plan that is linked now is not looked at.
        """
        self.figures_of = figures_of
        self.late = late
        self.most_cycles = most_cycles
        self.chains = Chains(late, late_to_link)
        self.candidates: list[BalancedCandidate] = []
        # (pace, costs, groups) that were linked, or need not be
        self._linked: set[tuple[float, GroupCosts, tuple[int, ...]]] = set()

    def take(self, baseline: Baseline) -> None:
        """Let a baseline be a candidate, as it was timed."""
        self.candidates.append(BalancedCandidate.of(baseline.plan, baseline.options))

    def look_at(self, plan: Recomputed, *, however_late: bool = False) -> None:
        """Let a plan be a candidate, if there is time, or there is none.

        `however_late`: also if there is no time; of each of its groups, one option is timed then.
        """
        if self.candidates and self.late() and not however_late:
            return
        figures = self.figures_of(plan.costs)
        self.chains.vary(figures, plan.result.groups)
        self.candidates.append(BalancedCandidate.of(plan, figures))

    def most_promising(self, plans: Sequence[Recomputed]) -> list[Recomputed]:
        """The plans, the one first that is likely the best, before any is timed."""
        return sorted(plans, key=self._promise)

    def look_at_all(self, plans: Sequence[Recomputed]) -> None:
        """Let plans be candidates, and those in which maps stay between groups of the promising ones.

        The last candidate so far is linked before the others are looked at, which take long, too.
        """
        self._link(self.candidates[-1], PACES[0])
        for plan in plans:
            self.look_at(plan)
        loose = sorted(self.candidates, key=lambda candidate: candidate.front.least_worth(PACES[0]))
        least = loose[0].front.least_worth(PACES[0])
        for pace, candidate in product(PACES, loose):
            if candidate.front.least_worth(PACES[0]) <= PROMISING * least:
                self._link(candidate, pace)

    def _promise(self, plan: Recomputed) -> tuple[bool, float]:
        """Sort key of plans that are not timed yet: plans within the cap first, those of the least worth."""
        cycles = sum(Meter(plan.costs.dataflow, plan.costs.hardware).estimated_cycles())
        too_slow = self.most_cycles is not None and BY_GROUPS * cycles > self.most_cycles
        return too_slow, plan.result.dram_bytes + PACES[0] * cycles

    def _link(self, candidate: BalancedCandidate, pace: float) -> None:
        """Let maps stay between groups of a candidate, if there is time and they may."""
        groups = candidate.plan.result.groups
        costs = candidate.plan.costs
        if self.chains.late_to_link() or (pace, costs, groups) in self._linked:
            return
        plan = self.chains.linked(candidate.figures, candidate.plan, pace)
        self._linked |= {(pace, costs, groups), (pace, costs, plan.result.groups)}
        if plan.result.groups != groups:
            self.look_at(plan)


class Limits(NamedTuple):
    """What a balanced plan may take at the most."""

    cycles: int | None  # the cap; None: there is none
    macs: int | None  # multiply-accumulates; None: groups do not have too many
    slack: float = BALANCED_SLACK  # bytes over the fewest within the cap, as a share of them


def balanced(
    candidates: Sequence[BalancedCandidate],
    baselines: Sequence[Baseline],
    papers: Sequence[Baseline],
    limits: Limits,
) -> tuple[BalancedCandidate, Choice, Trade]:
    """The balanced plan of some candidates, of which there is at least one, and what it gives up.

    Where no candidate is within the cap, the plan is the fastest.
    """
    allowed = [_Allowed(candidate, limits.macs) for candidate in candidates]
    within = [(choice, one) for one in allowed if (choice := one.fewest_bytes(limits.cycles)) is not None]
    if within:
        fewest = min(choice.figures.dram_bytes for choice, _ in within)
        most_bytes = int(fewest * (1 + limits.slack))
        choices = [(choice, one) for one in allowed if (choice := one.fewest_cycles(most_bytes)) is not None]
    else:
        choices = [(choice, one) for one in allowed if (choice := one.fewest_cycles(None)) is not None]
    if not choices:  # all of them compute too much again: then as few bytes as can be
        choices = [(one.candidate.front.choice(0), one) for one in allowed]
    choice, best = min(choices, key=lambda pair: _rank(pair[0]))
    trade = Trade(
        tuple((baseline.name, baseline.figures) for baseline in baselines),
        tuple((plan.name, plan.figures) for plan in papers),
        limits.cycles,
        min((candidate.front[0] for candidate in candidates), key=lambda f: (f.dram_bytes, f.cycles)),
        min((candidate.front[-1] for candidate in candidates), key=lambda f: (f.cycles, f.dram_bytes)),
        min(
            (candidate.least_energy().figures for candidate in candidates),
            key=lambda f: (f.energy_pj, f.cycles),
        ),
    )
    return best.candidate, choice, trade


class _Allowed(NamedTuple):
    """Plans of a candidate with few enough multiply-accumulates."""

    candidate: BalancedCandidate
    most_macs: int | None

    def fewest_bytes(self, most_cycles: int | None) -> Choice | None:
        """The plan of the fewest bytes within so many cycles; None if there is none."""
        return self._if_allowed(self.candidate.front.fewest_bytes(most_cycles))

    def fewest_cycles(self, most_bytes: int | None) -> Choice | None:
        """The plan of the fewest cycles that moves at most so many bytes; None if there is none."""
        return self._if_allowed(self.candidate.front.fewest_cycles(most_bytes))

    def _if_allowed(self, plan: int | None) -> Choice | None:
        if plan is None:
            return None
        choice = self.candidate.front.choice(plan)
        if self.most_macs is not None and self.candidate.figures.macs_of(choice) > self.most_macs:
            return None
        return choice


def _rank(choice: Choice) -> tuple[int, int, int]:
    """Sort key of plans of few enough bytes: cycles, energy, bytes."""
    return choice.figures.cycles, choice.figures.energy_pj, choice.figures.dram_bytes

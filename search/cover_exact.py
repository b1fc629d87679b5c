"""The cheapest cover of a network by the prices of its groups, proven: no cover by other groups costs less.

`search.cover_path` takes for granted that a group never costs more with fewer operators. Prices of some modes
break that now and then, so it proves nothing. Here only floors (`CoverModel.least_extra`) are taken to be so:

* What maps cost by floors (`search.cover_bound`) bounds every state from below.
* Map after map, in topological order, the cheapest way to make it alone by prices is found with those bounds.
  Where it is proven, it is what the state of that one map costs. It says nothing of states of several, which
  may cost less.
* Groups grow until their floors are too dear, whether those on the way are legal or not.

Groups are priced when the path comes to them, which few do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lfopt.fusion import CoverModel
from search.cover_bound import PASSES, BoundSearch, RestBounds
from search.cover_network import CoverNetwork
from search.cover_path import UNIT, CoverBudget, OutOfBudgetError, Step


class ProvenCover(NamedTuple):
    """The cheapest cover that was found, and what none is below."""

    lower_bound_bytes: int
    steps: tuple[Step, ...]  # in the order in which they run; empty where the budget was spent before


class ProvenCovers:
    """The search for the cheapest cover of a network by connected groups; it can be taken up again."""

    def __init__(
        self, floors: CoverModel, prices: CoverModel, budget: CoverBudget, start: Sequence[int]
    ) -> None:
        """`floors`: of the groups of `prices`. `start`: masks of groups of a cover, in executable order."""
        network = CoverNetwork.of(floors)
        self.start = start
        self.by_floors = BoundSearch(network, budget, RestBounds(network, budget))
        self.by_prices = ExactSearch(self.by_floors, prices, budget)
        self.lower = 0  # cost that no cover is below

    def search(self, least: int) -> ProvenCover:
        """As far as the budget goes. A cover that moves no less than `least` bytes is not looked for."""
        search = self.by_prices
        network = search.network
        if network.region != network.flow.everything:
            return ProvenCover(0, ())
        known = UNIT * least
        self.lower = max(self.lower, min(self.by_floors.bound(self.start, self.lower), known))
        self.lower, upper = search.between(known, self.lower)
        steps = search.steps.get(network.goal, ()) if upper < known else ()
        return ProvenCover(-(-self.lower // UNIT), tuple(search.priced(step) for step in steps))


class ExactSearch(BoundSearch):
    """The cheapest covers by the prices of connected groups, with what maps cost by floors as bounds."""

    def __init__(self, by_floors: BoundSearch, prices: CoverModel, budget: CoverBudget) -> None:
        super().__init__(by_floors.network, budget)
        self.by_floors = by_floors
        self.prices = prices
        self.parts_join = False

    def between(self, upper: int, lower: int) -> tuple[int, int]:
        """(lower bound, upper bound) on the cost of the cheapest cover, better than those that are known."""
        goal = self.network.goal
        for sets in PASSES:
            try:
                for m in self.maps():
                    self.settle(m, sets)
            except OutOfBudgetError:
                break
            better, upper = self.bounded(goal, upper, lower, sets, alone=False)
            lower = max(lower, better)
            if lower >= upper or self.budget.spent:
                break
        return lower, upper

    def cheapest(self, operators: int, stores: int) -> int | None:
        """The cost of the cheapest way to run a group; None if it is not legal. Raises OutOfBudgetError."""
        if self.budget.late():  # a price takes long
            raise OutOfBudgetError
        # what is not legal is not kept: with more operators it may be
        dram_bytes = self.prices.dram_bytes(operators, stores)
        return None if dram_bytes is None else UNIT * dram_bytes

    def at_least(self, m: int) -> int:
        """Lower bound on the cost of a map alone: that by floors."""
        return self.by_floors.values.get(m, 0)

    def least(self, needed: int) -> int:
        """Lower bound on the cost of a state: of one map what is proven, of several what floors say."""
        bound = max(self.by_floors.least(needed), self.learnt.get(needed, 0))
        if needed and not needed & (needed - 1):
            bound = max(bound, self.values.get(needed.bit_length() - 1, 0))
        return bound

    def least_with_others(self, needed: int) -> int:
        """Lower bound on the cost of making these maps, with others or alone: by floors, which never fall."""
        return self.by_floors.least(needed)

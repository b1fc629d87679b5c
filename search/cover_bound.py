"""A lower bound on what covers move: the cheapest cover of a relaxed problem, or a bound on that.

In the relaxed problem a group costs what any group moves at the least which holds its operators
(`CoverModel.least_extra`), and is legal wherever there is such a group. So a cover costs no more there than
it moves; and since fewer operators never cost more, the cheapest way to make one map alone bounds every state
in which it is needed, as `search.cover_path` takes for granted.

Three things make the bound of a state of several maps better than that of its dearest map:

* **Beside others.** The first map counts as if it were made alone. Each further one adds what the cheapest
  cover of those operators costs which the maps before it do not depend on, where all that is made below them
  is there for nothing (`RestModel`). Operators, stores, and maps that are read, are those of one map or the
  other, never of both.
* **What is read.** Before an operator runs, what it reads is there, or is made in its group. To store that,
  too, costs no more than its bytes. So a map costs what its operands cost together, less their bytes.
* **More budget where it pays.** All maps are looked at with few sets of operators each, then those that are
  not settled with more.

A cover that is known, and those of groups of few operators, bound what any map costs from above. Where the
budget ends a search, the least that any path had come to is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lfopt.fusion import ALONE, CoverModel
from lfopt.ops import bits
from search.cover_network import CoverNetwork
from search.cover_path import NEVER, UNIT, CoverBudget, CoverSearch, OutOfBudgetError, Step
from search.cover_rest import RestModel

# sets that are grown for the bound of one map, at the most: in one pass over all maps after the other
PASSES = (100, 1_000, 10_000, 100_000)
REST_SETS = 300  # the same of a map beside others
REST_OPERATORS = 48  # beyond so many, what they store and their constants is all that is counted
# so many times more sets a map has had a model when the turn of the next one comes
LATER = 100
FIRST_ALLOWANCE = 5  # the first allowance over a lower bound: what is left up to the upper one, by 1 << this


class CoverBounds:
    """The search for a lower bound on what covers move; it can be taken up again."""

    def __init__(self, models: Sequence[CoverModel], budget: CoverBudget) -> None:
        """`models`: of one network; no group costs less in a later one."""
        network = CoverNetwork.of(models[0])
        self.budget = budget
        self.rests = RestBounds(network, budget)
        self.searches = [
            BoundSearch(replace(network, model=model, illegal=set()), budget, self.rests) for model in models
        ]
        # (model, sets for each map): a later model takes longer and adds to what the others have proven
        self.turns = sorted(
            ((k, sets) for k in range(len(models)) for sets in PASSES),
            key=lambda turn: (LATER ** turn[0]) * turn[1],
        )
        self.lower = 0  # cost that no cover is below

    def search(self, start: Sequence[int]) -> int:
        """Bytes that no cover moves less than; 0 where an operator leads to no result.

        `start`: masks of the groups of a cover, in executable order.
        """
        network = self.searches[0].network
        if network.region != network.flow.everything:
            return 0
        for search in self.searches:
            search.take_cover(start)
        while self.turns and not self.budget.spent:
            k, sets = self.turns[0]
            search = self.searches[k]
            for before in self.searches[:k]:
                for m, least in before.values.items():
                    search.raise_value(m, least)
            self.lower, upper = search.in_one_pass(sets, self.lower)
            if self.budget.spent:
                break
            settled = self.lower >= upper
            self.turns = [turn for turn in self.turns[1:] if not settled or turn[0] > k]
        return -(-self.lower // UNIT)

    def claims(self) -> dict[tuple[int, int], int]:
        """What the bound follows from: bytes that maps cost at the least, alone or beside others.

        By map, and mask of operators that count with others (`RestBounds.least`), or `ALONE`.
        """
        claims: dict[tuple[int, int], int] = {}
        for search in self.searches:
            for m, cost in search.values.items():
                claims[m, ALONE] = max(claims.get((m, ALONE), 0), -(-cost // UNIT))
        for (m, done), cost in self.rests.known.items():
            if cost > self.rests.least_of_all(m, done):
                claims[m, done] = -(-cost // UNIT)
        return claims


class BoundSearch(CoverSearch):
    """Lower bounds on what maps cost in a relaxed problem, in groups of any number of operators."""

    def __init__(self, network: CoverNetwork, budget: CoverBudget, rests: RestBounds | None = None) -> None:
        """`rests`: what maps cost beside others; None: what they store, and their constants."""
        super().__init__(network, len(network.flow) + 1, 0, {}, budget)
        self.rests = rests
        self.cover: Sequence[int] = ()  # that is known
        self.upper = NEVER  # cost of it, with those operators alone that lead to the goal
        self.next_map = 0  # where the pass goes on that the end of the budget cut short
        self.steps: dict[int, tuple[Step, ...]] = {}  # by state: of the path found to all of it

    def bound(self, start: Sequence[int], lower: int) -> int:
        """A cost that no cover is below. Less is proven of less budget.

        `start`: masks of the groups of a cover, in executable order; `lower`: a bound that is known.
        """
        self.take_cover(start)
        for sets in PASSES:
            lower, upper = self.in_one_pass(sets, lower)
            if lower >= upper or self.budget.spent:
                break
        return lower

    def take_cover(self, groups: Sequence[int]) -> None:
        """Bound what maps cost from above by the groups of a cover, in executable order."""
        if groups == self.cover:
            return
        network = self.network
        self.cover = groups
        self.upper = restricted_cost(network, groups, network.goal)
        for m in self.maps():
            if self.budget.late():
                break
            self.before[m] = restricted_cost(network, groups, 1 << m)

    def in_one_pass(self, sets: int, lower: int) -> tuple[int, int]:
        """(lower bound, upper bound) on the cost of the cheapest cover, by so many sets for each map."""
        goal = self.network.goal
        maps = self.maps()
        for k in range(self.next_map, len(maps)):
            self.settle(maps[k], sets)
            if not self.budget.spent:
                self.next_map = k + 1
        if not self.budget.spent:
            self.next_map = 0
        upper = min(self.upper, sum(self.ways[m] for m in bits(goal)))
        better, upper = self.bounded(goal, upper, lower, sets, alone=False)
        return max(lower, better), upper

    def maps(self) -> list[int]:
        """Maps of the region that something in it reads, or that are its results, in topological order."""
        network = self.network
        results = [m for i in bits(network.region) for m in self.flow.results[i]]
        return [m for m in results if network.goal >> m & 1 or self.flow.readers[m] & network.region]

    def settle(self, m: int, sets: int) -> None:
        """Bound the cost of a map alone from both sides, by at most so many sets of operators."""
        lower = self.values.get(m, 0)
        upper = min(self.enough(m), self.ways.get(m, NEVER))
        if lower < upper:
            lower = max(lower, min(self.at_least(m), upper))
            if not self.budget.spent:
                lower, upper = self.bounded(1 << m, upper, lower, sets, alone=True)
        self.raise_value(m, lower)
        self.ways[m] = upper

    def raise_value(self, m: int, least: int) -> None:
        """Take a bound on the cost of a map alone, if it is better than what is known."""
        if m in self.values and self.values[m] >= least:
            return
        self.values[m] = least
        self.bounds.clear()  # of states with this map: it was not known, or less well

    def bounded(self, start: int, upper: int, lower: int, sets: int, *, alone: bool) -> tuple[int, int]:
        """(lower bound, upper bound) on the cost of making maps.

        Ways are looked for that cost next to nothing more than the lower bound; where there are none, that
        is a better bound, and some more is allowed.
        """
        whole = self.budget
        self.budget = whole.part(sets)
        lower = max(lower, min(self.least(start), upper))
        allowance = max((upper - lower) >> FIRST_ALLOWANCE, 1)
        try:
            while lower < upper:
                limit = min(lower + allowance, upper)
                path = self.path(start, limit, alone=alone)
                if path is not None:
                    if not alone:
                        self.steps[start] = path.steps
                    # where a bound of a state on the way is better than what floors add up to, that counts
                    cost = max(path.cost, self.promised)
                    return max(lower, cost), min(upper, cost + path.uncertain)
                lower = limit
                allowance *= 2
        except OutOfBudgetError:
            lower = max(lower, min(self.promised, upper))
        finally:
            self.budget = whole
        return lower, upper

    def least(self, needed: int) -> int:
        """Lower bound on the cost of making maps: one as if alone, and what each further one adds to it."""
        if needed not in self.bounds and needed & (needed - 1) and self.rests is not None:
            super().least(needed)
            self.bounds[needed] = max(self.bounds[needed], self._one_beside_another(needed))
        return super().least(needed)

    def _one_beside_another(self, needed: int) -> int:
        assert self.rests is not None
        network = self.network
        total = 0
        done = 0
        for m in sorted(bits(needed), key=self.flow.producer.__getitem__):
            if not done:
                total = self.values.get(m, 0)
            else:
                total += self.rests.least(m, done & network.below[m])
            done |= network.below[m]
        return total

    def at_least(self, m: int) -> int:
        """Lower bound on the cost of a map alone: by what its operator reads costs."""
        network = self.network
        maker = self.flow.producer[m]
        read = network.reads[maker] & ~network.inputs
        apart = UNIT * network.stored_bytes[m] + self.constants(network.below[m], network.under(read))
        if not read:
            return apart
        return self.least(read) + apart - UNIT * sum(network.model.store_bytes[r] for r in bits(read))


class RestBounds:
    """What maps cost beside others: lower bounds, memoised."""

    def __init__(self, network: CoverNetwork, budget: CoverBudget) -> None:
        self.network = network
        self.budget = budget
        self.known: dict[tuple[int, int], int] = {}

    def least(self, m: int, done: int) -> int:
        """Cost that a map adds to others at the least.

        `done`: mask of the operators that both it and the others depend on, and all that those depend on.
        """
        key = m, done
        if key not in self.known:
            self.known[key] = self._least(m, done)
        return self.known[key]

    def least_of_all(self, m: int, done: int) -> int:
        """The same without a search: the map is stored, and constants are loaded."""
        network = self.network
        rest = network.below[m] & ~done & ~network.model.free
        return UNIT * (network.stored_bytes[m] + sum(network.model.own_bytes[i] for i in bits(rest)))

    def _least(self, m: int, done: int) -> int:
        network = self.network
        rest = network.below[m] & ~done
        if rest & (rest - 1) == 0 or rest.bit_count() > REST_OPERATORS or self.budget.spent:
            return self.least_of_all(m, done)
        part = network.beside(RestModel(network, done), done, 1 << m)
        search = BoundSearch(part, self.budget)
        for x in search.maps():
            key = x, done & network.below[x]
            if key in self.known:
                search.values[x] = self.known[key]
                search.ways[x] = search.enough(x)
            else:
                search.settle(x, REST_SETS)
                self.known[key] = search.values[x]
        return search.values[m]


def restricted_cost(network: CoverNetwork, groups: Sequence[int], goal: int) -> int:
    """What the groups of a cover cost with those operators alone that maps depend on.

    One that is not legal by itself (stages of a chain) counts as its operators one by one.
    """
    needed = goal
    cost = 0
    waiting = [*groups]
    while waiting:
        group = waiting.pop()
        stored = network.results_of(group) & needed
        if not stored:
            continue
        operators = 0
        for m in bits(stored):
            operators |= _leading(network, group, m)
        dram_bytes = network.model.dram_bytes(operators, stored)
        if dram_bytes is None:
            waiting += [1 << i for i in bits(group)]
            continue
        cost += UNIT * dram_bytes
        needed = (needed & ~stored | network.reads_of(operators)) & ~network.inputs
    assert not needed, "a cover makes all that its groups read"
    return cost


def _leading(network: CoverNetwork, group: int, m: int) -> int:
    """The operators of a group that lead to a map within it."""
    operators = 1 << network.flow.producer[m]
    waiting = operators
    while waiting:
        i = waiting.bit_length() - 1
        waiting &= ~(1 << i)
        new = network.flow.preds[i] & group & ~operators
        operators |= new
        waiting |= new
    return operators

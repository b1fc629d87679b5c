"""The cheapest cover of a network by groups, as a shortest path: operators may run in several groups.

A *cover* is a sequence of groups of operators, each with the maps that it stores. What a group reads and does
not make was stored before; every result of the network is stored; every operator of a group leads, within it,
to a map that the group stores. An operator that is in several groups is computed again, which a partition
cannot say.

The path is walked backwards. A state is the set of maps that must still be made in DRAM; a step runs, as the
last of what remains, a group that stores some of them, and adds what that group reads. Only maps that matter
are ever in a state. Walked forwards, a state would have to say which of the maps made will be read again.

What keeps this small:

* What each map costs by itself, found map by map in topological order by the same search, bounds every
  state from below: the dearest map of a state, and beside it the bytes of the maps, and of the weights, that
  it does not depend on. The search is A* with this bound.
* A group is grown operator by operator, downwards from its highest one, and given up when what it surely
  moves, with the bound on what it needs, is no better than the best that is known.
* Groups that do not feed each other commute. The one that makes the highest needed map goes first, unless it
  may have to run before another.
* A group is priced when the path comes to it: until then it counts with every tensor once.

Groups hold a limited number of operators. What maps cost in smaller ones is known to be enough. The bound of
a map takes for granted that a group never costs more with fewer operators. Prices of some modes break that
now and then, so nothing is proven of what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from lfopt.fusion import CoverPrice, connected
from lfopt.ops import bits
from search.cover_network import CoverNetwork

UNIT = 1 << 16  # of costs: a byte; so that a unit of work can cost a part of one
NEVER = 1 << 128
MOST_MISFITS = 1  # sets in a row that are not legal, after which a group is not grown further
MOST_SETS = 1_500_000  # sets of operators that are grown in all searches of a network
CLOCK = 16  # sets of operators grown between two looks at the clock: of a large network each takes long


class Step(NamedTuple):
    """A group of a cover: sets are masks, of operators or of maps."""

    operators: int
    stores: int
    reads: int
    dram_bytes: int
    work: int


class OutOfBudgetError(Exception):
    """The sets of operators, or the time, of a search are spent."""


@dataclass
class CoverBudget:
    """Sets of operators that may be grown, and the time, of several searches together."""

    late: Callable[[], bool]
    sets: int = MOST_SETS
    whole: CoverBudget | None = None  # that it is a part of

    @property
    def spent(self) -> bool:
        """Whether nothing is left of it."""
        return self.sets < 0 or self.late()

    def part(self, sets: int) -> CoverBudget:
        """A part of it."""
        return CoverBudget(self.late, min(sets, self.sets), self)

    def spend(self) -> None:
        """Count a set of operators. Raises OutOfBudgetError."""
        budget: CoverBudget | None = self
        while budget is not None:
            budget.sets -= 1
            budget = budget.whole
        if self.sets < 0 or (self.sets % CLOCK == 0 and self.late()):
            raise OutOfBudgetError


class _Growing(NamedTuple):
    """A set of operators that is grown downwards."""

    operators: int
    reads: int  # maps that it reads and does not make
    makes: int
    must: int  # needed maps that it makes and nothing in it reads: it stores them
    own: int  # cost of its constants and its work
    candidates: int  # operators that make what it reads, or another needed map
    last: int  # the operator that was added last: candidates above it were passed over
    connected: bool
    misfits: int  # sets in a row, up to the last one, that were found not to be legal
    floor: int  # bytes beyond once of all groups that hold these operators, at the least


class CoverPath(NamedTuple):
    """A way to make maps."""

    cost: int
    steps: tuple[Step, ...]  # in the order in which they run
    uncertain: int = 0  # that it may cost more, where the cost of a map is not known


class CoverSearch:
    """The cheapest cover by groups of at most `size` operators, at a price of work.

    Costs are UNIT times bytes, and the price times work.
    """

    def __init__(
        self, network: CoverNetwork, size: int, price: int, before: dict[int, int], budget: CoverBudget
    ) -> None:
        """`before`: what maps cost by groups of fewer operators."""
        self.network = network
        self.flow = network.flow
        self.size = size
        self.price = price
        self.before = before
        self.budget = budget
        self.values: dict[int, int] = {}  # by map: the least cost of making it alone, or a bound on it
        self.ways: dict[int, int] = {}  # by map: a cost at which it can be made alone
        self.promised = 0  # lower bound on the cost of the path that is being looked for
        self.learnt: dict[int, int] = {}  # by state: bound that a search which passed it has proven
        self.bounds: dict[int, int] = {}
        self.illegal = network.illegal
        self.parts_join = network.model.parts_join
        self.prices = network.model
        self._near = network.near(size - 1)

    def run(self) -> tuple[Step, ...] | None:
        """The cheapest cover, in the order in which it runs; None where bounds were wrong, and cut off all.

        Raises OutOfBudgetError.
        """
        network = self.network
        for i in bits(network.region):
            for m in self.flow.results[i]:
                if network.goal >> m & 1 or self.flow.readers[m] & network.region:
                    enough = self.enough(m)
                    path = self.path(1 << m, enough, alone=True)
                    self.values[m] = enough if path is None else path.cost
                    self.ways[m] = self.values[m]
        upper = sum(self.values[m] for m in bits(network.goal))
        path = self.path(network.goal, upper, alone=False)
        if path is None:
            return None
        return tuple(self.priced(step) for step in path.steps)

    def enough(self, m: int) -> int:
        """A cost at which a map can be made: by its operator alone, what that reads by itself."""
        maker = self.flow.producer[m]
        alone = self.cheapest(1 << maker, 1 << m)
        assert alone is not None, "a single operator is legal"
        read = bits(self.network.reads[maker] & ~self.network.inputs)
        return min(alone + sum(self.ways[r] for r in read), self.before.get(m, NEVER))

    def cheapest(self, operators: int, stores: int) -> int | None:
        """The cost of the cheapest way to run a group; None if it is not legal."""
        model = self.prices
        dram_bytes = model.dram_bytes(operators, stores)
        if dram_bytes is None:
            self.illegal.add((operators, stores))
            return None
        if not self.price:
            return UNIT * dram_bytes
        return min(self._cost(way) for way in model.ways(operators, stores))

    def _cost(self, way: CoverPrice) -> int:
        return UNIT * way.dram_bytes + self.price * way.work

    def priced(self, step: Step) -> Step:
        """A group with its bytes and its work."""
        way = min(self.prices.ways(step.operators, step.stores), key=self._cost)
        return step._replace(dram_bytes=way.dram_bytes, work=way.work)

    # -- bounds ----------------------------------------------------------------------------------------------

    def least(self, needed: int) -> int:
        """Lower bound on the cost of making maps: that of one, and what those add that it does not need."""
        if needed not in self.bounds:
            network = self.network
            operators = network.under(needed)
            bound = UNIT * network.bytes_stored(needed) + self.constants(operators)
            for m in bits(needed):
                if m in self.values:
                    beside = UNIT * network.bytes_stored(needed & ~network.inside[m])
                    beside += self.constants(operators, network.below[m])
                    bound = max(bound, self.values[m] + beside)
            self.bounds[needed] = bound
        return max(self.bounds[needed], self.learnt.get(needed, 0))

    def least_with_others(self, needed: int) -> int:
        """Lower bound on the cost of making these maps, whatever others are made with them."""
        return self.least(needed)

    def constants(self, operators: int, done: int = 0) -> int:
        """What operators cost at the least beside maps that are made, each of them once.

        `done`: some of them, whose cost does not count.
        """
        network = self.network
        return UNIT * network.constants_of(operators, done) + self.price * network.work_of(operators & ~done)

    # -- shortest path ---------------------------------------------------------------------------------------

    def path(self, start: int, upper: int, *, alone: bool) -> CoverPath | None:
        """The cheapest way to make maps, for at most `upper`; None where there is none by these bounds.

        `alone`: it ends where one map is left of which the cost is known.
        """
        network = self.network
        spent = {start: 0}
        came: dict[int, tuple[int, Step]] = {}
        count = 0
        # (promise, order, state, cost so far, group that is not priced yet)
        heap: list[tuple[int, int, int, int, Step | None]] = [(self.least(start), 0, start, 0, None)]
        self.promised = heap[0][0]
        while heap:
            promise, _, needed, cost, step = heappop(heap)
            if cost > spent[needed]:
                continue
            self.promised = max(self.promised, promise)
            if step is not None:
                priced = self.cheapest(step.operators, step.stores)
                if priced is None:
                    continue
                # a floor of some of its operators may be higher than that of all
                priced = max(priced, step.dram_bytes)
                after = (needed & ~step.stores | step.reads) & ~network.inputs
                total = cost + priced
                promise = total + self.least(after)
                if total < spent.get(after, NEVER) and promise <= upper:
                    spent[after] = total
                    came[after] = needed, step
                    count += 1
                    heappush(heap, (promise, -count, after, total, None))
                continue
            if not needed or (alone and needed != start and needed & (needed - 1) == 0):
                return self._arrived(start, needed, promise, spent, came)
            for least, group in self._groups(needed, upper - cost):
                after = (needed & ~group.stores | group.reads) & ~network.inputs
                total = cost + least
                promised = total + self.least(after)
                if total < spent.get(after, NEVER) and promised <= upper:
                    count += 1
                    heappush(heap, (promised, -count, needed, cost, group))
        return None

    def _arrived(
        self, start: int, end: int, total: int, spent: dict[int, int], came: dict[int, tuple[int, Step]]
    ) -> CoverPath:
        """The path to a state of which all is known, with its cost.

        No other path promised to cost less, so no state that it passed can be made for less than the rest.
        """
        for state, cost in spent.items():
            self.learnt[state] = max(self.learnt.get(state, 0), total - cost)
        steps: list[Step] = []
        state = end
        while state != start:
            state, step = came[state]
            steps.append(step)
        uncertain = self.ways[end.bit_length() - 1] - self.values[end.bit_length() - 1] if end else 0
        return CoverPath(total, tuple(steps), uncertain)

    # -- groups ----------------------------------------------------------------------------------------------

    def _groups(self, needed: int, limit: int) -> Iterator[tuple[int, Step]]:
        """(least cost, group) of what may be the last to run of what makes maps, below a limit in all."""
        makers = self.network.makers(needed)
        highest = makers.bit_length() - 1
        for top in bits(makers):
            if top == highest or self._may_wait(makers, highest, top):
                yield from self._grown(needed, top, makers & (1 << top) - 1, limit)

    def _may_wait(self, makers: int, highest: int, top: int) -> bool:
        """Whether the maker of the highest map may have to run before a group of makers up to `top`.

        It does where it makes a map, too, that something in the group depends on.
        """
        others = 0
        for i in bits(makers & (2 << top) - 1):
            others |= self.flow.ancestors[i]
        return bool(others & self._near[highest])

    def _grown(self, needed: int, top: int, joining: int, limit: int) -> Iterator[tuple[int, Step]]:
        """Groups whose highest operator is `top`; `joining`: operators below it that make needed maps."""
        network = self.network
        flow = self.flow
        model = network.model
        first = _Growing(
            1 << top,
            network.reads[top],
            network.makes[top],
            network.makes[top] & needed,
            self._own(top),
            flow.preds[top] | joining,
            top,
            connected=True,
            misfits=0,
            floor=0,
        )
        stack = [first]
        while stack:
            grown = stack.pop()
            self.budget.spend()
            is_free = grown is first and bool(model.free >> top & 1)
            lower = grown.candidates & network.region & (1 << grown.last) - 1
            extra = 0
            if not is_free:
                surely = self._surely(grown, needed, lower)
                if surely > limit:
                    continue
                least_extra = model.least_extra(grown.operators)
                if least_extra is None:
                    continue
                extra = max(UNIT * least_extra, grown.floor)
                if surely + extra > limit:
                    continue
            if self.parts_join or grown.connected or connected(flow.neighbours, grown.operators):
                for least, step in self._stores(grown, needed, limit - extra, is_free=is_free):
                    yield least + extra, step._replace(dram_bytes=least + extra)
            misfits = grown.misfits + 1 if (grown.operators, grown.must) in self.illegal else 0
            if grown.operators.bit_count() == self.size or misfits > MOST_MISFITS:
                continue
            alone = not grown.reads & ~model.kept and not grown.operators & model.sharing
            if alone and not extra and not is_free:
                continue  # all that would join may as well be a group of its own: it costs no more there
            for i in bits(lower):
                read_inside = bool(flow.succs[i] & grown.operators)
                must = 0 if read_inside else network.makes[i] & needed
                stack.append(
                    _Growing(
                        grown.operators | 1 << i,
                        grown.reads & ~network.makes[i] | network.reads[i],
                        grown.makes | network.makes[i],
                        grown.must | must,
                        grown.own + self._own(i),
                        grown.candidates | flow.preds[i],
                        i,
                        grown.connected and bool(flow.neighbours[i] & grown.operators),
                        misfits,
                        extra,
                    )
                )

    def _own(self, op: int) -> int:
        return UNIT * self.network.model.own_bytes[op] + self.price * self.network.model.work[op]

    def _surely(self, grown: _Growing, needed: int, lower: int) -> int:
        """What a group that is grown further costs at the least, with what must run before it.

        `lower`: operators that may still join. What those that were passed over make is read, if the group
        reads it at all, or made by an earlier group.
        """
        network = self.network
        may_be_made = 0
        for i in bits(lower):
            may_be_made |= network.makes[i]
        read = grown.reads & ~may_be_made
        left = needed & ~grown.makes
        for m in bits(left):
            if self.flow.producer[m] < grown.last:
                left &= ~(1 << m)
        moved = UNIT * network.bytes_moved(grown.operators, read, grown.must) + grown.own
        return moved + self.least_with_others((read | left) & ~network.inputs)

    def _stores(
        self, grown: _Growing, needed: int, limit: int, *, is_free: bool
    ) -> Iterator[tuple[int, Step]]:
        """A group with each set of needed maps that it may store."""
        network = self.network
        for part in _subsets(grown.makes & needed & ~grown.must):
            stores = grown.must | part
            if not network.stores_together(stores, grown.makes & needed):
                continue
            after = (needed & ~stores | grown.reads) & ~network.inputs
            least = 0
            if not is_free:
                least = grown.own + UNIT * network.bytes_moved(grown.operators, grown.reads, stores)
            if least + self.least(after) <= limit:
                yield least, Step(grown.operators, stores, grown.reads, 0, 0)


def _subsets(mask: int) -> Iterator[int]:
    """Subsets of a set, itself first."""
    part = mask
    while part:
        yield part
        part = (part - 1) & mask
    yield 0

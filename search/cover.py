"""Covers of a network by groups, in which operators may run several times, for the fewest DRAM bytes.

`search.cover_path` finds the cheapest cover by groups of a limited number of operators. Here it is asked for
larger and larger groups, and for less work where a cover does too much.

Of a large network, or one in which many maps are needed at a time, that is too much. Then parts of the best
cover so far are replaced one after the other: some of its groups in a row, by the cheapest cover that makes
what they made out of what was there before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lfopt.fusion import CoverModel
from lfopt.ops import bits
from search.cover_network import CoverNetwork
from search.cover_path import UNIT, CoverBudget, CoverSearch, OutOfBudgetError, Step

SIZES = (2, 4, 6, 8, 10, 12, 16, 20, 24)  # operators of a group at most, one search after the other
LARGE = 12  # beyond this size, one that brings next to nothing is the last
NEXT_TO_NOTHING = 0.002  # of the cost
WHOLE_SETS = 200_000  # sets of operators that are grown for one size, at the most
FIRST_PRICE = UNIT >> 12  # of a unit of work, where too much is done again
DEARER = 4  # how much more it costs in each next search
PRICES = 6  # that are tried at the most
BISECTIONS = 3  # between the last price at which it is too much, and the first at which it is not
BETWEEN = 5  # prices that are tried between two covers at the most
LOW = 0.5  # the first of them, over that at which the two cost the same
WINDOWS = (12, 24, 48)  # operators of the groups in a row that are replaced, at the most
WINDOW_SETS = 20_000  # sets of operators that are grown for one of them, at the most


class Cover(NamedTuple):
    """Groups in the order in which they run."""

    steps: tuple[Step, ...]

    @property
    def dram_bytes(self) -> int:
        """Bytes of all groups."""
        return sum(step.dram_bytes for step in self.steps)

    @property
    def work(self) -> int:
        """Work of all groups."""
        return sum(step.work for step in self.steps)


class WorkLimit(NamedTuple):
    """The most work that a cover may do, and the lowest price of work (see `CoverModel.work`)."""

    most: int | None  # None: any
    price: int = 0  # of a unit of work; a byte costs UNIT

    def allows(self, cover: Cover) -> bool:
        """Whether a cover does no more work than the most."""
        return self.most is None or cover.work <= self.most

    def beside(self, work: int) -> WorkLimit:
        """The limit of a part of a cover, where the other parts do `work`."""
        return self if self.most is None else self._replace(most=self.most - work)

    def cost(self, cover: Cover) -> int:
        """Cost of a cover at this price."""
        return UNIT * cover.dram_bytes + self.price * cover.work


Progress = Callable[[str, int | None], None]  # (what is looked at, bytes of the best cover if there is one)


def search_covers(
    model: CoverModel,
    limit: WorkLimit,
    start: Sequence[int],
    budget: CoverBudget,
    progress: Progress = lambda _, __: None,
) -> Iterator[Cover]:
    """Covers of ever lower cost, with no more work than the limit allows, until the budget is spent.

    `start`: a partition, groups in an executable order. The first covers may cost more than it does.
    """
    network = CoverNetwork.of(model)
    if budget.late() or network.region != model.dataflow.everything:
        return  # where an operator leads to no result, no cover has it
    best = as_cover(network, start)
    whole = _Whole(network, limit, budget, progress)
    for cover in whole.run():
        yield cover
        if limit.cost(cover) < limit.cost(best):
            best = cover
    if not whole.ended:
        yield from _Windows(network, limit, best, budget, progress).run()


def covers_between(
    model: CoverModel, fewest: Cover, start: Sequence[int], budget: CoverBudget
) -> Iterator[Cover]:
    """Covers between one of few bytes and a partition, each the cheapest that is found at a price of work.

    The first price is low, so that covers of little more bytes come first. Each next price is that at which
    two neighbours cost the same: where no cover is cheaper then, none is between them.

    `fewest`: the cover of few bytes, priced by any model; `start`: the partition, see `search_covers`.
    """
    partition = as_cover(CoverNetwork.of(model), start)
    neighbours = deque([(_priced(model, fewest.steps), partition, LOW)])
    for _ in range(BETWEEN):
        if not neighbours or budget.spent:
            return
        left, right, share = neighbours.popleft()
        more = right.dram_bytes - left.dram_bytes
        saved = left.work - right.work
        if more <= 0 or saved <= 0:
            continue
        limit = WorkLimit(None, int(share * UNIT * more / saved))
        cheapest = min(search_covers(model, limit, start, budget), key=limit.cost, default=left)
        if limit.cost(cheapest) < min(limit.cost(left), limit.cost(right)):
            yield cheapest
            neighbours += [(left, cheapest, 1.0), (cheapest, right, 1.0)]
        elif share < 1:
            neighbours.append((left, right, 1.0))


def as_cover(network: CoverNetwork, groups: Sequence[int]) -> Cover:
    """A partition as a cover."""
    steps: list[Step] = []
    for group in groups:
        stores = sum(1 << m for m in network.flow.leaving(group))
        steps.append(Step(group, stores, network.reads_of(group), 0, 0))
    return _priced(network.model, steps)


def _priced(model: CoverModel, steps: Sequence[Step]) -> Cover:
    """A cover of some groups, with their fewest bytes by a model, and the work of these."""
    priced: list[Step] = []
    for step in steps:
        way = min(model.ways(step.operators, step.stores))
        priced.append(step._replace(dram_bytes=way.dram_bytes, work=way.work))
    return Cover(tuple(priced))


@dataclass
class _Whole:
    """Covers of a whole network by larger and larger groups."""

    network: CoverNetwork
    limit: WorkLimit
    budget: CoverBudget
    progress: Progress
    ended: bool = False  # whether groups were as large as is of use

    def run(self) -> Iterator[Cover]:
        """Better and better covers."""
        known: dict[int, dict[int, int]] = {}
        best: int | None = None
        moved: int | None = None
        for size in SIZES:
            before = best
            allowance = self.budget.part(WHOLE_SETS)
            for cover in _within(self.network, self.limit, size, known, allowance):
                if best is None or self.limit.cost(cover) < best:
                    best = self.limit.cost(cover)
                    moved = cover.dram_bytes
                    yield cover
            self.progress(f"groups of up to {size} operators", moved)
            if allowance.spent:
                return
            saved = 0 if best is None or before is None else before - best
            if size >= len(self.network.flow) or (size > LARGE and saved <= NEXT_TO_NOTHING * (best or 0)):
                break
        self.ended = True


def _within(
    network: CoverNetwork, limit: WorkLimit, size: int, known: dict[int, dict[int, int]], budget: CoverBudget
) -> Iterator[Cover]:
    """Covers within the limit: the price of work is raised until they are.

    `known`: by price, what maps cost in groups of fewer operators; replaced by what they cost in these.
    """
    low = price = limit.price
    high: int | None = None
    for _ in range(PRICES + BISECTIONS):
        search = CoverSearch(network, size, price, known.get(price, {}), budget)
        try:
            steps = search.run()
        except OutOfBudgetError:
            return
        known[price] = search.values
        if steps is None:
            return
        cover = Cover(steps)
        if limit.allows(cover):
            yield cover
            high = price
        else:
            low = price
        if high == limit.price:
            return
        if high is None:
            price = price * DEARER or FIRST_PRICE
        else:
            price = (low + high) // 2
        if price in (low, high):
            return


class _Window(NamedTuple):
    """Groups of a cover in a row."""

    first: int
    stop: int
    available: int  # maps that are there before them
    goal: int  # maps that they store and that are needed behind them


@dataclass
class _Windows:
    """Replaces groups of a cover by others, some in a row at a time."""

    network: CoverNetwork
    limit: WorkLimit
    best: Cover
    budget: CoverBudget
    progress: Progress
    # windows for which nothing better was found: what they read and make, and their operators
    tried: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])

    def run(self) -> Iterator[Cover]:
        """Better and better covers."""
        for most in WINDOWS:
            improved = True
            while improved and not self.budget.spent:
                improved = False
                first = 0
                while first < len(self.best.steps) and not self.budget.spent:
                    window = self._window(first, most)
                    if window is not None and self._improve(window):
                        improved = True
                        yield self.best
                    first = self._next(first, most)
                self.progress(f"windows of {most} operators", self.best.dram_bytes)

    def _operators(self, first: int, stop: int) -> int:
        """Operators of groups in a row."""
        operators = 0
        for step in self.best.steps[first:stop]:
            operators |= step.operators
        return operators

    def _window(self, first: int, most: int) -> _Window | None:
        """As many groups as have so few operators, from one on; None where that is one that is large."""
        steps = self.best.steps
        stop = first + 1
        while stop < len(steps) and self._operators(first, stop + 1).bit_count() <= most:
            stop += 1
        if self._operators(first, stop).bit_count() > most:
            return None
        available = self.network.inputs
        for step in steps[:first]:
            available |= step.stores
        wanted = self.network.goal
        for step in steps[stop:]:
            wanted |= step.reads
        stored = 0
        for step in steps[first:stop]:
            stored |= step.stores
        return _Window(first, stop, available, stored & wanted & ~available)

    def _next(self, first: int, most: int) -> int:
        """Where the next window begins: half a window later, or one group."""
        steps = self.best.steps
        later = first + 1
        while later < len(steps) and self._operators(first, later + 1).bit_count() <= most // 2:
            later += 1
        return later

    def _improve(self, window: _Window) -> bool:
        """Replace the groups of a window, if others move less."""
        steps = self.best.steps
        replaced = Cover(steps[window.first : window.stop])
        part = self.network.part(window.available, window.goal)
        read = 0
        for i in bits(part.region):
            read |= self.network.reads[i]
        key = window.goal, read & window.available, part.region
        if not window.goal or key in self.tried:
            return False
        others = self.best.work - replaced.work
        least = replaced
        for cover in _by_size_within(part, self.limit.beside(others), self.budget):
            if self.limit.cost(cover) < self.limit.cost(least):
                least = cover
        self.tried.add(key)
        if least is replaced:
            return False
        self.best = Cover((*steps[: window.first], *least.steps, *steps[window.stop :]))
        return True


def _by_size_within(network: CoverNetwork, limit: WorkLimit, budget: CoverBudget) -> Iterator[Cover]:
    """Covers of a part of a network by larger and larger groups, as far as a window's share of sets goes."""
    known: dict[int, dict[int, int]] = {}
    allowance = budget.part(WINDOW_SETS)
    for size in SIZES:
        yield from _within(network, limit, size, known, allowance)
        if allowance.spent or size >= network.region.bit_count():
            return

"""A lower bound on what covers move, verified by what a plan says of its maps. Nothing here is of the search.

A *claim* says what a map costs at the least: to make it alone, or beside others, where all that certain
operators make is there for nothing. Claims are verified one by one, each with those of the maps that it
depends on: that no sequence of groups makes the map for less. The bound on the network's outputs follows in
the same way. A claim that does not hold counts as much as was proven, so a wrong one only makes the bound
weaker.

Sequences are walked backwards (`docs/proofs.md`, "Covers, and maps that stay"). A state is a set of maps that
must still be made. What groups cost comes from a `CoverModel`: its floors are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from lfopt.fusion import ALONE, CoverModel, connected
from lfopt.ops import bits

Claims = Mapping[tuple[int, int], int]  # bytes by (map, mask of operators that count with others, or ALONE)
NEVER = 1 << 128


class _LateError(Exception):
    """The time is over."""


class Problem(NamedTuple):
    """What groups cost: as they are, or beside others."""

    there: int  # maps that are there before
    region: int  # operators that may run
    sizes: tuple[int, ...]  # per map: bytes of loading or storing it
    kept: int  # maps that are stored and loaded for nothing
    sharing: int  # operators that share constants
    is_rest: bool  # whether what is shared, and floors, count with others

    @classmethod
    def whole(cls, model: CoverModel) -> Problem:
        """That of the network."""
        flow = model.dataflow
        there = sum(1 << m for m, producer in enumerate(flow.producer) if producer < 0)
        return cls(there, flow.everything, tuple(model.map_bytes), model.kept, model.sharing, is_rest=False)

    def without(self, done: int, makes: int) -> Problem:
        """That of what remains beside operators whose maps are there."""
        there = self.there | makes
        sizes = tuple(0 if there >> m & 1 else size for m, size in enumerate(self.sizes))
        kept = sum(1 << m for m, size in enumerate(sizes) if not size)
        return Problem(there, self.region & ~done, sizes, kept, 0, is_rest=True)


class CoverProof:
    """Verifies claims of one network. Sets are masks, of operators or of maps."""

    def __init__(self, model: CoverModel, claims: Claims, late: Callable[[], bool]) -> None:
        """Once it is `late`, less is proven."""
        flow = model.dataflow
        self.model = model
        self.flow = flow
        self.claims = claims
        self.late = late
        self.reads = [sum(1 << m for m in {o.map for o in operands}) for operands in flow.operands]
        self.makes = [sum(1 << m for m in results) for results in flow.results]
        self.below = [0 if i < 0 else flow.ancestors[i] | 1 << i for i in flow.producer]
        self.whole = Problem.whole(model)
        outputs = sum(1 << m for m, is_output in enumerate(flow.is_output) if is_output)
        self.goal = outputs & ~self.whole.there
        # results of which all are stored by one group, or none: of operators that make outputs
        self.together = [maps for maps in self.makes if maps & outputs and maps & (maps - 1)]
        self.known: dict[tuple[int, int], int] = {}  # what is proven of maps
        self.weaker = 0  # claims of which less was proven
        self._bounds: dict[tuple[int, int], int] = {}

    def proven(self, least: int) -> int:
        """Bytes that no cover moves less than, `least` at the most."""
        if self.under(self.goal) != self.flow.everything:
            return 0
        beside_first = sorted(
            self.claims, key=lambda claim: (claim[1] == ALONE, self.flow.producer[claim[0]])
        )
        for m, done in beside_first:
            if done != ALONE and done & ~self.flow.ancestors[self.flow.producer[m]]:
                continue  # it says nothing of the map: a part of its making counts with others
            claimed = self.claims[m, done]
            if done == ALONE:
                problem = self.whole
            else:
                problem = self.whole.without(done, self._made(done))
            proven = self.least_cost(problem, 1 << m, claimed, done)
            self.weaker += proven < claimed
            self.known[m, done] = proven
            self._bounds.pop((1 << m, done), None)  # it was asked for before the map was known
        return self.least_cost(self.whole, self.goal, least)

    # -- sums ------------------------------------------------------------------------------------------------

    def under(self, maps: int) -> int:
        """Operators that maps depend on."""
        operators = 0
        for m in bits(maps):
            operators |= self.below[m]
        return operators

    def _made(self, operators: int) -> int:
        makes = 0
        for i in bits(operators):
            makes |= self.makes[i]
        return makes

    def _read(self, operators: int) -> int:
        read = 0
        for i in bits(operators):
            read |= self.reads[i]
        return read

    def _makers(self, maps: int) -> int:
        return sum(1 << i for i in {self.flow.producer[m] for m in bits(maps)})

    def _stored(self, problem: Problem, maps: int) -> int:
        """Bytes that storing maps takes at the least: nothing of those whose maker may move nothing."""
        free = self.model.free
        return sum(problem.sizes[m] for m in bits(maps) if not free >> self.flow.producer[m] & 1)

    def _constants(self, problem: Problem, operators: int, counted: int = 0) -> int:
        """Bytes that operators move at the least beside maps; `counted`: some that do not count."""
        model = self.model
        moving = operators & ~model.free
        new = moving & ~counted
        moved = sum(model.own_bytes[i] for i in bits(new))
        if problem.is_rest:
            return moved
        moved += model.group_bytes(moving, 0, 0) - model.group_bytes(moving & counted, 0, 0)
        arriving = self._read(new) & problem.there & ~self._read(counted)
        return moved + sum(model.input_bytes[m] for m in bits(arriving))

    def _floor(self, problem: Problem, operators: int) -> int | None:
        floor = self.model.least_extra(operators)
        return 0 if floor and problem.is_rest else floor

    def _moved(self, problem: Problem, operators: int, reads: int, stores: int) -> int:
        """Bytes of a group but for its floor, at the least where it may yet grow."""
        model = self.model
        moved = sum(problem.sizes[m] for m in bits(reads)) + sum(problem.sizes[m] for m in bits(stores))
        moved += sum(model.own_bytes[i] for i in bits(operators))
        if not problem.is_rest:
            moved += model.group_bytes(operators, reads, stores)
        return moved

    # -- bounds by what is proven ----------------------------------------------------------------------------

    def bound(self, problem: Problem, needed: int, done: int) -> int:
        """Bytes that making maps takes at the least; `done`: as in claims."""
        key = needed, done
        if key not in self._bounds:
            self._bounds[key] = self._bound(problem, needed, done)
        return self._bounds[key]

    def _bound(self, problem: Problem, needed: int, done: int) -> int:
        operators = self.under(needed) & problem.region
        least = self._stored(problem, needed) + self._constants(problem, operators)
        for m in bits(needed):
            proven = self.known.get((m, self._shared(m, done)))
            if proven is not None:
                own = self.below[m] & problem.region
                others = self._stored(problem, needed & ~self._made(own))
                others += self._constants(problem, operators, own)
                least = max(least, proven + others)
        if problem.is_rest:
            return least
        return max(least, self._one_beside_another(problem, needed))

    def _shared(self, m: int, done: int) -> int:
        """Of operators that count with others, those that a map depends on."""
        return ALONE if done == ALONE else done & self.below[m]

    def _one_beside_another(self, problem: Problem, needed: int) -> int:
        """Bound by what one map costs, and what each further one adds to those before."""
        total = 0
        counted = 0
        for m in sorted(bits(needed), key=self.flow.producer.__getitem__):
            if not counted:
                total = self.known.get((m, ALONE), 0)
            elif (m, counted & self.below[m]) in self.known:
                total += self.known[m, counted & self.below[m]]
            else:
                rest = self.below[m] & ~counted & ~self.model.free
                total += self._stored(problem, 1 << m) + sum(self.model.own_bytes[i] for i in bits(rest))
            counted |= self.below[m]
        return total

    def _by_operands(self, problem: Problem, m: int, done: int) -> int:
        """Bound on the cost of a map: what its operands cost together, less what storing them may take."""
        maker = self.flow.producer[m]
        read = self.reads[maker] & ~problem.there
        if not read:
            return 0
        own = self.below[m] & problem.region
        counted = self.under(read) & problem.region
        apart = self._stored(problem, 1 << m) + self._constants(problem, own, counted)
        stored = problem.sizes if problem.is_rest else self.model.store_bytes
        return self.bound(problem, read, done) + apart - sum(stored[r] for r in bits(read))

    # -- sequences of groups ---------------------------------------------------------------------------------

    def least_cost(self, problem: Problem, start: int, claimed: int, done: int = ALONE) -> int:
        """What is proven of the cost of making maps, `claimed` at the most."""
        least = self.bound(problem, start, done)
        proven = least
        if start & (start - 1) == 0:
            proven = max(proven, self._by_operands(problem, start.bit_length() - 1, done))
        spent = {start: 0}
        heap = [(least, start)]
        try:
            while heap and proven < claimed:
                promised, needed = heappop(heap)
                cost = spent[needed]
                if promised > cost + self.bound(problem, needed, done):
                    continue  # it was reached for less since
                proven = max(proven, promised)
                if not needed:
                    return min(proven, claimed)
                for more, after in self._steps(problem, needed, claimed - cost, done):
                    total = cost + more
                    if total < spent.get(after, NEVER):
                        spent[after] = total
                        heappush(heap, (total + self.bound(problem, after, done), after))
        except _LateError:
            return min(proven, claimed)
        return claimed

    def _steps(self, problem: Problem, needed: int, limit: int, done: int) -> Iterator[tuple[int, int]]:
        """(bytes, maps that are needed before it) of groups that may be the last to run, below a limit."""
        flow = self.flow
        joins = problem.is_rest or self.model.parts_join
        makers = self._makers(needed)
        for top in bits(makers):
            joining = flow.preds[top] | makers & (1 << top) - 1
            stack = [(1 << top, top, joining, 0)]
            while stack:
                operators, lowest, joining, floor_below = stack.pop()
                if self.late():
                    raise _LateError
                joinable = joining & problem.region & (1 << lowest) - 1
                is_free = bool(self.model.free & operators) and operators == 1 << top
                floor = 0 if is_free else self._floor(problem, operators)
                if floor is None:
                    continue
                floor = max(floor, floor_below)  # that of some operators holds for all groups with them
                makes = self._made(operators)
                reads = self._read(operators) & ~makes
                if not is_free and floor + self._surely(problem, operators, joinable, needed, done) >= limit:
                    continue
                whole = joins or connected(flow.neighbours, operators)
                for stores in self._stores(operators, makes & needed, needed) if whole else ():
                    moved = 0 if is_free else floor + self._moved(problem, operators, reads, stores)
                    after = (needed & ~stores | reads) & ~problem.there
                    if moved + self.bound(problem, after, done) < limit:
                        yield moved, after
                # where all that it reads may stay, what would join it costs no more as a group of its own
                complete = not reads & ~problem.kept and not operators & problem.sharing
                if complete and not floor and not is_free:
                    continue
                for i in bits(joinable):
                    stack.append((operators | 1 << i, i, joining | flow.preds[i], floor))

    def _surely(self, problem: Problem, operators: int, joinable: int, needed: int, done: int) -> int:
        """Bytes of a group but for its floor, and of what must run before it, however it grows."""
        makes = self._made(operators)
        reads = self._read(operators) & ~makes & ~self._made(joinable)
        must = 0
        for i in bits(operators):
            wanted = self.makes[i] & needed
            if not self.flow.succs[i] & operators and wanted & (wanted - 1) == 0:
                must |= wanted
        lowest = (operators & -operators).bit_length() - 1
        left = sum(1 << m for m in bits(needed & ~makes) if self.flow.producer[m] > lowest)
        before = self.bound(problem, (reads | left) & ~problem.there, done)
        return self._moved(problem, operators, reads, must) + before

    def _stores(self, operators: int, could: int, needed: int) -> Iterator[int]:
        """What a group may store: every operator that none of its others reads stores something."""
        last = [self.makes[i] & needed for i in bits(operators) if not self.flow.succs[i] & operators]
        stores = could
        while stores:
            together = all(not stores & maps or not could & maps & ~stores for maps in self.together)
            if together and all(stores & maps for maps in last):
                yield stores
            stores = (stores - 1) & could

"""Chains: stages that run one after the other, with maps that stay on chip between them (mode chained).

    F_beta = top of the address map of all that the stages take, each while it is needed: maps that stay from
             the stage that makes or loads them to the last one that reads them, and what each stage takes in
             its own mode
    F_D    = what the stages move in their modes, but for maps that are on chip: those are not loaded, nor
           stored unless needed elsewhere

Which stages there are, and what stays between them, is a shortest path over (operators done, maps on chip),
for one order of the operators: that of the groups that a search has found, which are stages themselves.
Within them operators are cut apart where few maps cross, of which one fits the buffer. What a stage costs
with maps on chip is reckoned from its price at first, and worked out once a shortest path runs through it,
until nothing on the path is reckoned any more. A scheme never moves more with its chains than without.
Nothing is proven of other orders, or of other cuts.

Parameters of a stage are loaded before it, in the place of those of the stage before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, takewhile
from typing import NamedTuple

from lfopt.fusion import connected
from lfopt.ir import ACCESS
from lfopt.ops import bits
from lfopt.planning.chains.points import StagePoint, StagePoints
from lfopt.planning.chains.stages import Around, ChainStage
from lfopt.planning.chains.ways import Room, StageWays
from lfopt.planning.costs.alike import Structures
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.modes import NEVER, SCHEMES, ChainPart, Linked, Traffic
from lfopt.planning.modes.mode import is_single

MOST_CROSSING = 4  # maps at a cut within a given group
LONGEST = 12  # pieces between cuts that make a stage
ROUNDS = 400  # shortest paths that are looked for
# bytes over the fewest that a stage may move where cycles count, as a share of those of all groups
EXTRA = 0.05
# cycles of stages over what the estimates of their operators say, as far as nothing else is known
ESTIMATED = 1.15

Kept = frozenset[tuple[int, bool]]  # maps on chip, and whether DRAM has them too
NONE: Kept = frozenset()


class Edge(NamedTuple):
    """A stage with what is on chip around it."""

    first: int  # cut at which it begins
    stop: int  # cut at which it ends
    enter: Kept
    leave: Kept


@dataclass
class KnownStages:
    """How stages run that were worked out, on one chip in one scheme. Those of one structure run alike."""

    operators: dict[Hashable, int] = field(default_factory=dict[Hashable, int])  # see `Structures`
    # (mode, bytes of buffer that it is given); None: no mode fits
    choices: dict[Hashable, tuple[str, int] | None] = field(
        default_factory=dict[Hashable, "tuple[str, int] | None"]
    )


class Pace(NamedTuple):
    """What cycles count for where chains are to be fast, too."""

    bytes_per_cycle: float  # DRAM bytes that a cycle is worth
    points: StagePoints

    def worth(self, point: StagePoint) -> float:
        """Bytes that a stage moves, and what its cycles are worth."""
        return point.dram_bytes + self.bytes_per_cycle * point.cycles

    def estimated(self, mask: int) -> float:
        """What the cycles of some operators are worth, for stages that were not worked out."""
        return self.bytes_per_cycle * ESTIMATED * self.points.estimated(mask)


def link(
    costs: GroupCosts,
    groups: Sequence[int],
    late: Callable[[int], bool] = lambda _: False,
    known: KnownStages | None = None,
    pace: Pace | None = None,
) -> tuple[int, ...]:
    """The groups of a legal scheme, in an executable order, chained where that moves fewer bytes.

    The costs learn of the chains. `late`: whether the time is over, given how many stages were worked out;
    then those are joined that were. `known`: stages of other plans for the same chip. `pace`: what cycles
    count for; None: nothing.
    """
    return _linked(costs, groups, late, known or KnownStages(), pace)


def relink(costs: GroupCosts, groups: Sequence[int], late: Callable[[int], bool] = lambda _: False) -> None:
    """Let the costs learn which of these groups are chains. `late`: see `link`.

    Their operators may be cut apart anywhere, since nothing says of which stages they were.
    """
    for group in groups:
        if not is_single(group):
            _linked(costs, (group,), late, KnownStages(), None, everywhere=True)


def _linked(
    costs: GroupCosts,
    groups: Sequence[int],
    late: Callable[[int], bool],
    known: KnownStages,
    pace: Pace | None,
    *,
    everywhere: bool = False,
) -> tuple[int, ...]:
    if not SCHEMES[costs.scheme].chains or costs.traffic is Traffic.PAPER:
        return tuple(groups)
    linked: list[Linked | int] = []
    for constrained, run in groupby(groups, lambda group: bool(group & costs.rules.touched)):
        unlinked = [*run]
        if constrained:
            linked += unlinked
        else:
            linked += _Linking(costs, unlinked, late, known, pace, everywhere=everywhere).run()
    for chain in linked:
        if isinstance(chain, Linked):
            costs.learn(chain)
    return tuple(chain.mask if isinstance(chain, Linked) else chain for chain in linked)


class _Linking:
    def __init__(
        self,
        costs: GroupCosts,
        groups: Sequence[int],
        late: Callable[[int], bool],
        known: KnownStages,
        pace: Pace | None,
        *,
        everywhere: bool,
    ) -> None:
        self.costs = costs
        self.pace = pace
        self.choices = known.choices
        self.structures = Structures(costs.dataflow, known.operators)
        self.flow = costs.dataflow
        self.sizes = costs.groups
        self.late = lambda: late(len(self.known))
        self.most_crossing, self.longest = (
            (len(costs.dataflow.maps), 2 * LONGEST) if everywhere else (MOST_CROSSING, LONGEST)
        )
        self.beta = costs.hardware.buffer_bytes
        self.given = tuple(groups)
        self.ways = StageWays(costs)
        self.bytes = self.ways.bytes
        order = [i for group in groups for i in bits(group)]
        at = {i: k for k, i in enumerate(order)}
        inside = sum(1 << i for i in order)
        # per map: whether DRAM gets it in any case
        self.stored = [
            out or bool(readers & ~inside)
            for out, readers in zip(self.flow.is_output, self.flow.readers, strict=True)
        ]
        # per map: position of its last reader
        self.last = [
            max((at[i] for i in bits(readers) if i in at), default=-1) for readers in self.flow.readers
        ]
        self.cuts = self._cuts(order, at)
        # operators between two cuts
        self.masks = [
            sum(1 << i for i in order[low:high]) for low, high in zip(self.cuts, self.cuts[1:], strict=False)
        ]
        ends = [0, *accumulate(group.bit_count() for group in self.given)]
        cut = {position: k for k, position in enumerate(self.cuts)}
        # given groups, by first cut: (cut behind it, mask)
        self.whole = {
            cut[low]: (cut[high], group) for low, high, group in zip(ends, ends[1:], self.given, strict=False)
        }
        self.edges: dict[int, list[tuple[int, int]]] = {}  # by first cut
        self.reckoning = True  # whether a path may run through stages that were not worked out
        self.reckoned: dict[Edge, int] = {}
        self.known: dict[Edge, tuple[int, ChainStage | None]] = {}
        # buffer bytes that a stage must do without, since resident maps are in its way
        self.less: dict[Edge, int] = {}
        self._next: dict[tuple[int, Kept], list[tuple[Edge, int]]] = {}

    # -- the graph -------------------------------------------------------------------------------------------

    def _cuts(self, order: Sequence[int], at: dict[int, int]) -> list[int]:
        """Positions in the order at which a stage may begin or end."""
        ends = {*accumulate((group.bit_count() for group in self.given), initial=0)}
        total = len(order)
        crossing: list[list[int]] = [[] for _ in range(total + 1)]  # bytes of the maps that cross
        for m, size in enumerate(self.bytes):
            maker = self.flow.producer[m]
            if maker in at:
                for position in range(at[maker] + 1, self.last[m] + 1):
                    crossing[position].append(size)
        fit = (
            maps_across
            for maps_across in enumerate(crossing)
            if maps_across[1]
            and min(maps_across[1]) < self.beta
            and len(maps_across[1]) <= self.most_crossing
        )
        return sorted(ends | {position for position, _ in fit})

    def _ahead(self, first: int) -> Iterator[tuple[int, int]]:
        """(cut, mask) of the stages that begin at a cut; once it is late, of the group that is there."""
        mask = 0
        known = self.whole.get(first, (0, 0))
        for k in range(first, min(first + self.longest, len(self.masks))):
            if self.late():
                break
            mask |= self.masks[k]
            if (
                mask != known[1]
                and connected(self.flow.neighbours, mask)
                and self.costs.price(mask) is not None
            ):
                yield k + 1, mask
        if known[1]:
            yield known

    def _options(self, first: int, kept: Kept) -> list[tuple[Edge, int]]:
        """Stages that may come next, with their operators."""
        key = first, kept
        if key not in self._next:
            if first not in self.edges:
                self.edges[first] = [*self._ahead(first)]
            self._next[key] = [
                (Edge(first, stop, kept, leave), mask)
                for stop, mask in self.edges[first]
                for leave in self._leaves(mask, stop, kept)
            ]
        return self._next[key]

    def _leaves(self, mask: int, stop: int, enter: Kept) -> Iterator[Kept]:
        """Sets of maps that may be on chip after a stage.

        A map that DRAM does not have stays as long as it is needed.
        """
        here = {m for m, _ in enter}
        end = self.cuts[stop]
        staying = {(m, stored) for m, stored in enter if self.last[m] >= end}
        must = frozenset(pair for pair in staying if not pair[1])
        free = {*(staying - must)}
        for i in bits(mask):
            free |= {(m, False) for m in self.flow.results[i] if self.last[m] >= end and not self.stored[m]}
            reads = (o.map for o in self.flow.operands[i] if not self.flow.makes(mask, o.map))
            free |= {(m, True) for m in reads if self.last[m] >= end and m not in here}
        choices = {
            frozenset[tuple[int, bool]](),
            frozenset(free),
            *(frozenset((pair,)) for pair in free),
            *(frozenset(free - {pair}) for pair in free),
        }
        for choice in sorted(choices, key=sorted):
            if sum(self.bytes[m] for m, _ in must | choice) < self.beta:
                yield must | choice

    def _mask(self, edge: Edge) -> int:
        mask = 0
        for k in range(edge.first, edge.stop):
            mask |= self.masks[k]
        return mask

    # -- shortest path ---------------------------------------------------------------------------------------

    def run(self) -> list[Linked | int]:
        """Chains, and groups that are in none, in an executable order."""
        for _ in range(ROUNDS):
            if self.late():
                break
            new = [edge for edge in self._path() if self._is_open(edge)]
            for edge in takewhile(lambda _: not self.late(), new):
                self.known[edge] = self._work_out(edge)
            if not new and (chains := self._joined()) is not None:
                return chains
        self.reckoning = False  # what was worked out must do
        for _ in range(ROUNDS):
            if (chains := self._joined()) is not None:
                return chains
        return [*self.given]

    def _is_open(self, edge: Edge) -> bool:
        """Whether what a stage takes is to be worked out. Of groups by themselves, bytes are known."""
        return edge not in self.known and bool(edge.enter or edge.leave or self.pace)

    def _joined(self) -> list[Linked | int] | None:
        """The stages of the cheapest path, joined into chains.

        None where a chain does not come about: then its stages cost more on the next path.
        """
        chains = [
            self._mask(edges[0]) if not edges[-1].enter else self._join(edges)
            for edges in _chains(self._path())
        ]
        if None in chains:
            return None
        return [chain for chain in chains if chain is not None]

    def _path(self) -> list[Edge]:
        """The cheapest stages from the first operator to the last, as far as costs are known."""
        states: list[dict[Kept, tuple[int, Edge | None]]] = [{} for _ in self.cuts]
        states[0][NONE] = 0, None
        for k in range(len(self.masks)):
            for kept, (cost, _) in sorted(states[k].items(), key=lambda item: (item[1][0], sorted(item[0]))):
                for edge, mask in self._options(k, kept):
                    total = cost + self._cost(edge, mask)
                    if total < states[edge.stop].get(edge.leave, (NEVER, None))[0]:
                        states[edge.stop][edge.leave] = total, edge
        path: list[Edge] = []
        edge = states[-1].get(NONE, (0, None))[1]
        while edge is not None:
            path.append(edge)
            edge = states[edge.first][edge.enter][1]
        return path[::-1]

    def _cost(self, edge: Edge, mask: int) -> int:
        """Bytes that a stage moves, as far as known."""
        if edge in self.known:
            return self.known[edge][0]
        if (edge.enter or edge.leave) and (not self.reckoning or (edge not in self.reckoned and self.late())):
            return NEVER
        if edge not in self.reckoned:
            self.reckoned[edge] = self._reckon(edge, mask)
        return self.reckoned[edge]

    def _reckon(self, edge: Edge, mask: int) -> int:
        worth = 0 if self.pace is None else int(self.pace.estimated(mask))
        return min(worth + self._moved(edge, mask), NEVER)

    def _moved(self, edge: Edge, mask: int) -> int:
        """Bytes that a stage moves at the least."""
        price = self.costs.price(mask)
        if price is None:
            return NEVER
        if not edge.enter and not edge.leave:
            return price.dram_bytes
        around = self._around(edge)
        if price.mode == ACCESS:  # in a chain it is executed
            once = self.sizes.once(mask)
            return self.ways.at_least(once.total, once, mask, around)
        if price.mode not in SCHEMES[self.costs.scheme].modes or not self.sizes.parameters_at_once(mask):
            return NEVER
        return self.ways.at_least(price.dram_bytes, self.costs.terms(mask).dram, mask, around)

    # -- stages ----------------------------------------------------------------------------------------------

    def _work_out(self, edge: Edge) -> tuple[int, ChainStage | None]:
        """(DRAM bytes, stage) of the mode that moves the fewest, on the buffer that resident maps leave.

        Where cycles count for something, of the least worth.
        """
        mask = self._mask(edge)
        around = self._around(edge)
        room = self.ways.room(mask, around, self.less.get(edge, 0))
        if self.pace is not None:
            return self._of_least_worth(self.pace, edge, around, room)
        key = (
            self.structures.key(mask),
            self.structures.positions(mask, around.enter),
            self.structures.positions(mask, around.leave),
            room,
        )
        if key in self.choices:
            choice = self.choices[key]
            stage = None if choice is None else self.ways.stage(mask, *choice, around)
        else:
            choice, stage = self.ways.fewest(mask, around, room)
            self.choices[key] = choice
        if stage is None:
            return NEVER, None
        return stage.dram.total + self.sizes.parameter_bytes(mask), stage

    def _of_least_worth(
        self, pace: Pace, edge: Edge, around: Around, room: Room
    ) -> tuple[int, ChainStage | None]:
        """(what its bytes and cycles are worth, stage) of the option for which that is least."""
        mask = self._mask(edge)
        most = self._moved(edge, mask)
        if most == NEVER:
            return NEVER, None
        most += int(EXTRA * self.costs.dram_bytes(self.given))
        if not edge.enter and not edge.leave:
            worths = map(pace.worth, pace.points.of_group(mask, most, pace.bytes_per_cycle))
            return int(min(worths, default=self._reckon(edge, mask))), None  # it may have no steps
        points = pace.points.of(mask, around, room, most, pace.bytes_per_cycle)
        for point in sorted(points, key=pace.worth):
            stage = pace.points.stage(mask, around, point)
            if stage is not None:
                return int(pace.worth(point)) + self.sizes.parameter_bytes(mask), stage
        return NEVER, None

    @staticmethod
    def _around(edge: Edge) -> Around:
        return Around(frozenset(m for m, _ in edge.enter), frozenset(m for m, _ in edge.leave))

    def _join(self, edges: Sequence[Edge]) -> Linked | None:
        """The chain of stages; None where it is not connected, or does not fit.

        In that case the stage that reaches highest must do with less buffer.
        """
        parts: list[ChainPart] = []
        for edge in edges:
            _, stage = self.known[edge]
            assert stage is not None, "a path runs through no stage that does not fit"
            parts.append(ChainPart(stage, self._around(edge)))
        if not connected(self.flow.neighbours, sum(part.stage.mask for part in parts)):
            self.known[edges[0]] = NEVER, None
            return None
        outcome = self.ways.join(parts)
        if isinstance(outcome, Linked):
            return outcome
        number, excess = outcome
        self.less[edges[number]] = self.less.get(edges[number], 0) + max(
            excess, self.less.get(edges[number], 0)
        )
        self.known.pop(edges[number])
        return None


def _chains(path: Sequence[Edge]) -> Iterator[list[Edge]]:
    """Stages of which each leaves something on chip for the next."""
    number = 0
    numbers: list[int] = []
    for edge in path:
        numbers.append(number)
        number += not edge.leave
    for _, edges in groupby(zip(numbers, path, strict=True), key=lambda item: item[0]):
        yield [edge for _, edge in edges]

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

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, takewhile
from typing import NamedTuple

from lfopt.fusion import connected
from lfopt.ir import ACCESS, DramBytes, Store
from lfopt.ops import bits
from lfopt.planning.chains.joining import Joining
from lfopt.planning.chains.stages import ChainStage, StageBuilder
from lfopt.planning.costs.alike import Structures
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.modes import NEVER, SCHEMES, Linked, Traffic
from lfopt.planning.modes.mode import is_single
from lfopt.planning.steps.addresses import Life, allocate
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.steps.limit import Limit, Unwritten

MOST_CROSSING = 4  # maps at a cut within a given group
LONGEST = 12  # pieces between cuts that make a stage
ROUNDS = 400  # shortest paths that are looked for

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


def link(
    costs: GroupCosts,
    groups: Sequence[int],
    late: Callable[[int], bool] = lambda _: False,
    known: KnownStages | None = None,
) -> tuple[int, ...]:
    """The groups of a legal scheme, in an executable order, chained where that moves fewer bytes.

    The costs learn of the chains. `late`: whether the time is over, given how many stages were worked out;
    then those are joined that were. `known`: stages of other plans for the same chip.
    """
    return _linked(costs, groups, late, known or KnownStages())


def relink(costs: GroupCosts, groups: Sequence[int], late: Callable[[int], bool] = lambda _: False) -> None:
    """Let the costs learn which of these groups are chains. `late`: see `link`.

    Their operators may be cut apart anywhere, since nothing says of which stages they were.
    """
    for group in groups:
        if not is_single(group):
            _linked(costs, (group,), late, KnownStages(), everywhere=True)


def _linked(
    costs: GroupCosts,
    groups: Sequence[int],
    late: Callable[[int], bool],
    known: KnownStages,
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
            linked += _Linking(costs, unlinked, late, known, everywhere=everywhere).run()
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
        *,
        everywhere: bool,
    ) -> None:
        self.costs = costs
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
        self.layout = BufferLayout(self.flow, costs.hardware)
        # per map: bytes of it whole on chip
        self.bytes = [tensor.rows * costs.hardware.row_bytes(tensor) for tensor in self.flow.maps]
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
            new = [edge for edge in self._path() if (edge.enter or edge.leave) and edge not in self.known]
            for edge in takewhile(lambda _: not self.late(), new):
                self.known[edge] = self._work_out(edge)
            if not new and (chains := self._joined()) is not None:
                return chains
        self.reckoning = False  # what was worked out must do
        for _ in range(ROUNDS):
            if (chains := self._joined()) is not None:
                return chains
        return [*self.given]

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
        price = self.costs.price(mask)
        if price is None:
            return NEVER
        if not edge.enter and not edge.leave:
            return price.dram_bytes
        enter = frozenset(m for m, _ in edge.enter)
        leave = frozenset(m for m, _ in edge.leave)
        if price.mode == ACCESS:  # in a chain it is executed
            once = self.sizes.once(mask)
            return self._at_least(once.total, once, mask, enter, leave)
        if price.mode not in SCHEMES[self.costs.scheme].modes or not self.sizes.parameters_at_once(mask):
            return NEVER
        return self._at_least(price.dram_bytes, self.costs.terms(mask).dram, mask, enter, leave)

    def _at_least(
        self, total: int, dram: DramBytes, mask: int, enter: frozenset[int], leave: frozenset[int]
    ) -> int:
        """Lower bound on `total` bytes: what remains if all that is loaded repeatedly is on chip."""
        read = {o.map for i in bits(mask) for o in self.flow.operands[i]}
        written = {m for i in bits(mask) for m in self.flow.results[i]}
        total -= sum(self.sizes.map_bytes[m] for m in (enter & read) - written) + sum(
            self.sizes.map_bytes[m] for m in leave & written
        )
        if (enter | leave) & read - written:
            total -= dram.input - self.sizes.once(mask).input
        return total

    # -- stages ----------------------------------------------------------------------------------------------

    def _work_out(self, edge: Edge) -> tuple[int, ChainStage | None]:
        """(DRAM bytes, stage) of the mode that moves the fewest, on the buffer that resident maps leave."""
        mask = self._mask(edge)
        enter = frozenset(m for m, _ in edge.enter)
        leave = frozenset(m for m, _ in edge.leave)
        touched = self.flow.touched(mask)
        left = self.beta - sum(self.bytes[m] for m in (enter & leave) - touched) - self.less.get(edge, 0)
        before, after = (sum(self.bytes[m] for m in maps & touched) for maps in (enter, leave))
        budgets = dict.fromkeys(
            (left, left - min(before, after), left - max(before, after), left - before - after)
        )
        key = (
            self.structures.key(mask),
            self.structures.positions(mask, enter),
            self.structures.positions(mask, leave),
            tuple(budgets),
            left,
        )
        if key in self.choices:
            choice = self.choices[key]
            stage = None if choice is None else self._stage(mask, *choice, enter, leave)
        else:
            choice, stage = self._fewest(mask, budgets, enter, leave, left)
            self.choices[key] = choice
        if stage is None:
            return NEVER, None
        return stage.dram.total + self.sizes.parameter_bytes(mask), stage

    def _fewest(
        self, mask: int, budgets: Iterable[int], enter: frozenset[int], leave: frozenset[int], left: int
    ) -> tuple[tuple[str, int] | None, ChainStage | None]:
        """((mode, bytes of buffer that it is given), stage) of the mode that moves the fewest bytes."""
        ranked = self._ranked(mask, budgets, enter, leave)
        choice: tuple[str, int] | None = None
        best: ChainStage | None = None
        for least, name, same in ranked:
            if best is not None and least >= best.dram.total:
                break
            for budget in dict.fromkeys((same[0], same[-1])):  # a mode widens slices to fill what it is given
                stage = self._stage(mask, name, budget, enter, leave)
                better = stage is not None and (best is None or stage.dram.total < best.dram.total)
                if stage is not None and better and self._fits(stage, enter, leave, left):
                    choice = name, budget
                    best = stage
                    break
        return choice, best

    def _ranked(
        self, mask: int, budgets: Iterable[int], enter: frozenset[int], leave: frozenset[int]
    ) -> list[tuple[int, str, list[int]]]:
        """(bytes that it moves at the least, mode, budgets) of ways to run a stage, fewest bytes first."""
        costs = self.costs
        once = self.sizes.once(mask).total
        # (mode, bytes, buffer) to (bytes that it moves at the least, budgets)
        tried: dict[tuple[str, int, int], tuple[int, list[int]]] = {}
        for name in SCHEMES[costs.scheme].modes if costs.passes_rows(mask) else ():
            mode = costs.modes[name]
            for budget in budgets:
                price = mode.price(mask, budget, once) if budget > 0 else None
                if price is None:
                    continue
                key = name, price.dram_bytes, price.required_bytes
                if key not in tried:
                    dram = mode.terms(mask, budget).dram
                    tried[key] = self._at_least(price.dram_bytes, dram, mask, enter, leave), []
                tried[key][1].append(budget)
        ways = [(least, name, same) for (name, *_), (least, same) in tried.items()]
        return sorted(ways, key=lambda way: way[0])

    def _stage(
        self, mask: int, name: str, budget: int, enter: frozenset[int], leave: frozenset[int]
    ) -> ChainStage | None:
        mode = self.costs.modes[name]
        scheduled = mode.schedule(
            mask, budget, mode.terms(mask, budget).band_rows if not mode.heights(mask) else 1
        )
        if isinstance(scheduled.make, str):
            return None
        try:
            stage = StageBuilder(self.layout, mask, scheduled.make(Limit()), enter, leave).stage()
        except Unwritten:
            return None
        if stage.macs > self.sizes.most_macs(mask, self.costs.max_recompute):
            return None
        # no step says when a map without elements is used
        if stage.used.keys() == stage.held.keys():
            return stage
        return None

    def _fits(self, stage: ChainStage, enter: frozenset[int], leave: frozenset[int], left: int) -> bool:
        """Whether a stage fits by itself, with the maps that are on chip around it."""
        hardware = self.layout.hardware
        lives = dict[Store, list[Life]]()
        for lot in stage.lots:
            lives.setdefault(hardware.store_of(stage.places[lot.places[0][0]].purpose), []).append(lot.life)
        for m, k in stage.held.items():
            first, last = stage.used[m]
            if m in stage.over.values():
                continue
            start = 0 if m in enter or m in stage.over else first
            lives.setdefault("buffer", []).append(
                Life(stage.places[k].bytes, start, len(stage.nodes) - 1 if m in leave else last)
            )
        return all(
            allocate(live)[1] < (left if store == "buffer" else hardware.stores[store])
            for store, live in lives.items()
        )

    def _join(self, edges: Sequence[Edge]) -> Linked | None:
        """The chain of stages; None where it is not connected, or does not fit.

        In that case the stage that reaches highest must do with less buffer.
        """
        stages = [self.known[edge][1] for edge in edges]
        assert all(stage is not None for stage in stages), "a path runs through no stage that does not fit"
        mask = sum(stage.mask for stage in stages if stage is not None)
        if not connected(self.flow.neighbours, mask):
            self.known[edges[0]] = NEVER, None
            return None
        joined = Joining(self.flow, self.layout, mask)
        for edge, stage in zip(edges, stages, strict=True):
            assert stage is not None
            loads = [
                self.layout.load_parameters(*pair)
                for i in bits(stage.mask)
                for pair in self.sizes.parameters_of(i)
            ]
            joined.add(stage, loads, {m for m, _ in edge.enter}, {m for m, _ in edge.leave})
        outcome = joined.build(self.beta)
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

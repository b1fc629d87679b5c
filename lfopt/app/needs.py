"""What a group takes of the buffer, as it runs, and the smallest buffer in which it runs at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from lfopt.ir import (
    UNLIMITED,
    BufferUse,
    Compute,
    Cost,
    Graph,
    Hardware,
    Node,
    Place,
    Plan,
    PlannedGroup,
    leaves,
)
from lfopt.ir.cost import Mode
from lfopt.ops import Dataflow, bits
from lfopt.ops.dataflow import maps_behind
from lfopt.planning import NEVER, SCHEMES, GroupCosts, Traffic, relink
from lfopt.planning.modes import ChainedMode, Linked, ModeOption, NestMode, Scheduled, TrafficTerms
from lfopt.planning.modes.mode import is_single, place_use
from lfopt.planning.steps.limit import Limit, never
from lfopt.planning.steps.macs import executed_macs
from lfopt.planning.steps.place_names import tensor_in
from lfopt.planning.written.text import parse_nest

Role = Literal["input", "inner", "output", "weights", "sums", "parameters", "gaps"]
GIVEN_STEPS = ("chained", "nest")  # modes of groups whose steps are known, and follow from nothing else


@dataclass(frozen=True, slots=True)
class BufferOccupant:
    """Something that takes space in the buffer."""

    what: str  # a map, an operator with weights, or a constant
    # of a map: input, read from outside; inner, read by the group alone; output, needed outside. gaps: left
    # between maps of different sizes
    role: Role
    rows: int  # of a map or of partial sums, held at once; else 0
    row_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BufferNeed:
    """What a group takes of the buffer: as it runs, or, if it does not, in the mode that needs the least."""

    mode: Mode
    bytes: int  # that the buffer must exceed: F_beta, or a tile; 0 where no buffer is large enough
    available: int  # beta
    uses: tuple[BufferOccupant, ...]  # the largest first; they add up to `bytes`
    enough: int  # the smallest sufficient buffer, in whatever mode of the scheme; 0 if there is none
    never: str = ""  # why no buffer is large enough
    weights: int = 0  # bytes of weights, where they have a buffer of their own
    # the smallest buffer in which it runs whole, neither in tiles nor in blocks; 0 if there is none
    whole: int = 0
    settled: bool = True  # whether no smaller buffer than `enough` is left to be asked for chains

    @property
    def fits(self) -> bool:
        """Whether the group runs from the buffer."""
        return not self.never and self.bytes < self.available

    @property
    def over(self) -> int:
        """Bytes by which the group, or the buffer, would have to change."""
        return self.bytes - self.available + 1


def need_of(costs: GroupCosts, mask: int) -> BufferNeed:
    """What takes how much of the buffer. No chains are looked for."""
    beta = costs.hardware.buffer_bytes
    if not costs.groups.parameters_fit(mask):
        return BufferNeed(costs.least_need(mask)[0], 0, beta, (), 0, _parameters_lacking(costs, mask))
    price = costs.price(mask)
    name, least = costs.smallest_need(mask)
    if price is not None and runs(costs, mask, price):
        mode, needed = price.mode, price.buffer_bytes
    elif least == NEVER:
        return _never(costs, mask)
    else:
        mode, needed = name, least
    uses = sorted(_uses(costs, mask, mode), key=lambda use: -use.bytes)
    weights = 0
    if costs.hardware.weight_buffer_bytes:
        weights = sum(use.bytes for use in uses if use.kind == "weights")
        uses = [use for use in uses if use.kind != "weights"]
    flow = costs.dataflow
    occupants = [
        BufferOccupant(use.what, role_of(flow, mask, use.what) if use.kind == "map" else use.kind, *use[2:])
        for use in uses
        if use.bytes
    ]
    if gaps := needed - sum(use.bytes for use in occupants):
        occupants.append(BufferOccupant("between maps" if occupants else "one tile", "gaps", 0, 0, gaps))
    whole = costs.least_need(mask)[1]
    return BufferNeed(
        mode,
        needed,
        beta,
        tuple(occupants),
        least + 1 if least < NEVER else 0,
        weights=weights,
        whole=whole + 1 if whole < NEVER else 0,
    )


def runs(costs: GroupCosts, mask: int, price: Cost) -> bool:
    """Whether a price is that of a group that runs: with steps, and not counted as if it fitted."""
    mode = costs.modes[price.mode]
    return price.executable and (mode.whole or mode.need(mask) < costs.hardware.buffer_bytes)


def _parameters_lacking(costs: GroupCosts, mask: int) -> str:
    store = costs.hardware.parameter_store_bytes
    needed = costs.groups.parameter_bytes(mask)
    if needed <= store:
        tables = costs.groups.tables_of(mask)
        return (
            f"its operators have {tables:,} tables, and their store holds {costs.hardware.parameter_tables:,}"
        )
    return f"its parameters take {needed:,} B, and their store has {store:,}"


def _never(costs: GroupCosts, mask: int) -> BufferNeed:
    """The need of a group that no buffer is large enough for, and why."""
    beta = costs.hardware.buffer_bytes
    weights = costs.least_weights(mask)
    if weights is None:
        name, _ = costs.least_need(mask)
        return BufferNeed(name, 0, beta, (), 0, costs.modes[name].never(mask))
    mode, size = weights
    lacking = (
        f"its weights take {size:,} B on chip at the least, and their buffer has "
        f"{costs.hardware.weight_buffer_bytes:,}"
    )
    return BufferNeed(mode, 0, beta, (), 0, lacking, size)


def role_of(flow: Dataflow, mask: int, name: str) -> Role:
    """What a map is to a group, by the name of its place."""
    m = flow.map_index[flow.behind[name if name in flow.behind else tensor_in(name)]]
    if flow.producer[m] < 0 or not mask >> flow.producer[m] & 1:
        return "input"
    if flow.is_output[m] or flow.readers[m] & ~mask:
        return "output"
    return "inner"


def _uses(costs: GroupCosts, mask: int, mode: Mode) -> Iterator[BufferUse]:
    """The breakdown of the buffer, of a group that runs as it was taken to, or in a mode."""
    beta = costs.hardware.buffer_bytes
    way = costs.taken(mask)
    if way is None and mode in GIVEN_STEPS:
        scheduled = costs.modes[mode].schedule(mask, beta, 1)
    elif way is None:
        yield from costs.modes[mode].uses(mask, beta)
        return
    else:
        scheduled = way.scheduled
    assert not isinstance(scheduled.make, str), "a group that runs has steps"
    for place, name in fullest(*scheduled.make(Limit()), costs.dataflow.graph, costs.hardware):
        yield place_use(place, name)._replace(what=name)


def fullest(
    places: Sequence[Place], steps: Sequence[Node], graph: Graph, hardware: Hardware
) -> Iterator[tuple[Place, str]]:
    """The places in use where the buffer is filled highest, and all of other buffers, with what they hold.

    Steps at the left margin are told apart. Of places that lie over each other, one is given.
    """
    lives = _lives(steps, graph)
    used = [k for k in lives if hardware.store_of(places[k].purpose) == "buffer"]
    if used:
        highest = lives[max(used, key=lambda k: places[k].end)]
        starts = {lives[k].first for k in used if highest.first <= lives[k].first <= highest.last}
        together = (_side_by_side(places, [k for k in used if lives[k].spans(at)]) for at in sorted(starts))
        for k in max(together, key=lambda numbers: sum(places[k].bytes for k in numbers)):
            yield places[k], lives[k].tensor or places[k].name
    for k in sorted(lives):
        if hardware.store_of(places[k].purpose) != "buffer":
            yield places[k], lives[k].tensor or places[k].name


def _side_by_side(places: Sequence[Place], numbers: Iterable[int]) -> list[int]:
    """Of these places, by number, those that do not lie over another that begins no later."""
    kept: list[int] = []
    for k in sorted(numbers, key=lambda k: (places[k].address, -places[k].end)):
        if not kept or places[k].address >= places[kept[-1]].end:
            kept.append(k)
    return kept


class _PlaceLife(NamedTuple):
    """What a place holds first, and the steps at the left margin that use it, by number."""

    first: int
    last: int
    tensor: str  # empty of partial sums

    def spans(self, at: int) -> bool:
        """Whether the place is in use in a step."""
        return self.first <= at <= self.last


def _lives(steps: Sequence[Node], graph: Graph) -> dict[int, _PlaceLife]:
    """When each place is used, by number: from the first step that fills it to the last that reads it."""
    behind = maps_behind(graph)
    operators = {operator.name: operator for operator in graph.operators}
    spans: dict[int, _PlaceLife] = {}
    holders: dict[str, set[int]] = {}  # per tensor: places that have held it

    def use(places: Iterable[int], number: int, tensor: str = "") -> None:
        for k in places:
            if k >= 0:
                before = spans.get(k, _PlaceLife(number, number, tensor))
                spans[k] = _PlaceLife(before.first, number, before.tensor or tensor)

    for number, node in enumerate(steps):
        for step in leaves((node,)):
            if isinstance(step, Compute):
                parts = [operators[name] for name in (step.operator, *step.then)]
                for name in (name for part in parts for name in part.inputs):
                    use(holders.get(behind.get(name, name), ()), number)
                use((step.accumulator,), number)
                for name, k in zip(filter(None, parts[-1].outputs), step.places, strict=False):
                    use((k,), number, name)
                    holders.setdefault(behind.get(name, name), set()).add(k)
            else:
                use((step.place,), number, step.tensor)
                holders.setdefault(behind.get(step.tensor, step.tensor), set()).add(step.place)
    return spans


# -- groups of a plan ----------------------------------------------------------------------------------------


def take_planned(costs: GroupCosts, plan: Plan, masks: Sequence[int]) -> dict[int, ModeOption]:
    """Let the groups of a plan run as it says, where they fit the buffer and nothing moves fewer bytes.

    `masks`: its groups; `costs`: of its network. What the plan says of each, by mask: nothing on another
    chip, but for the size of the buffer, or in another scheme, and nothing of groups without steps.
    """
    beta = costs.hardware.buffer_bytes
    same_chip = replace(costs.hardware, buffer_bytes=plan.hardware.buffer_bytes) == plan.hardware
    if not same_chip or costs.scheme != plan.scheme or costs.traffic is not Traffic(plan.traffic):
        return {}
    ways: dict[int, ModeOption] = {}
    for mask, group in zip(masks, plan.groups, strict=True):
        if not group.steps:
            continue
        way = _planned_way(costs, group)
        ways[mask] = way
        price = costs.price(mask)
        own = beta == plan.hardware.buffer_bytes
        if way.cost.buffer_bytes < beta and (own or price is None or way.cost.dram_bytes <= price.dram_bytes):
            _take(costs, mask, group, way)
    return ways


def _planned_way(costs: GroupCosts, group: PlannedGroup) -> ModeOption:
    buffer_bytes = group.allocated_bytes(costs.hardware)
    return ModeOption(
        Cost(group.dram.total, buffer_bytes, group.mode, buffer_bytes),
        TrafficTerms(group.dram, band_rows=group.band_rows, spilled=group.spilled),
        Scheduled(buffer_bytes, lambda _: (group.places, group.steps)),
    )


def _take(costs: GroupCosts, mask: int, group: PlannedGroup, way: ModeOption) -> None:
    """Let a group run as the plan says; modes of given steps learn of it."""
    mode = costs.modes[group.mode]
    if isinstance(mode, ChainedMode):
        macs = executed_macs(costs.dataflow, (group,))
        bytes_used = way.cost.buffer_bytes
        costs.learn(Linked(mask, group.places, group.steps, bytes_used, group.dram, group.spilled, macs))
    elif isinstance(mode, NestMode):
        _, nest = parse_nest("\n".join(group.nest), costs.dataflow, f"group {group.id}: nest")
        costs.give(mask, nest)
    costs.take(mask, way)


# -- the smallest buffer -------------------------------------------------------------------------------------


class ChainedNeed(NamedTuple):
    """The smallest buffer in which a group was seen to run as a chain."""

    buffer_bytes: int  # 0: in none
    settled: bool  # whether one byte less was asked for


def link_alone(costs: GroupCosts, mask: int, late: Callable[[], bool] = never) -> bool:
    """Whether a group runs as a chain on the buffer of the costs, which learn of it."""
    if not SCHEMES[costs.scheme].chains or is_single(mask) or costs.traffic is Traffic.PAPER:
        return False
    relink(costs, (mask,), lambda _: late())
    mode = costs.modes["chained"]
    return mode.price(mask, costs.hardware.buffer_bytes, 0) is not None


def smallest_chained(
    costs: GroupCosts, mask: int, enough: int, late: Callable[[], bool] = never
) -> ChainedNeed:
    """The smallest buffer in which a group runs as a chain, below one in which it runs.

    `enough`: that one, in bytes; 0: none is known. Found by halving, as if a chain that comes about on one
    buffer did on every larger one: on the buffer that is the result it does, or `enough` is that, and with a
    byte less it does not.
    """
    largest = enough or UNLIMITED
    if not enough and not link_alone(costs.at(largest), mask, late):
        return ChainedNeed(0, not late())
    modes = costs.pricing.whole
    too_small = max(min((mode.least(i) for mode in modes), default=NEVER) for i in bits(mask))
    if not enough:
        chain = costs.modes["chained"].price(mask, largest, 0)
        assert chain is not None, "it was seen to run"
        largest = chain.buffer_bytes + 1
    smallest = largest
    while smallest - too_small > 1:
        middle = (smallest + too_small) // 2
        if link_alone(costs.at(middle), mask, late):
            smallest = middle
        elif late():
            return ChainedNeed(smallest, settled=False)
        else:
            too_small = middle
    return ChainedNeed(smallest, settled=True)


def full_need(
    costs: GroupCosts, mask: int, ways: Mapping[int, ModeOption], late: Callable[[], bool] = never
) -> tuple[BufferNeed, int | None]:
    """(the need of a group, DRAM bytes in the smallest sufficient buffer), chains of the scheme included.

    These bytes are None where there is no such buffer, or no more than the smallest tiles fit it.

    `ways`: how groups of a plan run, by mask. `late`: whether the time to look for chains is over; what it
    leaves open, the need says.
    """
    beta = costs.hardware.buffer_bytes
    way = ways.get(mask)
    sufficient: list[int] = []
    if way is not None:
        sufficient.append(way.cost.buffer_bytes + 1)
    if costs.taken(mask) is None and link_alone(costs, mask, late):
        sufficient.append(beta)
    need = need_of(costs, mask)
    if need.enough:
        sufficient.append(need.enough)
    enough = min(sufficient, default=0)
    settled = True
    if SCHEMES[costs.scheme].chains and not is_single(mask) and costs.groups.parameters_fit(mask):
        enough, settled = smallest_chained(costs, mask, enough, late)
    if not enough:
        return replace(need, settled=settled), None
    if way is not None and way.cost.buffer_bytes < enough:
        moved = way.cost.dram_bytes
    else:
        moved = None
    if need.fits and enough == need.enough and costs.smallest_need(mask)[0] == "tiled":
        return replace(need, settled=settled), moved  # the best of the smallest tiles takes long to find
    there = costs.at(enough)
    link_alone(there, mask)
    price = there.price(mask)
    if price is not None and runs(there, mask, price):
        moved = price.dram_bytes if moved is None else min(moved, price.dram_bytes)
        if not need.fits:  # a chain may need less than any mode
            need = replace(need_of(there, mask), available=beta, whole=need.whole)
    return replace(need, enough=enough, settled=settled), moved

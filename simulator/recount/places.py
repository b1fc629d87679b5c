"""Places of a group: addresses, contents, and whether everything that a step reads is on chip then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from lfopt.ir import Hardware, Tensor, row_axis, store_ends
from lfopt.ops.statistics import has_statistics
from simulator.recount.attention import kept_shape, query_by_query, state_of
from simulator.recount.needs import ResultBoxes, Rules, constant_rules, operand_rules
from simulator.recount.onchip import ConstantLoads, Rows, Wanted, Write, WrittenPlace, close, missing_row
from simulator.recount.progressions import Ints, Leaf
from simulator.recount.schedule import LARGEST, Computation, GroupSteps, StepBox, called, describe
from simulator.recount.traffic import moved

# names of places for blocks of weights
WEIGHTS = (
    "weights",
    "weight blocks",
    *(f"weight blocks {number}" for number in range(2, 10)),
    "weight blocks of vectors",
    "weight blocks behind",
)


USES = (" as queries", " as keys", " as values", " as scores")  # and those from which attention reads it


class Tenant(NamedTuple):
    """Content of a place for maps or sums: a map, or the partial sums of one."""

    tensor: str
    sums: bool = False


def place_problems(schedule: GroupSteps) -> Iterator[str]:
    """Problems of the places; if there are none, reads of what is not on chip."""
    rings = [WrittenPlace(place, schedule.steps) for place in schedule.group.places]
    if bad := [*_where(schedule)]:
        yield from bad
        return
    tenants = _put(schedule, rings)
    for store in schedule.hardware.stores:
        here = [ring for ring in rings if schedule.hardware.store_of(ring.place.purpose) == store]
        close(here)
    wrong = [*_crowded(schedule)]
    wrong += [
        text for ring, held in zip(rings, tenants, strict=True) for text in _unfit(schedule, ring, held)
    ]
    yield from wrong or _StepReads(schedule, rings, tenants).problems()


def _where(schedule: GroupSteps) -> Iterator[str]:
    """Problems unless places have distinct names, aligned addresses, and ends below the buffer's."""
    places = schedule.group.places
    unit = _least_unit(schedule.hardware)
    for place in places:
        if not (
            1 <= place.slots <= LARGEST and 0 <= place.slot_bytes <= LARGEST and 0 <= place.address <= LARGEST
        ):
            yield f"place {place.name!r}: {place.slots} slots of {place.slot_bytes} B from {place.address} on"
        elif place.address % unit:
            yield f"place {place.name!r}: it begins at {place.address}, must be a multiple of {unit}"
    for name, times in Counter(place.name for place in places).items():
        if times > 1:
            yield f"{times} places are named {name!r}"
    ends = store_ends(places, schedule.hardware)
    for store, end in ends.items():
        if end >= (size := schedule.hardware.stores[store]):
            yield f"its places in the {store} end at {end}, must be below {size}"


def _least_unit(hardware: Hardware) -> int:
    """Alignment on chip, in bytes: the greatest common divisor of all element sizes."""
    bits = gcd(
        8 * hardware.element_bytes,
        8 * hardware.accumulator_bytes,
        *(hardware.constant_bits(bias=bias) for bias in (False, True)),
    )
    if bits % 8 == 0:
        return bits // 8
    return 1


def _put(schedule: GroupSteps, rings: Sequence[WrittenPlace]) -> list[set[Tenant]]:
    """Record the writes of every place; the tenants of each."""
    tenants: list[set[Tenant]] = [set() for _ in rings]
    for step, piece in schedule.moves:
        if not step.store and all(piece.extents):
            size = moved(schedule, step, piece)[1] if step.tensor in schedule.constants else 0
            rings[step.place].writes.append(
                Write(piece, piece.leaf.start(len(piece.extents)), step.offset, size)
            )
            tenants[step.place].add(Tenant(step.tensor))
    for step, piece in schedule.carries:
        if all(piece.extents):
            rings[step.place].writes.append(Write(piece, piece.leaf.start(len(piece.extents))))
            tenants[step.place].add(Tenant(step.tensor))
    for computation in schedule.computations:
        step = computation.step
        for piece, place in zip(computation.pieces, step.places, strict=True):
            target = place if step.last else step.accumulator
            if target >= 0 and all(piece.extents):
                written = piece if step.last else _kept(schedule, computation, piece)
                rings[target].writes.append(Write(written, written.first_row))
                tenants[target].add(Tenant(piece.tensor, sums=not step.last))
    return tenants


def _kept(schedule: GroupSteps, computation: Computation, piece: StepBox) -> StepBox:
    """Box that is kept of a part of a result while it is folded in parts."""
    call = schedule.net.calls[computation.step.operator]
    if call.attention is not None or has_statistics(call):
        return state_of(call, piece)
    return piece


def _crowded(schedule: GroupSteps) -> Iterator[str]:
    """Problems of computations that make more rows at once than there are slots.

    Loads may run through a ring row by row.
    """
    for computation in schedule.computations:
        step = computation.step
        for piece, place in zip(computation.pieces, step.places, strict=True):
            target = place if step.last else step.accumulator
            written = piece if step.last or not all(piece.extents) else _kept(schedule, computation, piece)
            if (
                target >= 0
                and all(piece.extents)
                and written.height > (slots := schedule.group.places[target].slots)
            ):
                yield f"{describe(computation.leaf)}: {written.height} rows at once for {slots} slots"


def _unfit(schedule: GroupSteps, ring: WrittenPlace, tenants: set[Tenant]) -> Iterator[str]:
    """Problems of a place, given its tenants.

    It must hold a single map or its sums, or any constants, in slots that have room for each part.
    """
    place = ring.place
    if not tenants:
        yield f"place {place.name!r}: nothing is ever put there"
        return
    constants = all(tenant.tensor in schedule.constants for tenant in tenants)
    if not constants and len(tenants) > 1:
        yield (
            f"place {place.name!r}: it takes "
            f"{' and '.join(sorted(repr(tenant.tensor) for tenant in tenants))}"
        )
        return
    (tenant, *_) = tenants
    purpose = "weight" if constants else "sum" if tenant.sums else "map"
    if purpose != place.purpose:
        yield f"place {place.name!r}: the plan says it is for a {place.purpose}, it takes a {purpose}"
    names = _names(schedule, tenants, purpose)
    if not called(place.name, names):
        yield (
            f"place {place.name!r}: found this name for what takes "
            f"{' and '.join(sorted(repr(t.tensor) for t in tenants))}; accepted: {names[0]!r}"
        )
    if constants:
        needed = max(write.offset + write.size for write in ring.writes)
        if not ring.in_turn():
            yield f"place {place.name!r}: blocks are not numbered one after the other"
    else:
        needed = max(_row_bytes(schedule, write.piece.extents, sums=tenant.sums) for write in ring.writes)
        if place.name == tenant.tensor and any(
            (number != piece.first_row).any() for piece, number in _numbered(schedule, ring)
        ):
            yield f"place {place.name!r}: rows are not in the slots of their numbers"
    if place.slot_bytes < needed:
        yield f"place {place.name!r}: the plan says slots of {place.slot_bytes} B, needed are {needed}"


def _names(schedule: GroupSteps, tenants: set[Tenant], purpose: str) -> tuple[str, ...]:
    """Names that a place may have, by what it holds.

    Of a map: its name, and its second use; of sums: their operator; of weights: the only constant.
    """
    if purpose == "map":
        return tuple(
            f"{tenant.tensor}{second}"
            for tenant in tenants
            for second in ("", " in blocks", " beside", " across", " down", " down first", *USES)
        )
    if purpose == "sum":
        return ("sums", *(f"sums of {schedule.net.maker[tenant.tensor]}" for tenant in tenants))
    return (*WEIGHTS, *(tenant.tensor for tenant in tenants if len(tenants) == 1))


def _numbered(schedule: GroupSteps, ring: WrittenPlace) -> Iterator[tuple[StepBox, Ints]]:
    """(box, number of the first slot (runs,)) of every write to a place and every store from it."""
    yield from ((write.piece, write.number) for write in ring.writes)
    for step, piece in schedule.moves:
        if step.store and schedule.group.places[step.place] is ring.place:
            yield piece, piece.leaf.start(len(piece.extents))


def _row_bytes(schedule: GroupSteps, extents: tuple[int, ...], *, sums: bool) -> int:
    """Bytes of one row of a box on chip."""
    hardware = schedule.hardware
    size = hardware.row_bytes(Tensor("", extents, ""))
    if sums:
        return size // hardware.element_bytes * hardware.accumulator_bytes
    return size


class _StepRead(NamedTuple):
    """Read of a map, or of sums, in all runs of a step."""

    leaf: Leaf
    wanted: Callable[[], Wanted]
    place: int | None = None  # where it must be; None: in any of its places


class _StepReads:
    """Lookup of all reads of the steps in the places, one map or its sums at a time, to save memory."""

    def __init__(
        self, schedule: GroupSteps, rings: Sequence[WrittenPlace], tenants: Sequence[set[Tenant]]
    ) -> None:
        self.schedule = schedule
        self.net = schedule.net
        self.rings = rings
        self.holding: dict[Tenant, list[WrittenPlace]] = defaultdict(list)
        loads: dict[str, list[tuple[WrittenPlace, Write]]] = defaultdict(list)
        for ring, held in zip(rings, tenants, strict=True):
            if ring.place.purpose == "weight":
                for write in ring.writes:
                    loads[write.piece.tensor].append((ring, write))
            else:
                (tenant,) = held
                self.holding[tenant].append(ring)
        self.blocks = {name: ConstantLoads(loads.get(name, ())) for name in schedule.constants}
        self.reads: dict[Tenant, list[_StepRead]] = defaultdict(list)
        self.rules: dict[tuple[str, int], Rules] = {}  # by operator and input
        # step, operator, its result, which inputs it reads
        self.operands: list[tuple[Leaf, str, Callable[[], ResultBoxes], range | None]] = []
        for computation in schedule.computations:
            if any(all(piece.extents) for piece in computation.pieces):
                self._computation(computation)
        for op, piece in schedule.gathers:
            self.operands.append((piece.leaf, op, partial(schedule.result, op, [piece]), range(1, 2)))
        for leaf, op, result, inputs in self.operands:
            self._maps(leaf, op, result, inputs)
        for step, piece in schedule.moves:
            if step.store and all(piece.extents):
                self.reads[Tenant(step.tensor)].append(
                    _StepRead(piece.leaf, partial(_same, piece), step.place)
                )
        for step, piece in schedule.carries:
            if all(piece.extents):
                self.reads[Tenant(step.tensor)].append(_StepRead(piece.leaf, partial(_same, piece)))

    def _computation(self, computation: Computation) -> None:
        leaf = computation.leaf
        step = computation.step
        pieces = computation.pieces
        call = self.schedule.net.calls[step.operator]
        most = len(call.operator.inputs) if call.attention is not None else 1 if has_statistics(call) else 2
        inputs = None if step.last else range(most)  # a bias is added when sums are finished
        self.operands.append(
            (
                leaf,
                step.operator,
                lambda: self.schedule.result(step.operator, pieces, computation.inputs),
                inputs,
            )
        )
        if not step.first:
            held = _kept(self.schedule, computation, pieces[0])
            self.reads[Tenant(pieces[0].tensor, sums=True)].append(
                _StepRead(leaf, partial(_same, held), step.accumulator)
            )

    def _maps(self, leaf: Leaf, op: str, result: Callable[[], ResultBoxes], inputs: range | None) -> None:
        """Add the reads of these operands; None: of all, with those of what follows in flight."""
        for read in self.net.reads[op]:
            if inputs is None or (read.by == op and read.index in inputs):
                seen = read.seen == read.map or Tenant(read.seen) in self.holding
                name = read.seen if seen else read.map
                if (read.by, read.index) not in self.rules:
                    self.rules[read.by, read.index] = operand_rules(
                        self.net, read, self.net.calls[read.by], seen=seen
                    )
                beside = read.by != op and self.net.graph.shape(name) == self.net.graph.shape(
                    self.net.makes[op][0]
                )
                call = self.net.calls[op]
                replaced = (
                    read.by == op
                    and call.attention is not None
                    and query_by_query(call, read.index, result())
                )
                wanted = partial(
                    _wanted,
                    leaf,
                    self.rules[read.by, read.index],
                    result,
                    row_axis(self.net.graph.shape(name)),
                    in_place=beside,
                    replaced=replaced,
                )
                self.reads[Tenant(name)].append(_StepRead(leaf, wanted))

    def _rows(self, ring: WrittenPlace, tenant: Tenant) -> Rows:
        shape = self.net.graph.shape(tenant.tensor)
        if tenant.sums:
            shape = kept_shape(self.net.calls, self.net.maker[tenant.tensor]) or shape
        return Rows(ring, shape, partial(_row_bytes, self.schedule, sums=tenant.sums))

    def problems(self) -> Iterator[str]:
        """Problems: the first read of every step that is not served."""
        for leaf, op, result, inputs in self.operands:
            yield from self._constants(leaf, op, result, inputs)
        for tenant, reads in self.reads.items():
            self.schedule.work.hold(sum(ring.rows for ring in self.holding[tenant]))
            places = [self._rows(ring, tenant) for ring in self.holding[tenant]]
            for leaf, wanted, place in reads:
                here = [rows for rows in places if place is None or rows.ring is self.rings[place]]
                missing = missing_row(here, wanted(), self.schedule.work)
                if missing is not None:
                    what = f"the sums of {tenant.tensor!r}" if tenant.sums else repr(tenant.tensor)
                    yield (
                        f"{describe(leaf)}: at step {missing[0]} row {missing[1]} of {what}, "
                        "or a part of it, is not on chip"
                    )

    def _constants(
        self, leaf: Leaf, op: str, result: Callable[[], ResultBoxes], inputs: range | None
    ) -> Iterator[str]:
        for constant in self.net.constants[op]:
            if (inputs is None or (constant.by == op and constant.index in inputs)) and not constant.gathered:
                wanted = _wanted(
                    leaf, constant_rules(self.net.calls[constant.by], constant.index), result, None
                )
                step = self.blocks[constant.name].missing(wanted)
                if step is not None:
                    yield (
                        f"{describe(leaf)}: at step {step} what it needs of {constant.name!r} is not on chip"
                    )


def _wanted(
    leaf: Leaf,
    rules: Rules,
    result: Callable[[], ResultBoxes],
    row_axis: int | None,
    *,
    in_place: bool = False,
    replaced: bool = False,
) -> Wanted:
    boxes = result()
    return Wanted(leaf.times, tuple(rule and rule(boxes) for rule in rules), row_axis, replaced, in_place)


def _same(piece: StepBox) -> Wanted:
    return Wanted(piece.leaf.times, piece.parts, piece.row_axis)

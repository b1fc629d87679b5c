"""The schedule of a group: places on chip, and steps that load, compute and store boxes, folded into loops.

A step inside loops is written once, for the first iteration of every loop; `strides` say how far it strides
with each further iteration. `unfold` walks the steps one at a time; sums over a schedule need no walk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import add, mul, sub
from typing import Literal, NamedTuple

from lfopt.ir.box import Box, Span
from lfopt.ir.cost import DramBytes, L2Bytes
from lfopt.ir.hardware import Hardware, Store

ByteClass = Literal["input", "output", "weight", "parameter", "spill", "l2"]
Purpose = Literal["map", "weight", "sum"]
Stride = tuple[int, ...]  # how far the origin of a step moves in one iteration of a loop

# The most that a plan may have: nothing writes more, and whatever reads a plan refuses more at once.
MOST_STEPS = 1 << 24  # every iteration of every loop counted
MOST_LINES = 1 << 18  # as they are written: one a step, two a loop


@dataclass(frozen=True, slots=True)
class Place:
    """Space on chip in equal slots: a ring of rows, or of weight blocks.

    What has number n lies in slot n modulo `slots`.
    """

    name: str  # the map, or what the place is for; unique in its group
    purpose: Purpose  # map: rows of one; weight: blocks of constants; sum: partial results
    # bytes from the start of the buffer, or of the weight buffer for weights, if there is one
    address: int
    slots: int  # equal parts
    slot_bytes: int  # of each

    @property
    def bytes(self) -> int:
        """Bytes of all slots together."""
        return self.slots * self.slot_bytes

    @property
    def end(self) -> int:
        """First byte after the place."""
        return self.address + self.bytes


def in_line(places: Sequence[Place], hardware: Hardware, behind: int) -> tuple[Place, ...]:
    """The places, those in the weight buffer moved by `behind` bytes: behind the buffer, none overlap."""
    apart = [hardware.store_of(place.purpose) != "buffer" for place in places]
    return tuple(
        replace(place, address=behind + place.address) if far else place
        for place, far in zip(places, apart, strict=True)
    )


def store_ends(places: Sequence[Place], hardware: Hardware) -> dict[Store, int]:
    """Where the places end in each on-chip buffer; 0 where it holds none."""
    ends = dict.fromkeys(hardware.stores, 0)
    for place in places:
        store = hardware.store_of(place.purpose)
        ends[store] = max(ends[store], place.end)
    return ends


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy of a box between DRAM, or a second level of memory, and the buffer."""

    store: bool  # False: from DRAM to the buffer
    # a map, a view of one, or a constant, as memory holds it; of kind parameter: the operator that needs them
    tensor: str
    box: Box  # in the tensor's own axes; of parameters: bytes
    kind: ByteClass  # how its bytes are counted; l2: of a map that lies in the second level
    rows: int  # pieces in memory
    row_bytes: int  # that each piece moves, padding of rows in memory included
    place: int  # index into the group's places; -1: the store for parameters, beside the buffer
    slot: int  # number of the first row, or of the weight block; row k of the box has number slot + k
    offset: int = 0  # bytes from the start of the slot: weights and bias of a block share one
    # a Gather from a constant: the rows that its indices name go straight into its result, which is `tensor`
    gather: str = ""
    # per enclosing loop, outermost first: what (every start of the box, slot) moves by
    strides: tuple[Stride, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes that cross the port of their memory.

        The one prediction of traffic: every report sums it, nothing that counts reads it.
        """
        return self.rows * self.row_bytes

    @property
    def origin(self) -> Stride:
        """What moves from iteration to iteration."""
        return (*(start for start, _ in self.box), self.slot)

    def moved(self, by: Stride) -> Transfer:
        """The transfer of the first iteration moved by some elements and slots, outside of loops."""
        box = _shifted(self.box, by)
        slot = self.slot + by[-1]
        return Transfer(
            self.store,
            self.tensor,
            box,
            self.kind,
            self.rows,
            self.row_bytes,
            self.place,
            slot,
            self.offset,
            self.gather,
        )


@dataclass(frozen=True, slots=True)
class Carry:
    """A copy of a box of a map from where it lies in the buffer to another place there.

    Where it lies follows from what is on chip, as for the operands of a Compute. No byte of DRAM moves.
    """

    tensor: str  # the map, by name
    box: Box  # in the map's own axes
    place: int  # index into the group's places: where it goes
    slot: int  # number of the first row; row k of the box has number slot + k
    # per enclosing loop, outermost first: what (every start of the box, slot) moves by
    strides: tuple[Stride, ...] = ()

    @property
    def origin(self) -> Stride:
        """What moves from iteration to iteration."""
        return (*(start for start, _ in self.box), self.slot)

    def moved(self, by: Stride) -> Carry:
        """The copy of the first iteration moved by some elements and slots, outside of loops."""
        return Carry(self.tensor, _shifted(self.box, by), self.place, self.slot + by[-1])


@dataclass(frozen=True, slots=True)
class Compute:
    """One operator on one box of each of its results.

    Where it reads its operands from follows from what is on chip.

    Elementwise operators may follow in flight (`lfopt.ops.flight`): box and place are then those of the last
    result, and no other takes space.
    """

    operator: str  # by name
    boxes: tuple[Box, ...]  # per result
    # per result: index into the group's places; -1 for a result that takes no space here
    places: tuple[int, ...]
    # of the axis that is folded: input channels of a contraction, rows of a reduction; None: all of it
    inputs: Span | None = None
    # place of the partial sums (or extremes), where what is folded comes in several steps
    accumulator: int = -1
    first: bool = True  # whether it starts the partial sums; else it continues them
    last: bool = True  # whether it finishes them and writes the results
    then: tuple[str, ...] = ()  # operators that follow in flight, by name, once sums are finished
    # per enclosing loop, outermost first: what (every start of every box, start of inputs if any) moves by
    strides: tuple[Stride, ...] = ()

    @property
    def origin(self) -> Stride:
        """What moves from iteration to iteration."""
        return (*(start for box in self.boxes for start, _ in box), *(self.inputs[:1] if self.inputs else ()))

    def moved(self, by: Stride) -> Compute:
        """The computation of the first iteration moved by some elements, outside of loops."""
        boxes: list[Box] = []
        used = 0
        for box in self.boxes:
            boxes.append(_shifted(box, by[used:]))
            used += len(box)
        inputs = (self.inputs[0] + by[used], self.inputs[1] + by[used]) if self.inputs else None
        return Compute(
            self.operator,
            tuple(boxes),
            self.places,
            inputs,
            self.accumulator,
            self.first,
            self.last,
            self.then,
        )


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that run several times; boxes and slots move on with every iteration."""

    count: int  # iterations
    body: tuple[Node, ...]  # of the first iteration


Step = Transfer | Carry | Compute
Node = Step | Loop


def _shifted(box: Box, by: Stride) -> Box:
    return tuple([(span[0] + d, span[1] + d) if d else span for span, d in zip(box, by, strict=False)])


def unfold(nodes: Sequence[Node]) -> Iterator[Step]:
    """The steps one at a time, in the order in which they run."""
    return _in_iterations(nodes, ())


def _in_iterations(nodes: Sequence[Node], iterations: tuple[int, ...]) -> Iterator[Step]:
    """The steps in these iterations of the loops around."""
    for node in nodes:
        if not isinstance(node, Loop):
            yield node.moved(distance(node, iterations)) if node.strides else node
        elif any(isinstance(inner, Loop) for inner in node.body):
            for iteration in range(node.count):
                yield from _in_iterations(node.body, (*iterations, iteration))
        else:
            yield from _innermost(node, iterations)


def _innermost(loop: Loop, iterations: tuple[int, ...]) -> Iterator[Step]:
    """The steps of a loop that has none inside, in these iterations of the loops around."""
    body = [
        (step, distance(step, (*iterations, 0)), step.strides[-1] if step.strides else ())
        for step in loop.body
        if not isinstance(step, Loop)
    ]
    for iteration in range(loop.count):
        for step, start, move in body:
            yield (
                step.moved(tuple([at + iteration * d for at, d in zip(start, move, strict=True)]))
                if move
                else step
            )


def distance(step: Step, iterations: tuple[int, ...]) -> Stride:
    """Distance of a step in these iterations from where it is in the first ones."""
    return tuple([sum(map(mul, iterations, along)) for along in zip(*step.strides, strict=True)])


def dram_bytes(nodes: Sequence[Node], *, at_port: bool = False) -> DramBytes:
    """Bytes moved, by class, without walking the loops.

    `at_port`: what is spilled counts as output when it goes, and as input when it comes back.
    """
    total: dict[str, int] = {}
    for times, node in counted_leaves(nodes):
        if isinstance(node, Transfer) and node.kind != "l2":
            kind = ("output" if node.store else "input") if at_port and node.kind == "spill" else node.kind
            total[kind] = total.get(kind, 0) + times * node.bytes
    return DramBytes(**total)


def l2_bytes(nodes: Sequence[Node]) -> L2Bytes:
    """Bytes moved between the buffer and the second level."""
    moved = [0, 0]
    for times, node in counted_leaves(nodes):
        if isinstance(node, Transfer) and node.kind == "l2":
            moved[node.store] += times * node.bytes
    return L2Bytes(*moved)


def step_count(nodes: Sequence[Node]) -> int:
    """Steps that run, all iterations counted."""
    return sum(node.count * step_count(node.body) if isinstance(node, Loop) else 1 for node in nodes)


def line_count(nodes: Sequence[Node]) -> int:
    """Lines of the listing of the steps (`lfopt.ir.listing`)."""
    return sum(2 + line_count(node.body) if isinstance(node, Loop) else 1 for node in nodes)


def unfused_steps(step: Compute) -> Iterator[Compute]:
    """The operators of a step, those that follow in flight each as a step of its own.

    What all but the last make has no place.
    """
    if not step.then:
        yield step
        return
    yield replace(step, places=(-1,) * len(step.places), then=())
    for name in step.then if step.last else ():
        strides = tuple(move[: len(step.boxes[0])] for move in step.strides)
        yield Compute(name, step.boxes, step.places if name == step.then[-1] else (-1,), strides=strides)


def computations(nodes: Sequence[Node]) -> Iterator[Compute]:
    """The steps that compute, those in loops once."""
    return (step for step in leaves(nodes) if isinstance(step, Compute))


# -- folding -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Again:
    """What repeats behind blocks of steps: the last `period` blocks come again, `times` times.

    With every iteration they move as they did from the `period` blocks before them.
    """

    period: int  # blocks
    times: int  # iterations that follow


Block = Sequence[Node]


def fold(blocks: Iterable[Block | Again], longest: int = 1) -> tuple[Node, ...]:
    """Blocks of steps in order, with runs of repeating blocks folded into loops.

    Up to `longest` blocks may make one iteration.

    Blocks repeat if they differ only in where their steps are, and move by the same amount each time. Blocks
    that only come again are not looked at one at a time: the result is the same as if they were all there.
    """
    series = _Series(blocks)
    names = series.names
    folded: list[Node] = []
    at = 0
    while at < len(names):
        best_period = 0
        best_count = 1
        best_shift = list[Stride]()
        left = len(names) - at
        for period in range(1, min(longest, left // 2) + 1):
            if best_period * (best_count - 1) >= left - period:
                # a loop of this period, or a longer one, spares no more blocks even if it runs to the end
                break
            if names[at : at + period] != names[at + period : at + 2 * period]:
                continue
            moved = series.shift(at, period)
            count = max(2, (series.steady(at, period) - at) // period)
            while (after := at + (count + 1) * period) <= len(names):
                here = after - period
                if (
                    names[here:after] != names[at : at + period]
                    or series.shift(here - period, period) != moved
                ):
                    break
                count = max(count + 1, (series.steady(here - period, period) - at) // period)
            if period * (count - 1) > best_period * (best_count - 1):
                best_period = period
                best_count = count
                best_shift = moved
        if not best_period:
            folded += series.block(at)
            at += 1
            continue
        iteration = [node for k in range(at, at + best_period) for node in series.block(k)]
        far = chain.from_iterable(best_shift)
        strides = iter([tuple(islice(far, len(leaf.origin))) for leaf in leaves(iteration)])
        folded.append(Loop(best_count, tuple(_with_stride(node, strides) for node in iteration)))
        at += best_period * best_count
    return tuple(folded)


class _Run(NamedTuple):
    """Blocks each of which is like the one a period before it, moved by the same strides every time."""

    first: int
    repeated: int  # from here on they are not given
    stop: int
    period: int
    strides: list[Stride]  # from one period to the next, per block from `repeated` on


class _Series:
    """Blocks by number, those that come again worked out when they are asked for.

    Blocks of one name are alike in everything but where they are.
    """

    def __init__(self, blocks: Iterable[Block | Again]) -> None:
        keys = _Keys()
        self.names: list[int] = []
        self._runs: list[_Run] = []
        self._given: dict[int, tuple[Block, Stride]] = {}
        for block in blocks:
            end = len(self.names)
            if isinstance(block, Again):
                period = block.period
                first = end - 2 * block.period
                assert self.names[first : end - period] == self.names[end - period :], (
                    "what comes again has come twice"
                )
                self._runs.append(
                    _Run(first, end, end + block.times * period, period, self.shift(first, period))
                )
                self.names += self.names[end - period :] * block.times
            else:
                self._given[end] = block, tuple([at for leaf in leaves(block) for at in leaf.origin])
                self.names.append(keys.of_block(block))

    def block(self, k: int) -> Block:
        """The steps of a block."""
        if k in self._given:
            return self._given[k][0]
        given, by = self._behind(k)
        far = iter(by)
        return [_elsewhere(node, far) for node in self.block(given)]

    def shift(self, first: int, period: int) -> list[Stride]:
        """How far each of `period` blocks is from the one a period later."""
        return [
            tuple(map(sub, self._origin(k + period), self._origin(k))) for k in range(first, first + period)
        ]

    def steady(self, first: int, period: int) -> int:
        """Up to which block the last run that begins by `first` repeats every `period` blocks; else 0."""
        k = bisect_right(self._runs, first, key=lambda run: run.first) - 1
        if k >= 0 and period % self._runs[k].period == 0:
            return self._runs[k].stop
        return 0

    def _origin(self, k: int) -> Stride:
        if k in self._given:
            return self._given[k][1]
        given, by = self._behind(k)
        return tuple(map(add, self._origin(given), by))

    def _behind(self, k: int) -> tuple[int, Stride]:
        """The block before the run that this one is like, and how far it is from it."""
        run = self._runs[bisect_right(self._runs, k, key=lambda run: run.repeated) - 1]
        iteration, at = divmod(k - run.repeated, run.period)
        return run.repeated - run.period + at, tuple([(iteration + 1) * d for d in run.strides[at]])


def _elsewhere(node: Node, far: Iterator[int]) -> Node:
    if isinstance(node, Loop):
        return replace(node, body=tuple(_elsewhere(inner, far) for inner in node.body))
    return replace(node.moved(tuple(islice(far, len(node.origin)))), strides=node.strides)


class _Keys:
    """Small numbers for nodes that are alike in everything but where they are."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def of_block(self, nodes: Sequence[Node]) -> int:
        return self._known.setdefault(("block", *[self.of(node) for node in nodes]), len(self._known))

    def of(self, node: Node) -> int:
        if isinstance(node, Loop):
            key: object = (node.count, self.of_block(node.body))
        elif isinstance(node, Transfer):
            extents = tuple(stop - start for start, stop in node.box)
            key = (
                node.store,
                node.tensor,
                extents,
                node.kind,
                node.rows,
                node.row_bytes,
                node.place,
                node.offset,
                node.gather,
                node.strides,
            )
        elif isinstance(node, Carry):
            extents = tuple(stop - start for start, stop in node.box)
            key = ("carry", node.tensor, extents, node.place, node.strides)
        else:
            extents = tuple(tuple(stop - start for start, stop in box) for box in node.boxes)
            inputs = node.inputs[1] - node.inputs[0] if node.inputs else None
            key = (
                node.operator,
                extents,
                node.places,
                inputs,
                node.accumulator,
                node.first,
                node.last,
                node.then,
                node.strides,
            )
        return self._known.setdefault(key, len(self._known))


def parameter_runs(nodes: Sequence[Node]) -> Iterator[list[Transfer]]:
    """Loads of parameters that follow one another without a step between them, as lists.

    Those of one run are in their store together, and replace those before.
    """
    run: list[Transfer] = []
    for node in nodes:
        if isinstance(node, Transfer) and node.kind == "parameter":
            run.append(node)
        elif run:
            yield run
            run = []
    if run:
        yield run


def leaves(nodes: Sequence[Node]) -> Iterator[Step]:
    """The steps as they are written: those in loops once."""
    return (step for _, step in counted_leaves(nodes))


def counted_leaves(nodes: Sequence[Node], times: int = 1) -> Iterator[tuple[int, Step]]:
    """(number of times that it runs, step) of the steps as they are written."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from counted_leaves(node.body, times * node.count)
        else:
            yield times, node


def _with_stride(node: Node, strides: Iterator[Stride]) -> Node:
    if isinstance(node, Loop):
        return replace(node, body=tuple(_with_stride(inner, strides) for inner in node.body))
    return replace(node, strides=(next(strides), *node.strides))

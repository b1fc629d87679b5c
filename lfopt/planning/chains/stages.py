"""One stage of a chained group: a group as another mode runs it, with maps on chip before or after.

The mode says places and steps; here the maps that are whole on chip before the stage begins or after it ends
get places of their own with a slot for every row, and are neither loaded nor stored. What else the stage
takes lies where allocation puts it: each place only as long as steps need it, or all of them as the mode has
them, whichever takes less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from lfopt.ir import (
    Box,
    Carry,
    Compute,
    DramBytes,
    Loop,
    Node,
    Place,
    Span,
    Step,
    Transfer,
    box_elements,
    dram_bytes,
    leaves,
    row_axis,
    unfold,
    whole,
)
from lfopt.ops import Dataflow, Tiling
from lfopt.ops.attention import form_of
from lfopt.ops.footprint import folded_axis
from lfopt.ops.rows import same_row
from lfopt.planning.steps.addresses import Life, allocate
from lfopt.planning.steps.layout import BufferLayout, row_span


class Lot(NamedTuple):
    """Places that lie together in one piece of the buffer while some of a stage's nodes run."""

    life: Life  # bytes; first and last node
    places: tuple[tuple[int, int], ...]  # (index, bytes from the start of the lot)


class Around(NamedTuple):
    """Maps that are whole on chip before a stage, and after it."""

    enter: frozenset[int]
    leave: frozenset[int]


class ChainStage(NamedTuple):
    """Places and steps of a stage, and what lies where, but for addresses."""

    mask: int
    places: tuple[Place, ...]  # their addresses mean nothing
    nodes: tuple[Node, ...]
    lots: tuple[Lot, ...]  # of all places but those of held maps
    held: dict[int, int]  # per map that is whole on chip: its place
    used: dict[int, Span]  # per such map: first and last node that reads or makes it
    # at most one: a map made here that may overwrite another of its shape row by row, and that other
    over: dict[int, int]
    dram: DramBytes  # moved, but for parameters
    macs: Fraction  # multiply-accumulates


class StageBuilder:
    """A stage made from a mode's schedule."""

    def __init__(
        self,
        layout: BufferLayout,
        mask: int,
        scheduled: tuple[Sequence[Place], Sequence[Node]],
        around: Around,
    ) -> None:
        self.layout = layout
        self.flow = layout.flow
        self.mask = mask
        self.old, nodes = scheduled
        touched = self.flow.touched(mask)
        staying = (around.enter | around.leave) & touched
        self.names = {self.flow.maps[m].name: m for m in sorted(staying)}
        self.enter = around.enter & touched
        self.leave = around.leave & touched
        # with a store for parameters a flight is several passes, each of which writes its result
        self.in_place = not layout.hardware.parameter_store_bytes
        self.places: list[Place] = []
        self.held: dict[int, int] = {}
        for name, m in self.names.items():
            tensor = self.flow.maps[m]
            self.held[m] = len(self.places)
            self.places.append(Place(name, "map", 0, tensor.rows, layout.hardware.row_bytes(tensor)))
        self.number: dict[int, int] = {}  # per place of the mode: its index here
        # maps loaded here as a whole, to stay
        coming = [m for m in self.held if m not in self.enter and not self.flow.makes(mask, m)]
        loads = (
            layout.load(self.flow.maps[m].name, whole(self.flow.maps[m].shape), self.held[m]) for m in coming
        )
        self.nodes: tuple[Node, ...] = (*loads, *self._without(nodes))

    def _without(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """The nodes in the places that they have now, but for transfers of what is on chip anyway."""
        for node in nodes:
            if isinstance(node, Loop):
                if body := tuple(self._without(node.body)):
                    yield replace(node, body=body)
            elif isinstance(node, Transfer):
                if self.flow.behind.get(node.tensor, node.tensor) not in self.names:
                    yield replace(node, place=self._place(node.place))
                elif node.gather:
                    yield replace(node, place=self.held[self.names[node.tensor]])
            elif isinstance(node, Carry):
                if node.tensor not in self.names:  # else all of it lies in one place
                    yield replace(node, place=self._place(node.place))
            else:
                results = self._results(node)
                places = [
                    self.held[self.names[n]] if n in self.names else self._place(k)
                    for n, k in zip(results, node.places, strict=True)
                ]
                yield replace(node, places=tuple(places), accumulator=self._place(node.accumulator))

    def _results(self, node: Compute) -> list[str]:
        return [self.flow.maps[m].name for m in self.flow.results[self.flow.position[node.operator]]]

    def _place(self, k: int) -> int:
        """Index of the stage's place for a place of the mode."""
        if k < 0:
            return k
        if k not in self.number:
            self.number[k] = len(self.places)
            self.places.append(self.old[k])
        return self.number[k]

    # -- lives -----------------------------------------------------------------------------------------------

    def stage(self) -> ChainStage:
        """The stage."""
        spans = self._spans()
        every = sorted(set(range(len(self.places))) - set(self.held.values()))
        store_of = self.layout.hardware.store_of
        lots = list[Lot]()
        for store in self.layout.hardware.stores:
            here = [k for k in every if store_of(self.places[k].purpose) == store]
            apart = [Lot(Life(self.places[k].bytes, *spans[k]), ((k, 0),)) for k in here]
            together = self._together(here, len(self.nodes))
            lots += (
                apart
                if not together or allocate([lot.life for lot in apart])[1] <= together[0].life.bytes
                else together
            )
        used = {m: spans[k] for m, k in self.held.items() if k in spans}
        return ChainStage(
            self.mask,
            tuple(self.places),
            self.nodes,
            tuple(lots),
            self.held,
            used,
            dict(islice(self._over(), 1)),
            dram_bytes(self.nodes),
            _macs(self.flow, self.nodes),
        )

    def _together(self, every: Sequence[int], count: int) -> list[Lot]:
        """All places as the mode has them, with no gaps where held maps were."""
        below = dict[int, int]()
        at = list[tuple[int, int]]()
        end = size = 0
        for k in sorted(every, key=lambda k: (self.places[k].address, self.places[k].end)):
            place = self.places[k]
            if place.address > end:
                end = place.address
            below[place.address] = size - (end - place.address)
            at.append((k, below[place.address]))
            if place.end > end:
                size = size + place.end - end
                end = place.end
        if at:
            return [Lot(Life(size, 0, count - 1), tuple(at))]
        return []

    def _spans(self) -> dict[int, Span]:
        """Per place: the first and the last node that takes something from it or puts something there."""
        holding: dict[str, set[int]] = {}
        for node in leaves(self.nodes):
            if not isinstance(node, Compute):
                holding.setdefault(node.tensor, set()).add(node.place)
            else:
                for name, k in zip(self._results(node), node.places, strict=True):
                    holding.setdefault(name, set()).add(k)
        for name, m in self.names.items():
            holding.setdefault(name, set()).add(self.held[m])
        lifetimes: dict[int, Span] = {}
        for number, top in enumerate(self.nodes):
            for node in leaves((top,)):
                touched = self._written(node) | {*self._places_read(node, holding)}
                for k in touched - {-1}:
                    lifetimes[k] = (lifetimes.get(k, (number, number))[0], number)
        return lifetimes

    @staticmethod
    def _written(step: Step) -> set[int]:
        """Places that a step writes to, or stores from."""
        if isinstance(step, Compute):
            return {*step.places, step.accumulator}
        return {step.place}

    def _places_read(self, step: Step, holding: dict[str, set[int]]) -> Iterator[int]:
        """Places of all that a step may read."""
        if isinstance(step, Carry):
            yield from holding.get(step.tensor, ())
        elif reader := step.operator if isinstance(step, Compute) else step.gather:
            yield from self._read(reader, holding)

    def _read(self, operator: str, holding: dict[str, set[int]]) -> Iterator[int]:
        """Places of all that an operator may read."""
        flow = self.flow
        op = self.flow.position[operator]
        names = (
            {flow.maps[o.map].name for o in flow.operands[op]}
            | {w.name for w in flow.weights[op]}
            | {*flow.calls[op].inputs}
        )
        for name in names:
            yield from holding.get(name, ())

    # -- one map over another --------------------------------------------------------------------------------

    def _over(self) -> Iterator[tuple[int, int]]:
        """(map made here, map that ends here) where the first may overwrite the second row by row."""
        flow = self.flow
        sizes = self.layout.hardware
        for x in sorted(self.held.keys() - self.leave):
            for y in sorted(self.leave):
                before = flow.maps[x]
                after = flow.maps[y]
                alike = (before.shape, sizes.row_bytes(before)) == (after.shape, sizes.row_bytes(after))
                if alike and flow.makes(self.mask, y) and self._may_lie_over(x, y):
                    yield y, x

    def _may_lie_over(self, x: int, y: int) -> bool:
        """Whether map `y` may overwrite map `x` row by row.

        No row of `x` is read once that row of `y` is written, but by the step that writes it, element by
        element.
        """
        flow = self.flow
        maker = self.flow.producer[y]
        written = set[int]()
        for node in self._from_first(self.nodes, y):
            if isinstance(node, Transfer):
                if node.gather and any(o.map == x for o in flow.operands[flow.position[node.gather]]):
                    return False
                continue
            if isinstance(node, Carry):
                if node.tensor == flow.maps[x].name:
                    return False
                continue
            op = flow.position[node.operator]
            if op == maker and node.last:
                new = range(*row_span(node.boxes[flow.results[op].index(y)]))
            else:
                new = range(0)
            if new and not _is_full(node.boxes[flow.results[op].index(y)], flow.maps[y].shape):
                return False
            for operand in (o for o in flow.operands[op] if o.map == x):
                part, _ = flow.calls[op].part_of(operand.input)
                beside = (
                    self.in_place
                    and operand.reads is same_row(flow.maps[x].rows)
                    and part is not flow.calls[op]
                )
                if beside and not node.last:
                    continue  # what follows in flight reads when sums are finished
                rows = set(new) if beside else self._rows_read(op, node, x)
                if rows & written or (not beside and rows & set(new)):
                    return False
            written.update(new)
        return True

    def _rows_read(self, op: int, node: Compute, x: int) -> set[int]:
        """Rows of a map that a step may read."""
        flow = self.flow
        rows = set[int]()
        if node.boxes[1:]:  # each result reads rows of its own
            return set(range(flow.maps[x].rows))
        first, stop = row_span(node.boxes[0])
        for operand in flow.operands[op]:
            if operand.map == x:
                if node.inputs is not None and flow.running >> op & 1:
                    rows.update(range(*node.inputs))
                    continue
                for row in range(first, stop):
                    if row < operand.reads.rows_out:
                        rows.update(range(operand.reads.first[row], operand.reads.last[row] + 1))
        return rows

    def _from_first(self, nodes: Sequence[Node], y: int) -> Iterator[Step]:
        """The steps one at a time, but for nodes before the first that writes the map."""
        begun = False
        for top in nodes:
            begun = begun or any(
                isinstance(n, Compute) and n.last and y in self.flow.results[self.flow.position[n.operator]]
                for n in leaves((top,))
            )
            if begun:
                yield from unfold((top,))


def _is_full(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether rows of a box are whole rows of a map."""
    return all(
        axis == row_axis(shape) or span == (0, extent)
        for axis, (span, extent) in enumerate(zip(box, shape, strict=True))
    )


def _macs(flow: Dataflow, nodes: Sequence[Node]) -> Fraction:
    """Multiply-accumulates of the steps, every iteration of every loop."""
    macs = Fraction(0)
    for node in nodes:
        if isinstance(node, Loop):
            macs += node.count * _macs(flow, node.body)
        elif isinstance(node, Compute) and all(stop > start for start, stop in node.boxes[0]):
            op = flow.position[node.operator]
            if not flow.macs[op]:  # statistics of a norm come in parts as well, and are no products
                continue
            call = flow.calls[op]
            share = Fraction(box_elements(node.boxes[0]), box_elements(whole(flow.calls[op].result)))
            if node.inputs is not None and call.attention is not None:
                share *= Fraction(node.inputs[1] - node.inputs[0], form_of(call).keys)
            elif node.inputs is not None:
                index = int(flow.specs[op].tiling is Tiling.CONTRACT)
                axis = folded_axis(call, index)
                assert axis is not None, "what takes its input in parts folds an axis of it"
                share *= Fraction(node.inputs[1] - node.inputs[0], call.shape(index)[axis])
            macs += flow.macs[op] * share
    return macs

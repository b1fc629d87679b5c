"""A leaf that passes rows through rings, within the current blocks of the loops around it."""

from __future__ import annotations

from dataclasses import replace

from lfopt.ir import Box, Compute, cut, whole
from lfopt.planning.line_buffers.streamed_group import DramSource, Operand, StreamedGroup
from lfopt.planning.line_buffers.walk import Walk
from lfopt.planning.nest.current import CurrentBlocks
from lfopt.planning.nest.places import Placement, single
from lfopt.planning.nest.tree import LateInput, PartialSums, RowLeaf
from lfopt.planning.steps.layout import row_span, with_rows


class RowEngine(Walk):
    """The walk of one leaf over the rows of its blocks."""

    def __init__(self, placement: Placement, current: CurrentBlocks, leaf: RowLeaf) -> None:
        price = placement.price
        flow = placement.flow
        self.current = current
        self.placement = placement
        self.at = placement.at
        self.leaf = leaf
        running = [i for i in leaf.operators if not current.is_idle(i) and not current.is_waiting(i)]
        self.late = {self._late_name(late): late for late in price.regions.late_inputs(leaf)}
        mask = sum(1 << i for i in running)
        rings = {m: single(rows) for m, rows in price.rings.items()}
        group = StreamedGroup(placement.layout, mask, rings)
        group.outside |= price.leaving & {*group.computed}
        operands = [self._as_loaded(operand) for operand in group.operands(as_seen=False)]
        boxes: dict[str, Box] = {}
        there: set[str] = set()
        for source in (operand.source for operand in operands):
            box = self._box_of(source)
            if box is None:
                there.add(source.name)
                box = whole(source.tensor.shape)
            boxes[source.name] = box
        places: dict[str, int] = {}
        for m in group.computed:
            place = placement.place_of(m, kept=current.is_kept(m))
            if place is not None:
                places[flow.maps[m].name] = place
        for source in (operand.source for operand in operands):
            if source.name in self.late:
                place = self.at.get(self.late[source.name])
            else:
                place = placement.place_of(source.map, kept=current.is_kept(source.map))
            if place is not None:
                places[source.name] = place
        sums = (PartialSums(i) for i in running)
        places |= {group.layout.sums_name(key.operator): self.at[key] for key in sums if key in self.at}
        rows = {i: current.rows_made(i) for i in running}
        parts = {i: part for i in running if (part := current.folded(i)) is not None}
        ends_sums = any(part.last for i, part in parts.items() if i not in leaf.measures)
        band_rows = leaf.summed_rows if ends_sums else leaf.band_rows
        lines = price.lines
        super().__init__(
            group, operands, boxes, None, places, frozenset(there), band_rows, rows, lines,
            last_lead=leaf.last_lead,
        )  # fmt: skip
        self.parts = parts
        self.computed = {m: current.computed(i, m) for i in running for m in flow.results[i]}
        self.stored = {m: self._stored(m) for m in group.outside}

    def _late_name(self, late: LateInput) -> str:
        """The name by which the walk knows what is loaded when sums are finished."""
        name = self.placement.flow.maps[late.map].name
        return self.placement.layout.place_name(f"{name} late")

    def _as_loaded(self, operand: Operand) -> Operand:
        """The operand of an operator, the view of it that is loaded in its place, or what is late."""
        m = operand.source.map
        price = self.placement.price
        (own,) = (o for o in self.placement.flow.operands[operand.op] if o.input == operand.input)
        if price.regions.is_late(operand.op, own):
            late = LateInput(m, self.leaf)
            return replace(operand, source=replace(operand.source, name=self._late_name(late)))
        seen = price.seen(m)
        if seen is None:
            return operand
        source = DramSource(seen.tensor.name, m, seen.tensor, rows_kept=False, ring=single(price.rings[m]))
        return Operand(operand.op, operand.input, source, seen.reads)

    def _box_of(self, source: DramSource) -> Box | None:
        """What is loaded of a source; None if it is on chip already, or if nothing is."""
        if source.name in self.late:
            return self.current.loaded_late(self.late[source.name])
        if self.placement.homes.get(source.map) is not self.leaf:
            return None  # the node around that holds it has loaded it
        if not source.rows_kept:
            return whole(source.tensor.shape)
        return self.current.loaded(source.map)

    def _stored(self, m: int) -> Box | None:
        """What is stored of a result as its rows are made; None: nothing, or by a node around the leaf."""
        if self.placement.homes.get(m) is not self.leaf or m not in self.placement.price.leaving:
            return None
        return self.current.stored(self.flow.producer[m], m)

    # -- what a walk asks ------------------------------------------------------------------------------------

    def tensor_of(self, name: str) -> str:
        """The tensor that a source is loaded from."""
        if name in self.late:
            return self.flow.maps[self.late[name].map].name
        return name

    def extent(self, m: int) -> Box:
        """Box that is made of a map."""
        return self.computed[m] or whole(self.flow.maps[m].shape)

    def stored_of(self, m: int, box: Box) -> Box | None:
        """Rows and columns that no earlier block has stored."""
        stored = self.stored[m]
        if stored is None:
            return None
        first, stop = row_span(box)
        low, high = row_span(stored)
        if len(box) >= 4:
            box = cut(box, -1, stored[-1])
        if (low, high) == row_span(whole(self.flow.maps[m].shape)) or low <= first:
            return box
        if stop <= low:
            return None
        return with_rows(box, (low, stop))

    def computing(self, op: int, compute: Compute) -> Compute:
        """A step as it adds to sums, if the operator does."""
        in_two = self.current.statistics(op, compute, self.at.get(PartialSums(op), -1))
        if in_two is not None:
            return in_two
        part = self.parts.get(op)
        if part is None:
            return compute
        sums = self.places[self.group.layout.sums_name(op)]
        return replace(compute, inputs=part.inputs, accumulator=sums, first=part.first, last=part.last)

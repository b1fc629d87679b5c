"""What the steps of a group do, against what the group claims: bytes, what is moved and computed how often, places, and what is on chip when it is read.

The steps are walked loop by loop, not turn by turn: a step in loops is an arithmetic progression (`progressions`), and everything is checked for all
of its runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from lfopt.ir import Compute, DramBytes, Hardware, Loop, Node, Place, PlannedGroup, Tensor, Transfer, round_up, row_axis
from simulator.recount.needs import Result, Rule, constant_rules, input_channels, operand_rules
from simulator.recount.network import Network
from simulator.recount.onchip import Ring, Wanted, Write, close, missing_block, missing_row
from simulator.recount.progressions import Boxes, Ints, Leaf, leaves, times_covered

ONCE_EACH = ("lbdf", "resident", "brr")  # modes that load every input just once


class Tenant(NamedTuple):
    """What lies in a place for maps or sums: a map, or the partial sums of an operator."""

    name: str
    sums: bool


@dataclass(frozen=True, slots=True)
class Walked:
    """What was found in the steps of a group."""

    problems: tuple[str, ...]
    steps: int


def walk(net: Network, hardware: Hardware, group: PlannedGroup, members: Sequence[str]) -> Walked:
    """Recount the steps of a group that has some."""
    walked = _Walk(net, hardware, group, members)
    return Walked(tuple(walked.problems()), walked.steps)


class _Walk:
    def __init__(self, net: Network, hardware: Hardware, group: PlannedGroup, members: Sequence[str]) -> None:
        self.net, self.hardware, self.group, self.members = net, hardware, group, members
        self.made = {name for op in members for name in net.makes[op]}
        self.external = [(op, read) for op in members for read in net.reads[op] if read.map not in self.made]
        self.gathering = {op for op in members if any(c.gathered for c in net.constants[op])}
        self.constants = {c.name for op in members for c in net.constants[op] if not c.gathered}
        self.leaves, self.steps = leaves(group.steps)
        self.rings = [Ring(place, self.steps) for place in group.places]

    def problems(self) -> Iterator[str]:
        """Everything that is wrong; where steps make no sense, that alone."""
        senseless = [*_bad_loops(self.group.steps)] or [text for leaf in self.leaves for text in self._senseless(leaf)]
        if senseless:
            yield from senseless
            return
        yield from self._bytes()
        yield from self._loaded()
        yield from self._stored()
        yield from self._computed()
        yield from self._band_rows()
        unfit = [*self._places()]
        yield from unfit
        if not unfit:
            yield from self._on_chip()

    # -- sense -------------------------------------------------------------------------------------------------------------------------------

    def _senseless(self, leaf: Leaf) -> Iterator[str]:
        """Why a step cannot be one of this group."""
        found = self._bad_transfer(leaf.step) if isinstance(leaf.step, Transfer) else self._bad_compute(leaf.step)
        if not found:
            column = 0
            for name, box in _boxes(self.net, leaf.step):
                for (start, stop), extent in zip(box, self.net.graph.shape(name), strict=True):
                    low, high = leaf.ends(column)
                    if low < 0 or stop < start or high + stop - start > extent:
                        found = f"{name!r} {list(box)}, in all turns, is not within its shape {list(self.net.graph.shape(name))}"
                    column += 1
            if isinstance(leaf.step, Compute) and leaf.step.inputs and not found:
                (low, high), depth = leaf.ends(column), input_channels(self.net.calls[leaf.step.operator])
                if low < 0 or high + leaf.step.inputs[1] - leaf.step.inputs[0] > depth or leaf.step.inputs[0] >= leaf.step.inputs[1]:
                    found = f"input channels {leaf.step.inputs}, in all turns, are not among {depth}"
        if found:
            yield f"{_describe(leaf)}: {found}"

    def _bad_transfer(self, step: Transfer) -> str:
        net = self.net
        if not 0 <= step.place < len(self.rings):
            return f"there is no place {step.place}"
        if step.slot < 0 or step.offset < 0:
            return "slot and offset count from 0"
        if step.gather:
            if step.store or step.gather not in self.gathering or step.tensor != net.makes[step.gather][0]:
                return f"{step.gather!r} gathers nothing into that"
        elif step.store:
            if step.tensor not in self.made or not net.needed_outside(step.tensor, self.members):
                return "nothing outside the group needs it"
        elif step.tensor not in self.constants and not any(step.tensor in (read.seen, read.map) for _, read in self.external):
            return "the group does not read it from DRAM"
        return "" if len(step.box) == len(net.graph.shape(step.tensor)) else f"{len(step.box)} axes of {len(net.graph.shape(step.tensor))}"

    def _bad_compute(self, step: Compute) -> str:
        if step.operator not in self.members or step.operator in self.gathering:
            return "it is not computed in the group"
        shapes = [self.net.graph.shape(name) for name in self.net.makes[step.operator]]
        if [len(box) for box in step.boxes] != [len(shape) for shape in shapes] or len(step.places) != len(shapes):
            return f"accepted: a box and a place for each of {len(shapes)} results, with their axes"
        if not all(-1 <= place < len(self.rings) for place in (*step.places, step.sums)):
            return f"places are numbered up to {len(self.rings) - 1}"
        if not (step.first and step.last) and (step.sums < 0 or len(shapes) > 1):
            return "partial sums without a place"
        return "partial sums of what is no contraction" if step.inputs and not input_channels(self.net.calls[step.operator]) else ""

    # -- DRAM --------------------------------------------------------------------------------------------------------------------------------

    def _transfers(self, *, store: bool) -> dict[str, list[Leaf]]:
        """Loads or stores by tensor; gathers apart."""
        found: dict[str, list[Leaf]] = defaultdict(list)
        for leaf in self.leaves:
            if isinstance(leaf.step, Transfer) and leaf.step.store == store and not leaf.step.gather:
                found[leaf.step.tensor].append(leaf)
        return found

    def _bytes(self) -> Iterator[str]:
        """Bytes of the boxes, against those that the steps and the group claim."""
        total: Counter[str] = Counter()
        for leaf in self.leaves:
            step = leaf.step
            if not isinstance(step, Transfer):
                continue
            rows, row_bytes, kind = self._moves(step)
            if (step.rows, step.row_bytes, step.kind) != (rows, row_bytes, kind):
                yield f"{_describe(leaf)}: the plan says {step.kind} {step.rows} x {step.row_bytes} B, counted {kind} {rows} x {row_bytes} B"
            total[kind] += leaf.runs * rows * row_bytes
        for entry in fields(DramBytes):
            if (claimed := getattr(self.group.dram, entry.name)) != total[entry.name]:
                yield f"{entry.name} bytes: the plan says {claimed}, its steps move {total[entry.name]}"

    def _moves(self, step: Transfer) -> tuple[int, int, str]:
        """(pieces, bytes of each, class) of a transfer, from its box alone."""
        extents = [stop - start for start, stop in step.box]
        elements = int(np.prod(extents, dtype=np.int64))
        if step.gather or step.tensor in self.constants:
            return 1, self.hardware.constant_bytes(elements, bias=not step.gather and step.tensor in self.net.biases), "weight"
        axis = row_axis(tuple(extents))
        rows = 1 if axis is None else extents[axis]
        return rows, round_up(elements // max(rows, 1) * self.hardware.element_bytes, self.hardware.dram_row_align), "output" if step.store else "input"

    def _loaded(self) -> Iterator[str]:
        """Everything that the group reads is loaded, all of it, and in most modes just once (weights: as often as claimed)."""
        loads = self._transfers(store=False)
        wanted = dict.fromkeys(read.seen if read.seen in loads else read.map for _, read in self.external)
        for name in loads:
            if name not in wanted and name not in self.constants:
                yield f"{name!r} is loaded, but who reads it has it under another name"
        head, mode, passes = self.members[0], self.group.mode, self.group.weight_passes
        exact = dict.fromkeys(wanted, 1) | dict.fromkeys(self.constants, passes) if mode in ONCE_EACH else dict[str, int]()
        if mode == "tiled" and self.net.contracts(head):
            others = {read.seen for _, read in self.external if read.index != 1} | {c.name for op in self.members[1:] for c in self.net.constants[op]}
            second = self.net.operators[head].inputs[1]
            exact = {name: passes for name in (second, self.net.behind.get(second, second)) if name in loads and name not in others}
        elif mode != "brr" and passes != 1:
            yield f"weight passes: the plan says {passes}, but there is one pass in mode {mode}"
        if mode == "brr" and not self.constants and passes != 1:
            yield f"weight passes: the plan says {passes}, but there are no weights"
        for name in (*wanted, *sorted(self.constants)):
            yield from self._covered(name, loads.get(name, []), "loaded", exact.get(name))

    def _stored(self) -> Iterator[str]:
        stores = self._transfers(store=True)
        for name in sorted(self.made):
            if self.net.needed_outside(name, self.members):
                yield from self._covered(name, stores.get(name, []), "stored", 1)

    def _covered(self, name: str, found: Sequence[Leaf], what: str, times: int | None) -> Iterator[str]:
        grid = times_covered(self.net.graph.shape(name), [_moved_boxes(leaf) for leaf in found])
        if not grid.size:
            return
        least, most = int(grid.min()), int(grid.max())
        if times is None and least < 1:
            yield f"{name!r} is not {what} whole"
        elif times is not None and (least, most) != (times, times):
            yield f"{name!r} is {what} " + (f"{least} times" if least == most else f"{least} to {most} times") + f", must be {times}"

    # -- computation -------------------------------------------------------------------------------------------------------------------------

    def _computed(self) -> Iterator[str]:
        """Rows that are made are made whole (and once, but in bands); every part of a sum is added as often as the sum is finished."""
        finished: dict[str, list[Boxes]] = defaultdict(list)
        for leaf in self.leaves:
            if isinstance(leaf.step, Transfer):
                if leaf.step.gather:
                    finished[leaf.step.tensor].append(_moved_boxes(leaf))
            elif leaf.step.last:
                for (name, _), boxes in zip(_boxes(self.net, leaf.step), _result_boxes(leaf), strict=True):
                    finished[name].append(boxes)
        for name in sorted(self.made):
            grid = times_covered(self.net.graph.shape(name), finished[name])
            axis = row_axis(self.net.graph.shape(name))
            others = tuple(k for k in range(grid.ndim) if k != axis)
            if grid.size and ((grid > 0).any(axis=others) != (grid > 0).all(axis=others)).any():
                yield f"{name!r}: of some rows only a part is computed"
            if grid.size and self.group.mode != "brr" and grid.max() > 1:
                yield f"{name!r}: some of it is computed {grid.max()} times"
        for op in self.members:
            yield from self._sums(op)

    def _sums(self, op: str) -> Iterator[str]:
        found = [leaf for leaf in self.leaves if isinstance(leaf.step, Compute) and leaf.step.operator == op]
        if all(leaf.step.first and leaf.step.last and leaf.step.inputs is None for leaf in found if isinstance(leaf.step, Compute)):
            return
        depth, (name,) = input_channels(self.net.calls[op]), self.net.makes[op]
        shape, balance, begun = self.net.graph.shape(name), list[Boxes](), list[Boxes]()
        for leaf in found:
            step = leaf.step
            assert isinstance(step, Compute)
            (boxes,) = _result_boxes(leaf)
            parts = leaf.starts(range(len(step.origin)))[0] if step.inputs else np.pad(boxes.starts, ((0, 0), (0, 1)))
            repeats = leaf.runs // len(parts)
            balance.append(Boxes(parts, (*boxes.extents, step.inputs[1] - step.inputs[0] if step.inputs else depth), repeats))
            if step.last:
                balance.append(Boxes(np.pad(boxes.starts, ((0, 0), (0, 1))), (*boxes.extents, depth), -boxes.weight))
            if step.first != step.last:
                begun.append(boxes._replace(weight=boxes.weight if step.first else -boxes.weight))
        if times_covered((*shape, depth), balance).any():
            yield f"{op!r}: some input channels are not added to its sums once"
        if times_covered(shape, begun).any():
            yield f"{op!r}: sums are begun and finished unequally often"

    def _band_rows(self) -> Iterator[str]:
        """Rows made at a time: of the head of a tiled group; in bands, of the tallest map that is stored."""
        mode, net = self.group.mode, self.net
        counted = 1 if mode == "lbdf" else max(net.height(op) for op in self.members)
        if mode == "tiled":
            counted = max((_height(box) for leaf in self.leaves for name, box in _boxes(net, leaf.step) if net.maker.get(name) == self.members[0]), default=1)
        elif mode == "brr":
            stores = [(net.tensor(name).rows, _height(leaf.step.box)) for name, found in self._transfers(store=True).items() for leaf in found]
            counted = max(stores, default=(1, 1))[1]
        if self.group.band_rows != counted:
            yield f"band rows: the plan says {self.group.band_rows}, counted {counted}"

    # -- places ------------------------------------------------------------------------------------------------------------------------------

    def _places(self) -> Iterator[str]:
        """Places lie below the end of the buffer, have a name, and slots of just the size that is needed; tells rings what is written to them."""
        places, beta = self.group.places, self.hardware.buffer_bytes
        end = max((place.end for place in places), default=0)
        if end != self.group.buffer_bytes:
            yield f"buffer bytes: the plan says {self.group.buffer_bytes}, its places end at {end}"
        if end >= beta:
            yield f"its places end at {end}, must be below {beta}"
        for name, times in Counter(place.name for place in places).items():
            if times > 1:
                yield f"{times} places are named {name!r}"
        tenants = self._tenants()
        for ring, found in zip(self.rings, tenants, strict=True):
            yield from self._unfit(ring, found)

    def _tenants(self) -> list[set[Tenant]]:
        """Per place: what is put there. Rings take down the writes."""
        found: list[set[Tenant]] = [set() for _ in self.rings]
        for leaf in self.leaves:
            step = leaf.step
            if isinstance(step, Transfer):
                if not step.store:
                    constant = step.tensor in self.constants
                    axis = None if constant else row_axis(self.net.graph.shape(step.tensor))
                    starts, extents = _starts(leaf, 0, len(step.box)), _extents(step.box)
                    size = self._moves(step)[1] if constant else 0
                    if all(extents):
                        self.rings[step.place].writes.append(Write(leaf, starts, extents, leaf.start(len(step.box)), axis, step.offset, size))
                    found[step.place].add(Tenant(step.tensor, sums=False))
                continue
            column = 0
            for (name, box), place in zip(_boxes(self.net, step), step.places, strict=True):
                target = place if step.last else step.sums
                if all(_extents(box)) and target >= 0:
                    axis, starts = row_axis(self.net.graph.shape(name)), _starts(leaf, column, len(box))
                    number = np.zeros(leaf.runs, np.int64) if axis is None else starts[axis]
                    self.rings[target].writes.append(Write(leaf, starts, _extents(box), number, axis))
                    found[target].add(Tenant(name, sums=not step.last))
                column += len(box)
        return found

    def _unfit(self, ring: Ring, tenants: set[Tenant]) -> Iterator[str]:
        """What is wrong with a place, given what is put there."""
        place = ring.place
        if place.slots < 1 or place.slot_bytes < 0 or place.address < 0:
            yield f"place {place.name!r}: {place.slots} slots of {place.slot_bytes} B from {place.address} on"
            return
        if not ring.writes:
            yield f"place {place.name!r}: nothing is ever put there"
            return
        constants = {tenant.name for tenant in tenants} <= self.constants
        purpose = "weight" if constants else "sum" if any(tenant.sums for tenant in tenants) else "map"
        if purpose != place.purpose:
            yield f"place {place.name!r}: the plan says it is for a {place.purpose}, it takes a {purpose}"
        if not constants and len(tenants) > 1:
            yield f"place {place.name!r}: it takes {' and '.join(sorted(repr(tenant.name) for tenant in tenants))}"
            return
        if constants:
            needed = whole = max(w.offset + w.size for w in ring.writes)
        else:
            (tenant,) = tenants
            shape = self.net.graph.shape(tenant.name)
            whole, needed = self._row_on_chip(shape, tenant), max(self._row_on_chip(w.extents, tenant) for w in ring.writes)
            if place.slot_bytes < whole:
                ring.narrow = tuple(k for k, extent in enumerate(shape) if k != row_axis(shape) and any(w.extents[k] < extent for w in ring.writes))
            if place.name == tenant.name and any((w.number != w.starts[w.row_axis]).any() for w in ring.writes if w.row_axis is not None):
                yield f"place {place.name!r}: rows are not put into the slots of their numbers"
        if place.slot_bytes not in (whole, needed):
            yield f"place {place.name!r}: the plan says slots of {place.slot_bytes} B, needed are {needed}" + (f" or {whole}" if whole > needed else "")

    def _row_on_chip(self, shape: tuple[int, ...], tenant: Tenant) -> int:
        size = self.hardware.row_bytes(Tensor("", shape, ""))
        return size // self.hardware.element_bytes * self.hardware.accumulator_bytes if tenant.sums else size

    # -- on chip -----------------------------------------------------------------------------------------------------------------------------

    def _on_chip(self) -> Iterator[str]:
        """Everything that a step reads is on chip when it runs."""
        close(self.rings)
        self.holding: dict[Tenant, list[Ring]] = defaultdict(list)
        self.blocks: dict[str, list[tuple[Ring, Write]]] = defaultdict(list)
        for ring in self.rings:
            held: set[Tenant] = set()
            for write in ring.writes:
                step = write.leaf.step
                if ring.place.purpose == "weight" and isinstance(step, Transfer):
                    self.blocks[step.tensor].append((ring, write))
                elif isinstance(step, Transfer):
                    held.add(Tenant(step.tensor, sums=False))
                else:
                    held |= {Tenant(name, sums=not step.last) for name in _named(self.net, step, ring, self.rings)}
            if held:
                ring.sort_rows()
            for tenant in held:
                self.holding[tenant].append(ring)
        for leaf in self.leaves:
            if isinstance(leaf.step, Compute):
                yield from self._read_by_compute(leaf, leaf.step)
            elif leaf.step.store:
                axes = tuple((start, start + e) for start, e in zip(_starts(leaf, 0, len(leaf.step.box)), _extents(leaf.step.box), strict=True))
                held = [ring for ring in self.holding[Tenant(leaf.step.tensor, sums=False)] if ring is self.rings[leaf.step.place]]
                yield from self._rows(leaf, leaf.step.tensor, held, Wanted(leaf.times, axes, row_axis(self.net.graph.shape(leaf.step.tensor))))
            elif leaf.step.gather:
                yield from self._reads(leaf, leaf.step.gather, self._result(leaf, [leaf.step.box], None), range(1, 2))

    def _read_by_compute(self, leaf: Leaf, step: Compute) -> Iterator[str]:
        if not any(all(_extents(box)) for box in step.boxes):
            return
        result = self._result(leaf, step.boxes, step)
        inputs = range(len(self.net.operators[step.operator].inputs)) if step.last else range(2)  # a bias is added when sums are finished
        yield from self._reads(leaf, step.operator, result, inputs)
        if not step.first:
            (name,) = self.net.makes[step.operator]
            held = [ring for ring in self.holding[Tenant(name, sums=True)] if ring is self.rings[step.sums]]
            wanted = Wanted(leaf.times, result.axes, row_axis(self.net.graph.shape(name)))
            yield from self._rows(leaf, f"sums of {step.operator}", held, wanted)

    def _reads(self, leaf: Leaf, op: str, result: Result, inputs: range) -> Iterator[str]:
        """Operands of an operator, of these inputs."""
        net, call = self.net, self.net.calls[op]
        for read in net.reads[op]:
            if read.index in inputs:
                seen = read.seen == read.map or Tenant(read.seen, sums=False) in self.holding
                name = read.seen if seen else read.map
                rules = operand_rules(net, read, call, seen=seen)
                wanted = Wanted(leaf.times, _parts(rules, result), row_axis(net.graph.shape(name)))
                yield from self._rows(leaf, name, self.holding[Tenant(name, sums=False)], wanted)
        for constant in net.constants[op]:
            if constant.index in inputs and not constant.gathered:
                wanted = Wanted(leaf.times, _parts(constant_rules(call, constant.index), result), None)
                step = missing_block(self.blocks[constant.name], wanted)
                if step is not None:
                    yield f"{_describe(leaf)}: at step {step} what it needs of {constant.name!r} is not on chip"

    def _rows(self, leaf: Leaf, name: str, held: Sequence[Ring], wanted: Wanted) -> Iterator[str]:
        found = missing_row(held, wanted)
        if found is not None:
            yield f"{_describe(leaf)}: at step {found[0]} row {found[1]} of {name!r}, or what it needs of it, is not on chip"

    def _result(self, leaf: Leaf, boxes: Sequence[tuple[tuple[int, int], ...]], step: Compute | None) -> Result:
        """The boxes that a step makes, in all runs."""
        op = step.operator if step else self.net.maker[leaf.step.tensor]  # type: ignore[union-attr]
        starts: list[Ints] = []
        stops: list[Ints] = []
        column = 0
        for box in boxes:
            axis = row_axis(_extents(box))
            if all(_extents(box)):
                starts.append(np.zeros(leaf.runs, np.int64) if axis is None else leaf.start(column + axis))
                stops.append(starts[-1] + (self.net.height(op) if axis is None else box[axis][1] - box[axis][0]))
            column += len(box)
        axes = tuple((start, start + e) for start, e in zip(_starts(leaf, 0, len(boxes[0])), _extents(boxes[0]), strict=True))
        low = leaf.start(column) if step and step.inputs else np.zeros(leaf.runs, np.int64)
        depth = step.inputs[1] - step.inputs[0] if step and step.inputs else input_channels(self.net.calls[op])
        return Result(axes, (np.minimum.reduce(starts), np.maximum.reduce(stops)), (low, low + depth))


# -- steps -----------------------------------------------------------------------------------------------------------------------------------


def _bad_loops(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Loop):
            if node.count < 1:
                yield f"a loop of {node.count} turns"
            yield from _bad_loops(node.body)


def _boxes(net: Network, step: Transfer | Compute) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    """Tensors and their boxes: of a transfer, what it moves; of an operator, what it makes."""
    return [(step.tensor, step.box)] if isinstance(step, Transfer) else list(zip(net.makes[step.operator], step.boxes, strict=True))


def _named(net: Network, step: Compute, ring: Ring, rings: Sequence[Ring]) -> Iterator[str]:
    """Results of a step that go to this place."""
    for (name, box), place in zip(_boxes(net, step), step.places, strict=True):
        target = place if step.last else step.sums
        if target >= 0 and rings[target] is ring and all(_extents(box)):
            yield name


def _extents(box: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _height(box: tuple[tuple[int, int], ...]) -> int:
    axis = row_axis(_extents(box))
    return 1 if axis is None else box[axis][1] - box[axis][0]


def _starts(leaf: Leaf, column: int, axes: int) -> tuple[Ints, ...]:
    return tuple(leaf.start(column + axis) for axis in range(axes))


def _moved_boxes(leaf: Leaf) -> Boxes:
    assert isinstance(leaf.step, Transfer)
    starts, repeats = leaf.starts(range(len(leaf.step.box)))
    return Boxes(starts, _extents(leaf.step.box), repeats)


def _result_boxes(leaf: Leaf) -> Iterator[Boxes]:
    assert isinstance(leaf.step, Compute)
    column = 0
    for box in leaf.step.boxes:
        starts, repeats = leaf.starts(range(column, column + len(box)))
        yield Boxes(starts, _extents(box), repeats)
        column += len(box)


def _parts(rules: Sequence[Rule | None], result: Result) -> tuple[tuple[Ints, Ints] | None, ...]:
    return tuple(rule and rule(result) for rule in rules)


def _describe(leaf: Leaf) -> str:
    step = leaf.step
    what = f"compute {step.operator!r}" if isinstance(step, Compute) else f"{'store' if step.store else 'load'} {step.tensor!r}"
    return f"step {leaf.first}, {what}"

"""Recount everything that a plan claims, from the network alone: legality, buffer and DRAM bytes of every group, baselines, totals, gap.

Nothing here comes from the planner or the search. What a plan and its recount share is `lfopt.ir` and the row rules of the operator table; views,
neighbourhoods, schedules and bytes are worked out again, the slow way: the line-buffer schedule is run row by row over the whole group, holding and
freeing rows as it says, and the bytes are those that it touched.

What is recounted exactly, and what is only bounded:

* partition, connectivity, convexity, order of the groups: exactly.
* lbdf, opaque and excluded groups: buffer bytes and DRAM bytes by class, exactly (of excluded ones, DRAM bytes alone).
* tiled groups, traffic `once` and `paper`, and all that do not begin with a contraction: that they are a single operator or an epilogue group, and
  DRAM bytes exactly; buffer bytes only as being below the buffer.
* tiled groups that begin with a contraction, traffic `tiled`: outputs, other operands, and `weight_passes` times the weights exactly. For the bytes
  read of the input, a tiling must exist that reads just so many with so many weight passes, and fits the buffer: blocks, bands, either of them on
  column strips, or slices, each walked tile by tile. That no other tiling moves fewer is not checked, nor which one the plan means; so its buffer
  bytes are only checked to be below the buffer (a tile of one element is taken to fit any).
* baselines, totals, gap: exactly. That the lower bound is *proven* cannot be recounted; that it lies between the compulsory bytes and the plan's is
  checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isclose, prod

from lfopt.ir import DramBytes, Graph, Hardware, Operator, Plan, PlannedGroup, Tensor, round_up, row_axis
from lfopt.ops.call import Call
from lfopt.ops.dependence import spatial_window
from lfopt.ops.table import OPAQUE, OpSpec, Tiling, spec


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted of one group."""

    buffer_bytes: int  # when the group runs in line-buffer depth-first order
    dram: DramBytes  # every tensor once
    inputs: tuple[str, ...]  # maps loaded
    outputs: tuple[str, ...]  # maps stored
    rings: dict[str, int]  # rows held at once, by map


@dataclass(frozen=True, slots=True)
class Recount:
    """What a recount found."""

    discrepancies: tuple[str, ...]  # one line each: the group, what the plan says, what was counted
    groups: int
    dram_bytes: int  # of the whole plan
    layer_by_layer_bytes: int
    epilogue_fused_bytes: int
    compulsory_bytes: int
    excluded_bytes: int

    @property
    def agrees(self) -> bool:
        """Nothing was found that contradicts the plan."""
        return not self.discrepancies


def recount(graph: Graph, plan: Plan) -> Recount:
    """Count again what the plan claims of this network."""
    return _Recounting(Network(graph), plan).run()


# -- the network, read again -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """One operand of an operator that is a feature map."""

    map: str  # behind all views
    index: int  # position among the operator's inputs
    first: tuple[int, ...]  # per output row: lowest row read; the map's height where none is
    last: tuple[int, ...]  # per output row: highest row read; -1 where none is


class Network:
    """Operators that move or make data, by name, and what each reads and makes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.behind: dict[str, str] = {name: name for name in graph.inputs}  # map behind every tensor that is no constant
        self.operators: dict[str, Operator] = {}
        self.specs: dict[str, OpSpec] = {}
        self.calls: dict[str, Call] = {}
        self.reads: dict[str, list[Read]] = {}
        self.makes: dict[str, list[str]] = {}
        self.maker: dict[str, str] = {}  # operator that makes each map
        self.readers: dict[str, list[str]] = defaultdict(list)  # operators that read each map
        for operator in graph.operators:
            row = spec(operator.kind, operator.domain)
            if row.view:
                for name in operator.outputs:
                    if name and operator.inputs[0] in self.behind:
                        self.behind[name] = self.behind[operator.inputs[0]]
                continue
            self._add(operator, row)
        self.biases = {name for op in self.operators for name, _, bias, _ in self.weights(op) if bias}  # constants that are biases and nothing else
        self.biases -= {name for op in self.operators for name, _, bias, _ in self.weights(op) if not bias}
        self.stored = {self.behind[name] for name in graph.outputs if name in self.behind}  # maps that are results of the network

    def _add(self, operator: Operator, row: OpSpec) -> None:
        name = operator.name
        call = Call.of(self.graph, operator)
        self.operators[name], self.specs[name], self.calls[name], self.reads[name] = operator, row, call, []
        for index, tensor in enumerate(operator.inputs):
            if tensor not in self.behind:
                continue  # a constant, or absent
            source = self.behind[tensor]
            if source == tensor or self._rows_stay(source, tensor):
                found = row.reads(call, index)
                first, last = found.first, found.last
            else:
                first, last = (0,) * call.rows_out, (self.height_of_map(source) - 1,) * call.rows_out
            self.reads[name].append(Read(source, index, first, last))
            if name not in self.readers[source]:
                self.readers[source].append(name)
        self.makes[name] = [tensor for tensor in operator.outputs if tensor]
        for tensor in self.makes[name]:
            self.maker[tensor] = name
            self.behind[tensor] = tensor

    def _rows_stay(self, source: str, view: str) -> bool:
        """Whether row r of the view is row r of the map: then every row starts at the same element and has the same length."""
        cuts: list[tuple[int, int, int]] = []
        for shape in (self.graph.shape(source), self.graph.shape(view)):
            axis = row_axis(shape)
            count = 1 if axis is None else shape[axis]
            blocks = 1 if count == 1 or axis is None else prod(shape[:axis])
            cuts.append((count, blocks, prod(shape) // (count * blocks)))
        return cuts[0] == cuts[1]

    def tensor(self, name: str) -> Tensor:
        """Shape and type of a map or constant."""
        return self.graph.tensors[name]

    def height_of_map(self, name: str) -> int:
        """Rows of a map."""
        return self.tensor(name).rows

    def height(self, operator: str) -> int:
        """Rows in which an operator advances."""
        return max(self.height_of_map(name) for name in self.makes[operator])

    def producers(self, operator: str) -> set[str]:
        """Operators whose results it reads."""
        return {self.maker[read.map] for read in self.reads[operator] if read.map in self.maker}

    def weights(self, operator: str) -> list[tuple[str, int, bool, bool]]:
        """(constant, elements that a load moves, is a bias, is gathered from) of everything constant that it reads as data."""
        found: list[tuple[str, int, bool, bool]] = []
        row, op = self.specs[operator], self.operators[operator]
        for index, name in enumerate(op.inputs):
            if not name or name not in self.graph.constants or index in row.parameters:
                continue
            elements = self.tensor(name).elements
            if elements > 1:
                gathered = op.kind == "Gather" and index == 0
                found.append((name, self.tensor(self.makes[operator][0]).elements if gathered else elements, index == row.bias, gathered))
        return found

    def needed_outside(self, name: str, group: Iterable[str]) -> bool:
        """Whether a map made in a group must be stored."""
        return name in self.stored or any(reader not in group for reader in self.readers[name])


# -- one group -------------------------------------------------------------------------------------------------------------------------------


def rings(net: Network, group: Sequence[str]) -> dict[str, int]:
    """Run a group in line-buffer depth-first order, row by row; the largest number of rows of each map that it held at once.

    The results that leave the group are made row by row, the one with the smallest (row + 1) / height next. Before an operator computes a row, the
    rows that it reads are made, input by input. A row takes its place when it is made; it goes when every reader in the group has passed it.
    """
    position = {name: i for i, name in enumerate(net.operators)}
    members = sorted(set(group), key=position.__getitem__)
    inside = set(members)
    made_inside = {name for op in members for name in net.makes[op]}
    done = dict.fromkeys(members, 0)  # rows computed
    loaded = {read.map: 0 for op in members for read in net.reads[op] if read.map not in made_inside}
    held = {read.map: 1 for op in members for read in net.reads[op] if read.map not in made_inside} | dict.fromkeys(made_inside, 0)
    tails: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)  # per map: (reader, lowest row that its rows r, r + 1, ... still read)
    for op in members:
        for read in net.reads[op]:
            tails[read.map].append((op, _lowest_from(read, net.height_of_map(read.map))))

    def hold(name: str, row: int) -> None:
        oldest = min((lowest[done[reader]] for reader, lowest in tails[name]), default=row)
        held[name] = max(held[name], row - min(oldest, row) + 1)

    def compute_next_row(sink: str) -> None:
        waiting = [sink]
        while waiting:
            op = waiting[-1]
            row = done[op]
            for read in net.reads[op]:
                have = loaded[read.map] if read.map in loaded else done[net.maker[read.map]]
                if have <= read.last[row]:
                    if read.map in loaded:
                        hold(read.map, have)
                        loaded[read.map] += 1
                    else:
                        waiting.append(net.maker[read.map])
                    break
            else:
                for name in net.makes[op]:
                    if row < net.height_of_map(name):
                        hold(name, row)
                done[op] = row + 1
                waiting.pop()

    sinks = [op for op in members if any(net.needed_outside(name, inside) for name in net.makes[op])]
    while unfinished := [op for op in sinks if done[op] < net.height(op)]:
        compute_next_row(min(unfinished, key=lambda op: (Fraction(done[op] + 1, net.height(op)), position[op])))
    return held


def _lowest_from(read: Read, height: int) -> list[int]:
    lowest = [height]
    for row in reversed(read.first):
        lowest.append(min(row, lowest[-1]))
    return lowest[::-1]


def count(net: Network, group: Sequence[str], hardware: Hardware) -> Counted:
    """Buffer bytes of a group in line-buffer depth-first order, and its DRAM bytes with every tensor once."""
    inside = set(group)
    members = [name for name in net.operators if name in inside]
    inputs: list[str] = []
    outputs: list[str] = []
    for op in members:
        for read in net.reads[op]:
            if net.maker.get(read.map) not in inside and read.map not in inputs:
                inputs.append(read.map)
        outputs += [name for name in net.makes[op] if net.needed_outside(name, inside)]
    held = rings(net, members)
    moved, resident = _weight_bytes(net, members, hardware)
    return Counted(
        sum(rows * hardware.row_bytes(net.tensor(name)) for name, rows in held.items()) + resident,
        DramBytes(
            input=sum(hardware.dram_bytes(net.tensor(name)) for name in inputs),
            output=sum(hardware.dram_bytes(net.tensor(name)) for name in outputs),
            weight=moved,
        ),
        tuple(inputs),
        tuple(outputs),
        held,
    )


def _weight_bytes(net: Network, members: Iterable[str], hardware: Hardware) -> tuple[int, int]:
    """(DRAM bytes, bytes on chip) of weights and biases, each constant once; rows that a Gather picks go where its result is."""
    shared: dict[str, int] = {}
    gathered = 0
    for op in members:
        for name, elements, _, picked in net.weights(op):
            size = hardware.constant_bytes(elements, bias=name in net.biases)
            if picked:
                gathered += size
            else:
                shared[name] = size
    return sum(shared.values()) + gathered, sum(shared.values())


def not_an_epilogue(net: Network, members: Sequence[str]) -> str:
    """Why the operators are not one operator followed by elementwise ones on its output; empty if they are."""
    inside = set(members)
    head, *rest = [name for name in net.operators if name in inside]
    if not rest:
        return ""
    if net.specs[head] is OPAQUE or len(net.makes[head]) != 1:
        return f"{head!r} cannot have an epilogue"
    for op in rest:
        if not net.specs[op].elementwise or len(net.makes[op]) != 1:
            return f"{op!r} is not elementwise"
        shape = net.graph.shape(net.makes[op][0])
        follows: set[str] = set()
        for read in net.reads[op]:
            same_rows = all(row == low == high for row, (low, high) in enumerate(zip(read.first, read.last, strict=True)))
            if read.map in net.maker and net.graph.shape(read.map) == shape and same_rows:
                follows.add(net.maker[read.map])
        before = net.producers(op) & inside
        if not before or not before <= follows:
            return f"{op!r} does not follow the others row by row"
    return ""


class Contraction:
    """The head of a tiled group, and what goes on beside it."""

    def __init__(self, net: Network, members: Sequence[str], hardware: Hardware) -> None:
        inside = set(members)
        self.head, *rest = (name for name in net.operators if name in inside)
        reads = net.reads[self.head]
        self.data = next(read for read in reads if read.index == 0)
        self.second = next((read.map for read in reads if read.index == 1), None)
        self.input_bytes = hardware.dram_bytes(net.tensor(self.data.map))
        beside = _weight_bytes(net, rest, hardware)[1]
        self.weight_bytes = _weight_bytes(net, members, hardware)[1] - beside + (hardware.dram_bytes(net.tensor(self.second)) if self.second else 0)
        self._in_row = hardware.row_bytes(net.tensor(self.data.map))
        self._ring = rings(net, [self.head])[self.data.map]
        streams = [name for op in members for name in net.makes[op] if net.needed_outside(name, inside)]
        self._held = beside
        for read in (read for op in rest for read in net.reads[op]):
            if net.maker.get(read.map) in inside or read.map in streams:
                continue
            if net.height_of_map(read.map) == net.height(self.head):
                streams.append(read.map)
        for name in {read.map for op in rest for read in net.reads[op] if net.maker.get(read.map) not in inside} - set(streams):
            self._held += net.height_of_map(name) * hardware.row_bytes(net.tensor(name))
        self._out_row = sum(hardware.row_bytes(net.tensor(name)) for name in streams)
        self._streams = len(streams)
        self._height_in = net.height_of_map(self.data.map)
        self._hardware = hardware
        call, source = net.calls[self.head], net.tensor(self.data.map)
        self._channels, self._groups, self._depth, self._kernel = _extents(call)
        self._pixel = source.elements // source.rows * hardware.element_bytes  # bytes of a row, before they are cut into columns
        self._columns = ((0,), (0,))  # per output column: first and last input column
        self._width_in = 1
        if call.operator.kind in ("Conv", "ConvTranspose") and len(source.shape) in (4, 5):
            along = spatial_window(call, -1)
            self._columns, self._width_in = (along.first, along.last), along.rows_in
        self._pixel //= self._width_in

    def tilings(self, read: int, passes: int, beta: int) -> Iterator[str]:
        """Tilings that fit the buffer, read so many bytes of the input, and load the weights so many times; each is walked tile by tile."""
        width = len(self._columns[0])
        for strips in dict.fromkeys([1, *(min(1 << k, width) for k in range(1, width.bit_length() + 1))]):
            spans = _spans(self._columns, ceil(width / strips))
            once = sum(self._rows_bytes(span) for span in spans) if strips > 1 else self.input_bytes
            share_in = Fraction(max(spans), self._width_in) if strips > 1 else Fraction(1)
            share_out = Fraction(ceil(width / strips), width) if strips > 1 else Fraction(1)
            for times in range(1, self._channels + 1) if passes == 1 else ():
                if max(times * once, self.input_bytes) == read and (need := self._blocks(times, share_in, share_out)) is not None and need < beta:
                    yield f"{times} blocks on {strips} strips"
            if max(once, self.input_bytes) == read and passes % len(spans) == 0:
                need = self._bands(passes // len(spans), share_in, share_out)
                if need is not None and need < beta:
                    yield f"{passes // len(spans)} bands on {strips} strips"
        yield from self._slices(read, passes, beta)

    def _rows_bytes(self, columns: int) -> int:
        """DRAM bytes of so many columns of every row of the input."""
        return self._height_in * round_up(self._pixel * columns, self._hardware.dram_row_align)

    def _blocks(self, times: int, share_in: Fraction, share_out: Fraction) -> int | None:
        """Buffer bytes of one block of output channels: its weights, its part of a row of every result, the ring of the input."""
        of_group = self._channels // self._groups
        block = ceil(of_group / times)
        if ceil(of_group / block) != times:
            return None
        ring = self._ring * ceil(self._in_row * share_in)
        part = Fraction(block, self._channels) * (self.weight_bytes + ceil(self._out_row * share_out))
        return ceil(part) + ceil(Fraction(ring, self._groups)) + self._held

    def _bands(self, passes: int, share_in: Fraction, share_out: Fraction) -> int | None:
        """Buffer bytes of one band of output rows: the rows of the input that it and the next one read, its results, two pieces of weights."""
        height = len(self.data.first)
        tall = ceil(height / passes)
        if ceil(height / tall) != passes:
            return None
        lowest, widest = _lowest_from(self.data, self._height_in), 1
        for start in range(height):
            widest = max(widest, max(self.data.last[: start + tall]) + 1 - lowest[start])
        piece = 2 * ceil(Fraction(self.weight_bytes * min(self._hardware.channel_align, self._channels), self._channels))
        return widest * ceil(self._in_row * share_in) + tall * ceil(self._out_row * share_out) + piece + self._held

    def _slices(self, read: int, passes: int, beta: int) -> Iterator[str]:
        """Tiles of rows x columns x channels: one input channel of the patch at a time, with the weights that meet it, and all partial sums."""
        height, width, of_group = len(self.data.first), len(self._columns[0]), self._channels // self._groups
        weight = max(self.weight_bytes // (self._channels * self._depth * self._kernel), 1)
        result = self._hardware.accumulator_bytes + self._streams * self._hardware.element_bytes
        for rows in _sizes(height):
            bands = _spans((self.data.first, self.data.last), ceil(height / ceil(height / rows)))
            for columns in _sizes(width):
                strips = _spans(self._columns, ceil(width / ceil(width / columns)))
                if len(bands) * len(strips) != passes:
                    continue
                patches = sum(band * round_up(self._pixel * strip, self._hardware.dram_row_align) for band in bands for strip in strips)
                for channels in _sizes(of_group):
                    sums = channels * ceil(height / len(bands)) * ceil(width / len(strips)) * result
                    need = max(bands) * max(strips) * self._hardware.element_bytes + channels * self._kernel * weight + sums
                    fits = need < beta or rows == columns == channels == 1
                    if fits and max(ceil(of_group / channels) * patches, self.input_bytes) == read:
                        yield f"slices of {rows} x {columns} x {channels}"


def _spans(reads: tuple[tuple[int, ...], tuple[int, ...]], size: int) -> list[int]:
    """Extent of the input that each run of so many outputs reads."""
    first, last = reads
    starts = range(0, len(first), size)
    return [max(max(last[k : k + size]) - min(first[k : k + size]) + 1, 0) for k in starts]


def _sizes(limit: int) -> list[int]:
    """1, 2, 4, ... below the limit, and the limit."""
    found = [1]
    while 2 * found[-1] < limit:
        found.append(2 * found[-1])
    return found if limit == 1 else [*found, limit]


def _extents(call: Call) -> tuple[int, int, int, int]:
    """(output channels, groups with an input of their own, input channels of a group, kernel elements); every matrix of a batch is a group."""
    weight = call.shape(1)
    if call.operator.kind in ("Conv", "ConvTranspose"):
        groups = call.attribute("group", 1)
        return call.result[1], groups, call.shape(0)[1] // groups, prod(weight[2:])
    if call.operator.kind == "Gemm":
        return call.result[1], 1, weight[1] if call.attribute("transB", 0) else weight[0], 1
    batch = prod(weight[:-2])
    return (weight[-1] if len(weight) > 1 else 1) * batch, batch, call.shape(0)[-1], 1


# -- the whole plan --------------------------------------------------------------------------------------------------------------------------


class _Recounting:
    def __init__(self, net: Network, plan: Plan) -> None:
        self.net, self.plan, self.hardware = net, plan, plan.hardware
        self.found: list[str] = []
        self.left_out = {  # operators that traffic paper leaves out
            op
            for op in net.operators
            if plan.traffic == "paper" and net.specs[op] is not OPAQUE and _weight_bytes(net, [op], plan.hardware)[1] >= plan.hardware.buffer_bytes
        }

    def run(self) -> Recount:
        known = self._partition()
        for group, members in known:
            self._structure(group, members)
            self._bytes(group, members)
        self._order(known)
        return self._totals(known)

    def _say(self, group: PlannedGroup, what: str) -> None:
        self.found.append(f"group {group.id}: {what}")

    def _expect(self, group: PlannedGroup, what: str, claimed: object, counted: object) -> None:
        if claimed != counted:
            self._say(group, f"{what}: the plan says {claimed}, counted {counted}")

    # -- legality ------------------------------------------------------------------------------------------------------------------------

    def _partition(self) -> list[tuple[PlannedGroup, list[str]]]:
        """The groups with the operators that exist; every operator must be in exactly one."""
        owner: dict[str, int] = {}
        known: list[tuple[PlannedGroup, list[str]]] = []
        for position, group in enumerate(self.plan.groups):
            self._expect(group, "id", group.id, position)
            members: list[str] = []
            for name in group.nodes:
                if name not in self.net.operators:
                    self._say(group, f"{name!r} is not an operator of the network (or it is a view)")
                elif name in owner:
                    self._say(group, f"{name!r} is in group {owner[name]} already")
                else:
                    members.append(name)
                    owner[name] = group.id
            if members:
                known.append((group, members))
            else:
                self._say(group, "it has no operator")
        self.found += [f"operator {name!r} is in no group" for name in self.net.operators if name not in owner]
        return known

    def _structure(self, group: PlannedGroup, members: list[str]) -> None:
        net, inside = self.net, set(members)
        if len(members) > 1:
            if strange := [name for name in members if net.specs[name] is OPAQUE]:
                self._say(group, f"{strange[0]!r} ({net.operators[strange[0]].kind}) is unknown to lfopt and must be alone")
            reached, frontier = {members[0]}, [members[0]]
            while frontier:
                touched = {read.map for read in net.reads[frontier[-1]]} | set(net.makes[frontier[-1]])
                frontier.pop()
                for other in inside - reached:
                    if touched & ({read.map for read in net.reads[other]} | set(net.makes[other])):
                        reached.add(other)
                        frontier.append(other)
            if reached != inside:
                self._say(group, f"not connected: {min(inside - reached)!r} shares no map with {members[0]!r}'s part of it")
        # Convex: walking on from what leaves the group, one never comes back.
        left, frontier = set[str](), [(op, op) for op in members]
        while frontier:
            op, start = frontier.pop()
            for name in net.makes[op]:
                for reader in net.readers[name]:
                    if reader in inside:
                        if op not in inside:
                            self._say(group, f"not convex: {op!r} lies between {start!r} and {reader!r}")
                            return
                    elif reader not in left:
                        left.add(reader)
                        frontier.append((reader, start))

    def _order(self, known: list[tuple[PlannedGroup, list[str]]]) -> None:
        """Every group after those that it reads from: then the quotient graph has no cycle either."""
        executed: set[str] = set()
        for group, members in known:
            executed.update(members)
            for op in members:
                for producer in sorted(self.net.producers(op) - executed):
                    self._say(group, f"{op!r} reads a result of {producer!r}, which runs later")

    # -- bytes ---------------------------------------------------------------------------------------------------------------------------

    def _bytes(self, group: PlannedGroup, members: list[str]) -> None:
        counted = count(self.net, members, self.hardware)
        beta, single = self.hardware.buffer_bytes, len(members) == 1
        self._expect(group, "maps loaded", sorted(group.inputs), sorted(counted.inputs))
        self._expect(group, "maps stored", sorted(group.outputs), sorted(counted.outputs))
        self._expect(group, "band rows", group.band_rows, 1)
        if group.mode != "tiled" or self.plan.traffic != "tiled":
            self._expect(group, "weight passes", group.weight_passes, 1)
        if group.mode != "excluded" and (gone := self.left_out.intersection(members)):
            self._say(group, f"mode {group.mode}, but the weights of {min(gone)!r} reach the buffer: traffic paper leaves it out")
        if group.mode == "lbdf":
            self._expect(group, "buffer bytes", group.buffer_bytes, counted.buffer_bytes)
            self._expect(group, "DRAM bytes", group.dram, counted.dram)
            if counted.buffer_bytes >= beta:
                self._say(group, f"needs {counted.buffer_bytes} B of buffer, must be below {beta}")
        elif group.mode == "opaque":
            self._expect(group, "buffer bytes", group.buffer_bytes, counted.buffer_bytes)
            self._expect(group, "DRAM bytes", group.dram, counted.dram)
            if not single or self.net.specs[members[0]] is not OPAQUE:
                self._say(group, "mode opaque, but it is not one operator unknown to lfopt")
        elif group.mode == "excluded":
            self._expect(group, "DRAM bytes", group.dram, counted.dram)
            if not single or members[0] not in self.left_out:
                self._say(group, f"mode excluded, but it is not one operator that traffic {self.plan.traffic} leaves out")
        elif group.mode == "tiled":
            self._tiled(group, members, counted)
        else:
            self._say(group, f"mode {group.mode!r} is unknown")

    def _tiled(self, group: PlannedGroup, members: list[str], counted: Counted) -> None:
        if len(members) > 1 and not self.plan.epilogue:
            self._say(group, "mode tiled with several operators, but epilogue is off")
        if why := not_an_epilogue(self.net, members):
            self._say(group, f"mode tiled, but {why}")
        beta, head = self.hardware.buffer_bytes, members[0]
        contracts = self.net.specs[head].tiling is Tiling.CONTRACT and any(read.index == 0 for read in self.net.reads[head])
        if self.plan.traffic != "tiled" or not contracts:
            self._expect(group, "DRAM bytes", group.dram, counted.dram)
        else:
            self._contraction(group, members, counted)
        if group.buffer_bytes >= beta and not contracts:
            self._say(group, f"a tile takes {group.buffer_bytes} B, must be below {beta}")

    def _contraction(self, group: PlannedGroup, members: list[str], counted: Counted) -> None:
        """Operand 0 meets operand 1 (and the bias): one of them may be read several times; everything else moves once."""
        hardware, claimed, once = self.hardware, group.dram, counted.dram
        work = Contraction(self.net, members, hardware)
        passes = group.weight_passes
        self._expect(group, "output bytes", claimed.output, once.output)
        self._expect(group, "parameter and spill bytes", claimed.parameter + claimed.spill, 0)
        if work.second is None:
            self._expect(group, f"weight bytes in {passes} passes", claimed.weight, once.weight + (passes - 1) * work.weight_bytes)
            read = claimed.input - once.input + work.input_bytes
        else:
            self._expect(group, "weight bytes", claimed.weight, once.weight)
            read = claimed.input - once.input + work.input_bytes - (passes - 1) * work.weight_bytes
        if passes < 1 or read < work.input_bytes:
            self._say(group, f"the plan reads {read} B of {work.data.map!r}, {passes} passes; once it is {work.input_bytes} B")
            return
        if not any(work.tilings(read, passes, hardware.buffer_bytes)):
            self._say(group, f"no tiling below {hardware.buffer_bytes} B reads {read} B of {work.data.map!r} with {passes} weight passes")

    # -- baselines and totals ------------------------------------------------------------------------------------------------------------

    def _totals(self, known: list[tuple[PlannedGroup, list[str]]]) -> Recount:
        net, hardware, totals = self.net, self.hardware, self.plan.totals
        kept = [op for op in net.operators if op not in self.left_out]
        layer_by_layer = sum(count(net, [op], hardware).dram.total for op in kept)
        epilogue_fused = sum(
            count(net, group, hardware).dram.total for group in epilogue_groups(net, self.left_out) if not self.left_out & set(group)
        )
        used = [name for name in net.graph.inputs if any(op not in self.left_out for op in net.readers[name])]
        used += [name for name in net.stored if name in net.maker and net.maker[name] not in self.left_out]
        compulsory = _weight_bytes(net, kept, hardware)[0] + sum(hardware.dram_bytes(net.tensor(name)) for name in used)
        dram = sum(group.dram.total for group in self.plan.groups if group.mode != "excluded")
        excluded = sum(group.dram.total for group in self.plan.groups if group.mode == "excluded")
        counted = {
            "dram_bytes": dram,
            "layer_by_layer_bytes": layer_by_layer,
            "epilogue_fused_bytes": epilogue_fused,
            "compulsory_bytes": compulsory,
            "excluded_bytes": excluded,
        }
        for name, value in counted.items():
            if getattr(totals, name) != value:
                self.found.append(f"totals.{name}: the plan says {getattr(totals, name)}, counted {value}")
        bound = totals.lower_bound_bytes
        if totals.proof != "none" and not compulsory <= bound <= dram:
            self.found.append(f"totals.lower_bound_bytes: {bound} is not between the compulsory {compulsory} and the plan's {dram}")
        if totals.proof == "optimal" and bound != dram:
            self.found.append(f"totals.proof: optimal, but the bound is {bound} and the plan moves {dram}")
        gap = (dram - bound) / bound if bound else 0.0
        if not isclose(totals.gap, gap, rel_tol=1e-9, abs_tol=1e-12):
            self.found.append(f"totals.gap: the plan says {totals.gap}, counted {gap}")
        return Recount(tuple(self.found), len(known), dram, layer_by_layer, epilogue_fused, compulsory, excluded)


def epilogue_groups(net: Network, left_out: set[str]) -> list[list[str]]:
    """What today's compilers fuse: in topological order, each elementwise operator joins the group of an operand, the latest that takes it.

    A group takes it if it stays an operator with its epilogue, and if no group comes to wait for itself.
    """
    groups: list[list[str]] = []
    owner: dict[str, int] = {}

    def waits_for(late: int, early: int) -> bool:
        seen, frontier = {late}, [late]
        while frontier:
            for op in groups[frontier.pop()]:
                for producer in net.producers(op):
                    if owner[producer] == early:
                        return True
                    if owner[producer] not in seen:
                        seen.add(owner[producer])
                        frontier.append(owner[producer])
        return False

    for op in net.operators:
        sources = {owner[producer] for producer in net.producers(op)}
        for g in sorted(sources, reverse=True):
            larger = [*groups[g], op]
            if left_out.isdisjoint(larger) and not not_an_epilogue(net, larger) and not any(waits_for(h, g) for h in sources - {g}):
                groups[g], owner[op] = larger, g
                break
        else:
            owner[op] = len(groups)
            groups.append([op])
    return groups

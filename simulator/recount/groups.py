"""Buffer and DRAM bytes of groups, and their legality, from the network alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from lfopt.ir import DramBytes, Hardware, Tensor, round_up
from lfopt.ops.arithmetic import arithmetic
from lfopt.ops.scaling import table
from lfopt.ops.table import OPAQUE
from lfopt.ops.traits import Arithmetic
from simulator.recount.network import RecountNetwork

TABLE_BYTES = 256


@dataclass(frozen=True, slots=True)
class CompulsoryTraffic:
    """DRAM traffic of a group if every tensor moves once."""

    dram: DramBytes
    inputs: tuple[str, ...]  # maps loaded
    outputs: tuple[str, ...]  # maps stored


def in_order(net: RecountNetwork, group: Iterable[str]) -> list[str]:
    """The operators of a group in topological order."""
    return sorted(set(group), key=net.position.__getitem__)


def moved_once(net: RecountNetwork, group: Sequence[str], hardware: Hardware) -> CompulsoryTraffic:
    """DRAM bytes of a group with every tensor once."""
    inside = set(group)
    inputs = dict.fromkeys(
        read.map for op in group for read in net.reads[op] if net.maker.get(read.map) not in inside
    )
    outputs = [name for op in group for name in net.makes[op] if net.needed_outside(name, inside)]
    dram = DramBytes(
        input=sum(hardware.dram_bytes(net.tensor(name)) for name in inputs),
        output=sum(hardware.dram_bytes(net.tensor(name)) for name in outputs),
        weight=weight_bytes(net, group, hardware)[0],
        parameter=sum(parameter_bytes(net, op, hardware) for op in group),
    )
    return CompulsoryTraffic(dram, tuple(inputs), tuple(outputs))


def weight_bytes(net: RecountNetwork, members: Iterable[str], hardware: Hardware) -> tuple[int, int]:
    """(DRAM bytes, bytes on chip) of weights and biases, each constant once; gathered rows in DRAM alone.

    Rows that a Gather picks are loaded into the place of its result.
    """
    shared: dict[str, int] = {}
    gathered = 0
    for op in members:
        for constant in net.constants[op]:
            if constant.gathered:
                gathered += hardware.constant_bytes(constant.elements, bias=False, pieces=constant.runs)
            else:
                shared[constant.name] = hardware.constant_bytes(
                    constant.elements, bias=constant.name in net.biases
                )
    return sum(shared.values()) + gathered, sum(shared.values())


def table_count(net: RecountNetwork, op: str, hardware: Hardware) -> int:
    """Number of tables of an operator in the store beside the buffer."""
    if op not in net.tables and arithmetic(net.calls[op]) is Arithmetic.SUMS:
        return 0
    return parameter_bytes(net, op, hardware) // TABLE_BYTES


def parameter_bytes(net: RecountNetwork, op: str, hardware: Hardware) -> int:
    """Bytes of parameters of an operator on quantised maps: 5 per channel, or tables of 256.

    They lie in the store beside the buffer; channels are rounded up to rows of `parameter_channels`.
    """
    call = net.calls[op]
    result = net.tensor(net.makes[op][0])
    if not hardware.parameter_store_bytes or result.quantization is None:
        return 0
    if op in net.tables:
        return TABLE_BYTES * net.tables[op]
    how = arithmetic(call)
    if how is Arithmetic.SUMS:
        columns = call.operator.kind in ("Gemm", "MatMul")
        channels = (result.shape[-1] if len(call.shape(1)) > 1 else 1) if columns else result.shape[1]
        return 5 * round_up(channels, hardware.parameter_channels)
    if how is Arithmetic.TABLE:
        entries = table(call)
        (source,) = (net.tensor(read.seen) for read in net.reads[op])
        least = int(entries.min())
        most = int(entries.max())
        codes = range(256) if source.dtype == "uint8" else (*range(128), *range(-128, 0))
        if entries.tolist() == [min(max(value, least), most) for value in codes]:
            return 0
        return TABLE_BYTES
    stored = {(tensor.dtype, tensor.quantization) for tensor in (result,)}
    if how is Arithmetic.CHOICE:
        given = (
            net.tensor(name)
            for i, name in enumerate(call.operator.inputs)
            if name and i not in net.specs[op].parameters
        )
        return TABLE_BYTES * sum(
            (tensor.dtype, tensor.quantization) not in stored for tensor in given if tensor.quantization
        )
    if how in (Arithmetic.EXTREME, Arithmetic.MOVE):
        first = net.tensor(call.operator.inputs[0])
        results = (net.tensor(name) for name in net.makes[op])
        before = first.dtype, first.quantization
        return TABLE_BYTES * sum(
            before != (tensor.dtype, tensor.quantization) for tensor in results if tensor.quantization
        )
    return 0


def shared_tables(net: RecountNetwork, flight: Sequence[str], hardware: Hardware) -> dict[str, int]:
    """Number of tables per operator of a flight, where it differs from the operator alone.

    Operators that are functions of one byte share one table: that of the first that does more than clamp.
    """
    tables_of: dict[str, int] = {}
    # maps that are functions of the byte at hand; whose its table is; whether nothing shares it
    seen = set[str]()
    holder = ""
    closed = True
    for op in flight:
        call, (name,), own = net.calls[op], net.makes[op], parameter_bytes(net, op, hardware)
        if not in_bytes(net.tensor(name)):
            seen = set()
            holder = ""
            closed = True
            continue
        how = arithmetic(call)
        pair = how in (Arithmetic.PRODUCT, Arithmetic.TERMS) or (
            how is Arithmetic.CHOICE and call.operator.kind in ("Max", "Min")
        )
        given = {read.seen for read in net.reads[op] if read.by == op}
        if not closed and (how is Arithmetic.TABLE or (pair and not any(call.constant))) and seen >= given:
            seen.add(name)
            more = pair or own > 0
            if (tables := int(more and not holder)) * TABLE_BYTES != own:
                tables_of[op] = tables
            holder = holder or (op if more else "")
        else:
            first = how in (Arithmetic.TABLE, Arithmetic.EXTREME, Arithmetic.MOVE)
            seen = {name}
            closed = how is Arithmetic.CHOICE
            holder = op if first and own else ""
    return tables_of


def may_share(net: RecountNetwork, op: str) -> bool:
    """Whether a flight may change an operator's number of tables."""
    results = net.makes[op]
    return (
        len(results) == 1
        and in_bytes(net.tensor(results[0]))
        and arithmetic(net.calls[op]) is not Arithmetic.SUMS
    )


def least_parameters(net: RecountNetwork, members: Iterable[str], hardware: Hardware) -> int:
    """Lower bound on the bytes of parameters of operators, whatever follows in flight.

    Elementwise operators on maps of one shape, linked by their reads, count as one table together.
    """
    inside = set(members)
    sizes = {op: parameter_bytes(net, op, hardware) for op in inside}
    first: dict[str, str] = {op: op for op in inside}  # of those that it is linked with

    def root(op: str) -> str:
        while first[op] != op:
            op = first[op]
        return op

    shares = {op for op in inside if sizes[op] and may_share(net, op)}
    for op in inside:
        for read in net.reads[op]:
            maker = net.maker.get(read.map)
            if (
                maker in inside
                and len(net.makes[maker]) == 1
                and net.specs[op].elementwise
                and net.tensor(net.makes[op][0]).shape == net.tensor(read.map).shape
            ):
                first[root(op)] = root(maker)
    total = sum(size for op, size in sizes.items() if op not in shares)
    return total + TABLE_BYTES * len({root(op) for op in shares})


def in_bytes(tensor: Tensor) -> bool:
    """Whether a tensor is of 8 bits, with one scale."""
    return (
        tensor.quantization is not None
        and tensor.quantization.axis is None
        and tensor.dtype in ("int8", "uint8")
    )


# -- what a group is -----------------------------------------------------------------------------------------


def not_connected(net: RecountNetwork, members: Sequence[str]) -> str:
    """Why the operators do not hang together by reading or making the same maps; empty if they do."""
    inside = set(members)
    touched = {op: {read.map for read in net.reads[op]} | set(net.makes[op]) for op in members}
    touching: dict[str, list[str]] = defaultdict(list)  # operators that read or make each map
    for op, maps in touched.items():
        for name in maps:
            touching[name].append(op)
    reached = {members[0]}
    frontier = [members[0]]
    while frontier:
        for name in touched[frontier.pop()]:
            for other in touching.pop(name, ()):  # all of them are reached at once
                if other not in reached:
                    reached.add(other)
                    frontier.append(other)
    if reached != inside:
        return f"not connected: {min(inside - reached)!r} shares no map with {members[0]!r}'s part of it"
    return ""


def not_convex(net: RecountNetwork, members: Sequence[str]) -> str:
    """Where a path leaves the group and comes back; empty if none does.

    Walking on from what leaves the group, one never comes back. What comes after its last operator does not.
    """
    inside = set(members)
    left = set[str]()
    last = max(map(net.position.__getitem__, members))
    frontier = [(op, op) for op in members]
    while frontier:
        op, start = frontier.pop()
        for reader in (reader for name in net.makes[op] for reader in net.readers[name]):
            if reader in inside:
                if op not in inside:
                    return f"not convex: {op!r} lies between {start!r} and {reader!r}"
            elif reader not in left and net.position[reader] < last:
                left.add(reader)
                frontier.append((reader, start))
    return ""


def not_an_epilogue(net: RecountNetwork, members: Sequence[str]) -> str:
    """Why the operators are not an anchor operator with an elementwise epilogue; empty if they are."""
    inside = set(members)
    head, *rest = in_order(net, members)
    if not rest:
        return ""
    if _ends_alone(net, head):
        return f"{head!r} cannot have an epilogue"
    return next((why for op in rest if (why := _does_not_follow(net, op, inside))), "")


def _ends_alone(net: RecountNetwork, head: str) -> bool:
    """Whether an operator has no epilogue."""
    return net.specs[head] is OPAQUE or len(net.makes[head]) != 1


def _does_not_follow(net: RecountNetwork, op: str, inside: Set[str]) -> str:
    """Why an operator is not in the epilogue of the others of a group; empty if it is."""
    if not net.specs[op].elementwise or len(net.makes[op]) != 1:
        return f"{op!r} is not elementwise"
    shape = net.graph.shape(net.makes[op][0])
    follows: set[str] = set()
    for read in net.reads[op]:
        if net.calls[op].too_tall:
            same_rows = net.graph.shape(read.seen) == shape
        else:
            pairs = enumerate(zip(read.first, read.last, strict=True))
            same_rows = all(row == low == high for row, (low, high) in pairs)
        if read.map in net.maker and net.graph.shape(read.map) == shape and same_rows:
            follows.add(net.maker[read.map])
    before = net.producers(op) & inside
    if not before or not before <= follows:
        return f"{op!r} does not follow the others row by row"
    return ""


def epilogue_groups(net: RecountNetwork, left_out: set[str]) -> Iterator[list[str]]:
    """Groups of epilogue fusion: anchor operators, each with the elementwise operators that follow.

    In topological order, each elementwise operator joins the group of an operand, the latest that takes it. A
    group takes it if it stays an operator with its epilogue, and there is no cyclic dependency then.
    """
    groups: list[dict[str, None]] = []  # operators in order; the first has what follows as its epilogue
    before: list[set[int]] = []  # per group: those whose results it reads
    owner: dict[str, int] = {}

    def waits_for(late: int, early: int) -> bool:
        seen = {late}
        frontier = [late]
        while frontier:
            read = before[frontier.pop()]
            if early in read:
                return True
            frontier += read - seen
            seen |= read
        return False

    for op in net.operators:
        sources = {owner[producer] for producer in net.producers(op)}
        for g in sorted(sources, reverse=True):
            head = next(iter(groups[g]))
            if (
                left_out.isdisjoint((head, op))
                and not _ends_alone(net, head)
                and not _does_not_follow(net, op, groups[g].keys())
                and not any(waits_for(h, g) for h in sources - {g})
            ):
                groups[g][op], owner[op] = None, g
                before[g] |= sources - {g}
                break
        else:
            owner[op] = len(groups)
            groups.append({op: None})
            before.append(sources)
    yield from map(list, groups)

"""Bytes that no schedule without recomputation avoids.

They come from maps that are gated by a function of their own mean, and from contractions of many weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from itertools import islice

from lfopt.ir import Hardware
from lfopt.ops.content import contents, normalises_all
from lfopt.ops.phases import MapContraction, beyond_compulsory, keeps_elements, products_of
from lfopt.ops.table import Tiling
from simulator.recount.needs import folded, folded_rows
from simulator.recount.network import RecountNetwork


def gated_bytes(net: RecountNetwork, hardware: Hardware, left_out: Container[str]) -> int:
    """Bytes beyond the compulsory ones.

    When such a mean has been mixed over all channels, every element of the map existed, and each will be
    read: what the buffer (and the second level) cannot hold goes out, unless it is an input or a result of
    the network anyway, and comes back. So it is where a map is normalised as a whole.
    """
    total = 0
    for name in (*net.graph.inputs, *net.maker):
        tensor = net.tensor(name)
        over = tensor.elements * hardware.element_bytes - (hardware.buffer_bytes + hardware.l2_bytes) + 1
        if over > 0 and any(reader not in left_out for reader in _gates(net, name)):
            total += over if name in net.stored or name not in net.maker else 2 * over
    return total


def phased_bytes(net: RecountNetwork, hardware: Hardware, left_out: Container[str]) -> int:
    """Bytes beyond the compulsory ones of contractions whose weights do not fit, by `lfopt.ops.phases`."""
    return beyond_compulsory(
        _uses(net, hardware, left_out),
        hardware,
        hardware.buffer_bytes + hardware.weight_buffer_bytes + hardware.l2_bytes,
    )


def _uses(net: RecountNetwork, hardware: Hardware, left_out: Container[str]) -> Iterator[MapContraction]:
    """Contractions whose weights no other reads, in whatever shape, of an operand with a map's elements."""
    graph = net.graph
    read = {c.name for constants in net.constants.values() for c in constants}
    held = {name: content.key for name, content in contents(read, graph.tensors, graph.constants).items()}
    readers = Counter(
        key for constants in net.constants.values() for key in {held[c.name] for c in constants}
    )
    for name, call in net.calls.items():
        roots = [_laid_out(net, read.map) for read in net.reads[name] if read.index == 0]
        if (
            name in left_out
            or len(roots) != 1
            or (root := roots[0]) is None
            or any(readers[held[c.name]] > 1 for c in net.constants[name])
        ):
            continue
        own = sum(
            hardware.constant_bytes(c.elements, bias=c.bias, pieces=c.runs) for c in net.constants[name]
        )
        own += sum(
            hardware.dram_bytes(net.tensor(result)) for result in net.makes[name] if result in net.stored
        )
        if (products := products_of(call, net.tensor(root).elements, own)) is not None:
            yield MapContraction(
                root, 0 if root in net.maker else hardware.dram_bytes(net.tensor(root)), products
            )


def _laid_out(net: RecountNetwork, name: str) -> str | None:
    """The map whose elements, each once, make up a map; None where that is not known."""
    while name in net.maker and (kept := keeps_elements(net.specs[net.maker[name]])) is not False:
        if kept is None:
            return None
        name = net.reads[net.maker[name]][0].map
    return name


def _gates(net: RecountNetwork, name: str) -> Iterator[str]:
    """Readers that use the whole map, and every result element of which depends on all of it."""
    elements = net.tensor(name).elements
    yield from (
        op
        for op in net.readers[name]
        if any(read.map == name and normalises_all(net.calls[op], read.index) for read in net.reads[op])
    )
    whole = [
        op
        for op in net.readers[name]
        if net.specs[op].elementwise and net.tensor(net.makes[op][0]).elements == elements
    ]
    for mean in net.readers[name] if whole else ():
        if _is_mean(net, mean):
            waiting = _waiting(net, mean)
            yield from (op for op in whole if waiting.issuperset(net.makes[op]))


def _is_mean(net: RecountNetwork, op: str) -> bool:
    """Whether an operator reduces its one operand to one element per channel."""
    reads = net.reads[op]
    return (
        folded_rows(net.calls[op]) > 0
        and len(reads) == 1
        and net.tensor(net.makes[op][0]).elements == net.tensor(reads[0].map).shape[1]
    )


def _waiting(net: RecountNetwork, mean: str) -> set[str]:
    """Maps whose elements all depend on every channel of a mean, through elementwise and contractions."""
    # `carrying`: maps whose elements each depend on one channel of the mean
    carrying = set(net.makes[mean])
    waiting = set[str]()
    channels = net.tensor(net.makes[mean][0]).elements
    for op in islice(net.operators, net.position[mean] + 1, None):
        elementwise = net.specs[op].elementwise
        data = {read.map for read in net.reads[op] if elementwise or read.index == 0}
        if not elementwise and net.specs[op].tiling is not Tiling.CONTRACT:
            continue
        if data & waiting or (not elementwise and data & carrying and folded(net.calls[op]) == channels):
            waiting |= {*net.makes[op]}
        elif elementwise and data & carrying:
            carrying |= {*net.makes[op]}
    return waiting
